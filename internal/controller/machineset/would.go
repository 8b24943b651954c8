package machineset

import (
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Would lists the changes that would bring the machines of a group in line with its list if the group were not paused.
func Would(deleting bool, entries []v1alpha1.MachineEntry, existing []v1alpha1.TalosMachine) []string {
	var missing, all, out []string

	for i := range existing {
		all = append(all, existing[i].Name)
	}

	for _, e := range entries {
		if !slices.Contains(all, e.Name) {
			missing = append(missing, e.Name)
		}
	}

	if deleting {
		return Acts(out, "delete the TalosMachines", all)
	}

	out = Acts(out, "create the TalosMachines", missing)

	return Acts(out, "take out the TalosMachines", Extra(entries, existing))
}

// Acts appends an act on the named objects, if there are any.
func Acts(to []string, act string, names []string) []string {
	if len(names) == 0 {
		return to
	}

	return append(to, act+" "+strings.Join(names, ", "))
}
