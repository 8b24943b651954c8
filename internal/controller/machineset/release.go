package machineset

import (
	"cmp"
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Renamed returns the machines of a group whose name is no longer listed while another listed name has the same address
// or the same Machine. Their nodes continue to run. Machines that have begun to leave etcd, or to be wiped, are
// excluded: that has to finish first.
func Renamed(entries []v1alpha1.MachineEntry, existing []v1alpha1.TalosMachine) []string {
	var out []string

	for i := range existing {
		m := &existing[i]
		if listed(entries, m.Name) || isLeaving(m) {
			continue
		}

		address := cmp.Or(m.Status.Address, m.Spec.Address)

		if slices.ContainsFunc(entries, func(e v1alpha1.MachineEntry) bool {
			return e.Address != "" && e.Address == address ||
				e.MachineRef != nil && m.Spec.MachineRef != nil && e.MachineRef.Name == m.Spec.MachineRef.Name
		}) {
			out = append(out, m.Name)
		}
	}

	return out
}

func listed(entries []v1alpha1.MachineEntry, name string) bool {
	return slices.ContainsFunc(entries, func(e v1alpha1.MachineEntry) bool { return e.Name == name })
}

func isLeaving(m *v1alpha1.TalosMachine) bool {
	i := m.Status.Intent

	return i != nil && (i.Step == v1alpha1.StepLeave || i.Step == v1alpha1.StepReset)
}
