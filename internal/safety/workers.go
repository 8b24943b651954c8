package safety

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Candidate is a machine that may be removed or disrupted.
type Candidate struct {
	// Name of the machine.
	Name string
	// Chosen by a user.
	Chosen bool
	// Broken: how bad its state is; 0 is healthy, higher is worse.
	Broken int
	// Outdated: its configuration or version is not the desired one.
	Outdated bool
	// Busy: a disruption of it has begun and has not ended.
	Busy bool
}

// Victims orders machines for a scale-down and returns the first n: chosen ones first, then the most broken, then
// outdated ones, then those with the highest index.
func Victims(candidates []Candidate, n int) []string {
	sorted := slices.Clone(candidates)
	slices.SortStableFunc(sorted, func(a, b Candidate) int {
		return cmp.Or(
			trueFirst(a.Chosen, b.Chosen),
			b.Broken-a.Broken,
			trueFirst(a.Outdated, b.Outdated),
			byIndex(b.Name, a.Name),
		)
	})

	n = min(max(n, 0), len(sorted))
	out := make([]string, 0, n)

	for _, c := range sorted[:n] {
		out = append(out, c.Name)
	}

	return out
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}

	return 1
}

// byIndex compares names by their numeric suffix, so that cp-10 comes after cp-9, then as text.
func byIndex(a, b string) int {
	return cmp.Or(cmp.Compare(index(a), index(b)), strings.Compare(a, b))
}

func index(name string) int {
	digits := name[strings.LastIndexFunc(name, func(r rune) bool { return r < '0' || r > '9' })+1:]

	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}

	return n
}

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
