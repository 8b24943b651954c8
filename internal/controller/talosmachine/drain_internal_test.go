package talosmachine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// TestNodeUnclear: a machine of which it is unknown which Node is its own does not count as drained, unless a user chose
// to go on without.
func TestNodeUnclear(t *testing.T) {
	t.Parallel()

	s := &scope{machine: &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "w-0"}}}

	for name, c := range map[string]struct {
		late      bool
		onTimeout v1alpha1.DrainTimeout
		want      string
	}{
		"in time":               {onTimeout: v1alpha1.DrainForce, want: v1alpha1.ReasonDraining},
		"late, Hold":            {late: true, onTimeout: v1alpha1.DrainHold, want: v1alpha1.ReasonDrainHeld},
		"late, a user's choice": {late: true, onTimeout: v1alpha1.DrainSkip},
		"late, Force":           {late: true, onTimeout: v1alpha1.DrainForce, want: v1alpha1.ReasonDrainHeld},
	} {
		for next, says := range map[string]string{"": "delete the named Node", "repair it": "why; repair it, or set"} {
			err := s.nodeUnclear(&workload.NodeUnclearError{Why: "why", Next: next}, c.late, v1alpha1.DrainOptions{
				OnTimeout: c.onTimeout, Timeout: &metav1.Duration{Duration: time.Minute},
			})
			if failure.Reason(err) != c.want || c.want != "" && !strings.Contains(failure.Message(err), "w-0") {
				t.Errorf("%s: %v", name, err)
			}

			held := failure.Message(err)
			if c.want == v1alpha1.ReasonDrainHeld && (!strings.Contains(held, "drain.onTimeout to Skip") ||
				!strings.Contains(held, says)) {
				t.Errorf("%s: %s", name, held)
			}
		}
	}
}

// TestKubeletName: what the node reports now comes before what it reported, and the hostname is never taken for it.
func TestKubeletName(t *testing.T) {
	t.Parallel()

	s := &scope{machine: &v1alpha1.TalosMachine{}}
	s.machine.Status.Hostname = "w-0"

	if name := s.kubeletName(); name != "" || s.nodeRef().Name != "w-0" {
		t.Errorf("drains %q, uncordons %q", name, s.nodeRef().Name)
	}

	s.machine.Status.NodeName = "w-0.example.org"
	s.facts = &talos.Facts{Hostname: "w-0"}

	if name := s.kubeletName(); name != "w-0.example.org" {
		t.Errorf("it drains %q", name)
	}

	s.facts.NodeName, s.facts.BootID = "w-0.example.com", "boot"

	if ref := s.nodeRef(); s.kubeletName() != "w-0.example.com" || ref.Name != s.kubeletName() || ref.BootID != "boot" {
		t.Errorf("it drains %q, %+v", s.kubeletName(), ref)
	}
}
