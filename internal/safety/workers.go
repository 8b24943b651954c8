package safety

import (
	"cmp"
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
