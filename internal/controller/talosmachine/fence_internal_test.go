package talosmachine

import (
	"slices"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestFencingNames: the Node of a returned machine may have the recorded name or the one that the machine reports.
func TestFencingNames(t *testing.T) {
	t.Parallel()

	s := &scope{
		machine: &v1alpha1.TalosMachine{}, facts: &talos.Facts{Hostname: "w", NodeName: "w.example.com"},
		held: &clusterstate.Held{State: &clusterstate.State{}},
	}
	s.machine.Name = "w-0"

	f, err := (&Reconciler{}).fencing(t.Context(), s, clusterstate.GivenUp{Hostname: "w", NodeName: "w.example.org"})
	if got := f.NodeNames(); err != nil || !slices.Equal(got, []string{"w", "w.example.com", "w.example.org"}) {
		t.Errorf("%q, %v", got, err)
	}
}
