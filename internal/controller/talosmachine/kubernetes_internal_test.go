package talosmachine

import (
	"fmt"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestClosed: an upgrade waits for a maintenance window, and what takes one back does not.
func TestClosed(t *testing.T) {
	changes := func(from, to string) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Fields: []v1alpha1.FieldChange{{
			Field: "machine.kubelet.image", Old: "kubelet:" + from, New: "kubelet:" + to,
		}}}
	}

	for name, c := range map[string]struct {
		change *v1alpha1.MachineChange
		open   bool
		want   bool
	}{
		"an upgrade":       {changes("v1.35.9", "v1.36.2"), false, true},
		"in a window":      {changes("v1.35.9", "v1.36.2"), true, false},
		"it is taken back": {changes("v1.36.2", "v1.35.9"), false, false},
		"nothing changes":  {nil, false, false},
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{Status: v1alpha1.TalosMachineStatus{Change: c.change}}}
		if got := s.closed(c.open); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestNotAsked: an API server that does not respond is what a machine waits for, in a sentence.
func TestNotAsked(t *testing.T) {
	err := failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "no API server of the cluster responds", nil)

	const want = "the Kubernetes API: no API server of the cluster responds"
	if got := notAsked(err); got != want {
		t.Errorf("it waits for %s", got)
	}
}

// TestRefusedInstallerHoldsNoKubernetes: a machine that keeps its installer gets its components of Kubernetes all the
// same.
func TestRefusedInstallerHoldsNoKubernetes(t *testing.T) {
	const config = "version: v1alpha1\nmachine:\n    type: worker\n    install:\n        image: %s\n    kubelet:\n        image: k:%s\n"

	live := fmt.Sprintf(config, "one/installer:v1.13.9", "v1.36.2")
	rendered := fmt.Sprintf(config, "other/installer:v1.13.9", "v1.36.3")

	for keeps, want := range map[bool]string{
		true:  fmt.Sprintf(config, "one/installer:v1.13.9", "v1.36.3"),
		false: fmt.Sprintf(config, "other/installer:v1.13.9", "v1.36.2"), // the configuration first
	} {
		s := &scope{controlPlane: &v1alpha1.TalosControlPlane{}, worker: &v1alpha1.TalosWorker{}, facts: &talos.Facts{}}
		s.controlPlane.Spec.KubernetesVersion = "v1.36.3"
		s.controlPlane.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic}
		s.controlPlane.Status.Upgrade = &v1alpha1.UpgradeStatus{
			KubernetesVersion: "v1.36.3", Components: []v1alpha1.KubernetesComponent{v1alpha1.ComponentKubelet},
		}
		s.live, s.keepsInstaller = []byte(live), keeps

		err := s.keepVersions([]byte(rendered))
		if diff, differs := machineconfig.Diff([]byte(want), s.want); err != nil || differs != nil || !diff.Equal() ||
			len(s.kept) != 1 {
			t.Errorf("keeps %t: %v, %v, kept %v: differs in %v", keeps, err, differs, s.kept, diff.Changes)
		}
	}
}
