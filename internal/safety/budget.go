package safety

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Budget returns how many machines of a group of the given size may be unavailable at once. The limit is a number, or a
// percentage of the group, which is rounded down to at least one. It returns one if no limit is set, and for an invalid
// limit, which the schema rejects: one is always safe.
func Budget(limit *intstr.IntOrString, size int) int {
	if limit == nil {
		return 1
	}

	n, err := intstr.GetScaledValueFromIntOrPercent(limit, size, false)
	if err != nil {
		return 1
	}

	return max(n, 1)
}

// NextWorkers selects, from the outdated workers, those that may be disrupted now. Broken and busy machines use up the
// budget, whatever caused their state. An outdated machine that is broken needs no budget, because it is already
// unavailable. The first machine of a rollout, the canary, is disrupted alone: others follow once done reports that one
// outdated machine has been completed.
func NextWorkers(group []Candidate, budget int, done bool) []string {
	room := budget
	if !done {
		room = 1
	}

	for _, c := range group {
		if c.Broken > 0 || c.Busy {
			room--
		}
	}

	sorted := slices.Clone(group)
	slices.SortStableFunc(sorted, func(a, b Candidate) int {
		return cmp.Or(b.Broken-a.Broken, byIndex(a.Name, b.Name))
	})

	var out []string

	for _, c := range sorted {
		switch {
		case !c.Outdated || c.Busy:
		case c.Broken > 0:
			// Disrupt at most one broken machine at a time: a configuration that breaks machines must not spread to the next
			// one.
			if len(out) == 0 && room >= 0 {
				out = append(out, c.Name)
			}
		case room > 0:
			out = append(out, c.Name)
			room--
		}
	}

	return out
}
