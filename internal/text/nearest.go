package text

import (
	"slices"
	"strings"
)

// Nearest returns the candidate that differs least from a misspelled name, if it differs little; empty if none does.
func Nearest(name string, candidates []string) string {
	best, least := "", max(2, len(name)/3)+1

	for _, candidate := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(strings.ToLower(name), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}

	return best
}

// distance is that of Levenshtein.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1

		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}

			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}

	return row[len(b)]
}
