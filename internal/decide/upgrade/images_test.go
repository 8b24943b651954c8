package upgrade_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestJudgePulls: an upgrade begins once each machine has its images, but for as many of a worker group as may fail.
func TestJudgePulls(t *testing.T) {
	done, pulls := upgrade.Pull{Machine: "a", Done: true}, upgrade.Pull{Machine: "b", Group: "w"}
	fails := func(machine, group string) upgrade.Pull {
		return upgrade.Pull{Machine: machine, Group: group, Problem: "no such image"}
	}
	silent := upgrade.Pull{Machine: "s", Group: "w", Problem: "s does not respond"}

	for name, c := range map[string]struct {
		all             []upgrade.Pull
		may             int
		wait, tolerated string
		failed          bool
	}{
		"no machine": {},
		"all have":   {all: []upgrade.Pull{done}},
		"one pulls": {
			all: []upgrade.Pull{done, pulls}, may: 1,
			wait: "are pulled before the first machine begins: waiting for b (1 of 2 machines have them)",
		},
		"one fails":      {all: []upgrade.Pull{done, fails("c", "w"), pulls}, wait: "so none begins: c: no such image; it is tried", failed: true},
		"one may fail":   {all: []upgrade.Pull{done, fails("c", "w")}, may: 1, tolerated: "c: no such image"},
		"one is silent":  {all: []upgrade.Pull{silent}, wait: "none begins: s does not respond; it is", failed: true},
		"one may be":     {all: []upgrade.Pull{silent}, may: 1, tolerated: "tolerates: s does not respond"},
		"too many":       {all: []upgrade.Pull{silent, fails("c", "w")}, may: 1, wait: "s does not respond; c: no such image", failed: true},
		"another group":  {all: []upgrade.Pull{silent, fails("c", "v")}, may: 1, tolerated: "s does not respond; c: no such image"},
		"control plane":  {all: []upgrade.Pull{fails("c", "")}, may: 1, wait: "c: no such image", failed: true},
		"many are named": {all: []upgrade.Pull{fails("a", ""), fails("b", ""), fails("c", ""), fails("d", "")}, wait: "c: no such image; and 1 more; it", failed: true},
	} {
		got := upgrade.JudgePulls("Talos v1.13.10", c.all, func(string) int { return c.may })
		if !holds(got.Wait, c.wait) || !holds(got.Tolerated, c.tolerated) || got.Failed != c.failed {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// holds reports whether a text contains a part; an empty part means that there is no text.
func holds(text, part string) bool {
	return (text == "") == (part == "") && strings.Contains(text, part)
}
