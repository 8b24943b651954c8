package upgrade_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestJudgeHealth: a worker that is not ready holds an upgrade, unless its group tolerates it; one of the control plane
// is named.
func TestJudgeHealth(t *testing.T) {
	worker := func(name, group string) upgrade.Sick {
		return upgrade.Sick{Machine: name, Group: group, Why: "no network"}
	}

	for name, c := range map[string]struct {
		all             []upgrade.Sick
		may             int
		wait, obstacles string
	}{
		"all are ready":   {},
		"a worker is not": {[]upgrade.Sick{worker("a", "w")}, 0, "Talos v1.13.10 does not begin while machines are not ready: a: no network; repair", ""},
		"it may be":       {[]upgrade.Sick{worker("a", "w"), worker("b", "v")}, 1, "", "machines that are not ready: a: no network; b: no network"},
		"too many":        {[]upgrade.Sick{worker("a", "w"), worker("b", "w"), worker("c", "v")}, 1, "ready: a: no network; b: no network; repair", "ready: c: no network"},
		"control plane":   {[]upgrade.Sick{worker("a", "")}, 0, "", "machines that are not ready: a: no network"},
	} {
		wait, obstacles := upgrade.JudgeHealth("Talos v1.13.10", c.all, func(string) int { return c.may })
		if !holds(wait, c.wait) || !holds(obstacles, c.obstacles) {
			t.Errorf("%s: %q, %q", name, wait, obstacles)
		}
	}
}
