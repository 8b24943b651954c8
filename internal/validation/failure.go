package validation

import (
	"slices"
	"strings"
)

// Failure is one violated rule.
type Failure struct {
	// Field is the path of the field, for example spec.controlPlane.replicas.
	Field string
	// Problem says what is wrong, Remedy what to do. Neither holds secrets.
	Problem, Remedy string
}

// String is one line for a condition.
func (f Failure) String() string {
	s := f.Field + ": " + f.Problem
	if f.Remedy != "" {
		s += "; " + f.Remedy
	}

	return s
}

// Failures are violated rules; they are an error when there are any.
type Failures []Failure

// Err returns nil when nothing failed.
func (f Failures) Err() error {
	if len(f) == 0 {
		return nil
	}

	return f
}

// Error implements error: one stable line, sorted by field.
func (f Failures) Error() string {
	lines := make([]string, 0, len(f))
	for _, one := range f {
		lines = append(lines, one.String())
	}

	slices.Sort(lines)

	return strings.Join(slices.Compact(lines), ". ")
}
