package optional_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

type entry struct{ Name, Value string }

func nameOf(e entry) string { return e.Name }

// TestLists: entries of a machine replace those of the group with the same names, and the group keeps its own.
func TestLists(t *testing.T) {
	group := []entry{{"c", "group"}, {"b", "group"}}
	machine := []entry{{"b", "machine"}, {"a", "machine"}}

	for name, tt := range map[string]struct{ got, want []entry }{
		"in place": {optional.Merge(group, machine, nameOf), []entry{{"c", "group"}, {"b", "machine"}, {"a", "machine"}}},
		"sorted":   {optional.MergeSorted(group, machine, nameOf), []entry{{"a", "machine"}, {"b", "machine"}, {"c", "group"}}},
		"without":  {optional.Without(group, machine, nameOf), []entry{{"c", "group"}}},
		"group":    {group, []entry{{"c", "group"}, {"b", "group"}}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestFields: what the machine has counts, and false is like nothing.
func TestFields(t *testing.T) {
	yes, no := true, false

	for name, tt := range map[string]struct{ got, want *bool }{
		"machine": {optional.Either(&yes, &no), &no}, "group": {optional.Either(&yes, nil), &yes},
		"true": {optional.TrueOrNil(&yes), &yes}, "false": {optional.TrueOrNil(&no), nil}, "nothing": {optional.TrueOrNil(nil), nil},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", name, tt.got, tt.want)
		}
	}
}
