package upgrade_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestExplainHealth: machines that do not respond, and those that are not ready, are named apart.
func TestExplainHealth(t *testing.T) {
	silent, sick := upgrade.Unfit{Machine: "a"}, upgrade.Unfit{Machine: "b", Why: "no network"}

	for name, c := range map[string]struct {
		all  []upgrade.Unfit
		want string
	}{
		"all are ready":    {},
		"does not respond": {[]upgrade.Unfit{silent}, "machines that do not respond: a"},
		"is not ready":     {[]upgrade.Unfit{sick}, "machines that are not ready: b: no network"},
		"both":             {[]upgrade.Unfit{sick, silent}, "machines that do not respond: a; machines that are not ready: b: no network"},
	} {
		if got := upgrade.ExplainHealth(c.all); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
