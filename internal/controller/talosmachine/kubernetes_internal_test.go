package talosmachine

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
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
