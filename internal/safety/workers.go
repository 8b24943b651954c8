package safety

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// Budget is how many machines of a group may be unavailable at once: a number, or a percentage of the group.
type Budget struct {
	// Number of machines, if Percent is 0.
	Number int
	// Percent of the group, 1 to 100. The result is rounded down to at least one machine.
	Percent int
}

// ParseBudget parses "2" or "25%". An empty text means one machine. Zero and more than 100 percent are errors.
func ParseBudget(text string) (Budget, error) {
	if text == "" {
		return Budget{Number: 1}, nil
	}

	digits, percent := strings.CutSuffix(text, "%")

	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || percent && n > 100 {
		return Budget{}, fmt.Errorf("%q is no budget: write a number of machines such as 2, or a part such as 25%%", text)
	}

	if percent {
		return Budget{Percent: n}, nil
	}

	return Budget{Number: n}, nil
}

// Of returns the number of machines for a group of the given size.
func (b Budget) Of(size int) int {
	if b.Percent == 0 {
		return max(b.Number, 1)
	}

	return max(size*b.Percent/100, 1)
}

// NextWorkers selects, from the outdated workers, those that may be disrupted now. Broken and busy machines use up the
// budget, whatever caused their state. An outdated machine that is broken needs no budget, because it is already
// unavailable. The first machine of a rollout, the canary, is disrupted alone: others follow once done reports that one
// outdated machine has been completed.
func NextWorkers(group []Candidate, b Budget, done bool) []string {
	room := b.Of(len(group))
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
