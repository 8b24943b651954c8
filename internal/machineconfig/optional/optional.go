// Package optional has what optional fields of specs have in common on their way into a configuration: what a machine
// inherits from its group, and what counts as absent.
package optional

import (
	"cmp"
	"slices"
)

// Either returns the field of a machine, or that of its group where the machine has none. Both may be nil.
func Either[T any](group, machine *T) *T {
	if machine != nil {
		return machine
	}

	return group
}

// TrueOrNil returns nil for false, which Talos does not distinguish from an absent field.
func TrueOrNil(b *bool) *bool {
	if b == nil || !*b {
		return nil
	}

	return b
}

// Merge returns the entries of a group, each replaced in its place by that of the machine with the same name. Further
// entries of the machine follow.
func Merge[T any](group, machine []T, name func(T) string) []T {
	out := slices.Clone(group)

	for _, own := range machine {
		at := slices.IndexFunc(out, func(one T) bool { return name(one) == name(own) })
		if at < 0 {
			out = append(out, own)
		} else {
			out[at] = own
		}
	}

	return out
}

// MergeSorted is Merge, sorted by name: the order of a configuration must not depend on who has what.
func MergeSorted[T any](group, machine []T, name func(T) string) []T {
	out := append(Without(group, machine, name), machine...)
	slices.SortStableFunc(out, func(a, b T) int { return cmp.Compare(name(a), name(b)) })

	return out
}

// Without returns the entries of a group without those that the machine replaces.
func Without[T any](group, machine []T, name func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(group), func(one T) bool {
		return slices.ContainsFunc(machine, func(own T) bool { return name(own) == name(one) })
	})
}
