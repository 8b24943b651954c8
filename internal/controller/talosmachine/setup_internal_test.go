package talosmachine

import (
	"slices"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestControlPlaneFirst: machines of the control plane are reconciled before workers, each in the order of the list.
func TestControlPlaneFirst(t *testing.T) {
	var machines []v1alpha1.TalosMachine

	for _, name := range []string{"w-0", "cp-1", "w-1", "cp-0", "w-2"} {
		m := v1alpha1.TalosMachine{}
		m.Namespace, m.Name = "clusters", name

		if name[0] == 'w' {
			m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "workers"}
		}

		machines = append(machines, m)
	}

	var got []string
	for _, r := range controlPlaneFirst(machines) {
		got = append(got, r.String())
	}

	want := []string{"clusters/cp-1", "clusters/cp-0", "clusters/w-0", "clusters/w-1", "clusters/w-2"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
