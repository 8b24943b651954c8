package talosmachine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestBeginSoak: a machine soaks after each change but that of the installer alone, which changes nothing that runs.
func TestBeginSoak(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	installer := v1alpha1.FieldChange{Field: "machine.install.image"}

	for name, c := range map[string]struct {
		change *v1alpha1.MachineChange
		soak   time.Duration
		want   bool
	}{
		"the installer":          {&v1alpha1.MachineChange{Fields: []v1alpha1.FieldChange{installer}}, time.Hour, false},
		"something else":         {&v1alpha1.MachineChange{Fields: []v1alpha1.FieldChange{{Field: "machine.sysctls"}}}, time.Hour, true},
		"both":                   {&v1alpha1.MachineChange{Fields: []v1alpha1.FieldChange{installer, {Field: "machine.sysctls"}}}, time.Hour, true},
		"more than is listed":    {&v1alpha1.MachineChange{Fields: []v1alpha1.FieldChange{installer}, MoreFields: 1}, time.Hour, true},
		"it reboots":             {&v1alpha1.MachineChange{Fields: []v1alpha1.FieldChange{installer}, Reboot: true}, time.Hour, true},
		"an upgrade":             {&v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Reboot: true}, time.Hour, true},
		"what it was is unknown": {&v1alpha1.MachineChange{}, time.Hour, true},
		"without a soak":         {&v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos}, 0, false},
		"there was none":         {nil, time.Hour, true},
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{}, controlPlane: &v1alpha1.TalosControlPlane{}}
		s.controlPlane.Spec.Rollout = &v1alpha1.RolloutOptions{SoakTime: &metav1.Duration{Duration: c.soak}}
		s.beginSoak(c.change, at)

		if since := s.machine.Status.SoakingSince; (since != nil) != c.want || since != nil && !since.Time.Equal(at) {
			t.Errorf("%s: since %v", name, since)
		}
	}
}
