package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRender: commits stand under their scopes, in their order, and those without one come last.
func TestRender(t *testing.T) {
	for name, test := range map[string]struct {
		from     string
		subjects []string
		want     string
	}{
		"nothing": {from: "v0.1.0", subjects: []string{""}, want: "# Changes in v0.2.0 since v0.1.0\n"},
		"grouped": {
			from: "v0.1.0",
			subjects: []string{
				"rollout: reject network changes that cannot be tried", "Initial commit", "cli: print the version",
				"group, talosmachine: only a check that is false rolls a machine back", "rollout: hold: the second one",
				"what is this: a sentence",
			},
			want: `# Changes in v0.2.0 since v0.1.0

## cli

* print the version

## group

* only a check that is false rolls a machine back

## rollout

* reject network changes that cannot be tried
* hold: the second one

## other

* Initial commit
* what is this: a sentence
`,
		},
		"first release": {subjects: []string{"docs: ADR 18"}, want: "# Changes in v0.2.0\n\n## docs\n\n* ADR 18\n"},
	} {
		if diff := cmp.Diff(test.want, render(test.from, "v0.2.0", test.subjects)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
