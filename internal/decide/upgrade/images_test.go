package upgrade_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestJudgePulls: an upgrade begins once each machine has its images, but for as many of a worker group as may fail, and
// for those that are skipped: they neither hold it nor count as failures.
func TestJudgePulls(t *testing.T) {
	done, pulls := upgrade.Pull{Machine: "a", Done: true}, upgrade.Pull{Machine: "b", Group: "w"}
	fails := func(machine, group string) upgrade.Pull {
		return upgrade.Pull{Machine: machine, Group: group, Problem: "no such image"}
	}
	skipped := upgrade.Pull{Machine: "s", Group: "w", Skipped: true}
	mute := upgrade.Pull{Machine: "m", Skipped: true, Why: "m says nothing"}
	refuses := func(machine, group string) upgrade.Pull {
		return upgrade.Pull{Machine: machine, Group: group, Refused: "it would lose zfs"}
	}
	sick := upgrade.Pull{Machine: "n", Problem: "no such image", Skipped: true}

	for name, c := range map[string]struct {
		all             []upgrade.Pull
		may             int
		wait, tolerated string
		failed, refused bool
	}{
		"no machine": {},
		"all have":   {all: []upgrade.Pull{done}},
		"one pulls": {
			all: []upgrade.Pull{done, pulls}, may: 1,
			wait: "before the first machine begins: waiting for b (1 of 2 machines have them); to begin without them, exclude",
		},
		"one fails":      {all: []upgrade.Pull{done, fails("c", "w"), pulls}, wait: "does not begin: c: no such image; the pull", failed: true},
		"one may fail":   {all: []upgrade.Pull{done, fails("c", "w")}, may: 1, tolerated: "tolerates: c: no such image"},
		"skipped":        {all: []upgrade.Pull{done, skipped}},
		"says nothing":   {all: []upgrade.Pull{done, mute}, tolerated: "have the images of Talos v1.13.10 is unknown: m says nothing"},
		"skipped, fails": {all: []upgrade.Pull{sick}, wait: "n: no such image", failed: true},
		"no failures":    {all: []upgrade.Pull{skipped, fails("c", "w")}, may: 1, tolerated: "tolerates: c: no such image"},
		"too many":       {all: []upgrade.Pull{fails("d", "w"), fails("c", "w")}, may: 1, wait: "d: no such image; c: no such image", failed: true},
		"another group":  {all: []upgrade.Pull{fails("d", "w"), fails("c", "v")}, may: 1, tolerated: "d: no such image; c: no such image"},
		"one refuses":    {all: []upgrade.Pull{done, refuses("c", ""), pulls}, wait: "does not begin: c: it would lose zfs; correct", refused: true},
		"one may refuse": {all: []upgrade.Pull{done, refuses("c", "w")}, may: 1, tolerated: "tolerates: c: it would lose zfs"},
		"one of each":    {all: []upgrade.Pull{fails("d", "w"), refuses("c", "w")}, may: 1, wait: "c: it would lose zfs", failed: true, refused: true},
		"control plane":  {all: []upgrade.Pull{fails("c", "")}, may: 1, wait: "c: no such image", failed: true},
		"many are named": {all: []upgrade.Pull{fails("a", ""), fails("b", ""), fails("c", ""), fails("d", "")}, wait: "c: no such image; and 1 more; the", failed: true},
	} {
		got := upgrade.JudgePulls("Talos v1.13.10", c.all, func(string) int { return c.may })
		if !holds(got.Wait, c.wait) || !holds(got.Tolerated, c.tolerated) || got.Failed != c.failed || got.Refused != c.refused {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// holds reports whether a text contains a part; an empty part means that there is no text.
func holds(text, part string) bool {
	return (text == "") == (part == "") && strings.Contains(text, part)
}
