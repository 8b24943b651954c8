package restore_test

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
)

// wiping returns the required decision while data is wiped.
func (f facts) wiping() *verdict {
	return first(
		when(f.recovered(), goTo(v1alpha1.RestoreRecovering)),
		f.another(), f.forbidden(), f.wipes(), f.pending(), f.open(), goTo(v1alpha1.RestorePreparing),
	)
}

// recovered: the uploaded snapshot has become an etcd, and all existing data belongs to it.
func (f facts) recovered() bool {
	var chosen *restore.Node

	for i := range f.heard {
		if f.heard[i].Name == f.record.Machine {
			chosen = &f.heard[i]
		}
	}

	if chosen == nil || f.record.Tries < 1 || !f.record.Asked || !led(*chosen) {
		return false
	}

	others := those(those(f.heard, holder), not(named(chosen.Name)))
	if len(others) == 0 {
		return true
	}

	for _, m := range chosen.Members {
		if !some(f.heard, func(n restore.Node) bool { return n.MemberID == m.ID }) {
			return false // there is a member that was not observed
		}
	}

	return chosen.Boot == f.record.Boot && !some(others, func(o restore.Node) bool {
		return !knows(*chosen, o) || !knows(o, *chosen)
	})
}

// knows reports whether a has b on its list.
func knows(a, b restore.Node) bool {
	for _, m := range a.Members {
		if m.ID == b.MemberID && m.ID != 0 {
			return true
		}
	}

	return false
}

// marked: a wipe was recorded in the current boot of the node.
func (f facts) marked(n restore.Node) bool {
	w, ok := f.record.Wipes[n.Name]

	return ok && w.Boot == n.Boot
}

// newer: the data may be newer than the recorded data.
func (f facts) newer() bool {
	if f.record.Noted > time.Hour {
		cleared := some(f.listed(), func(n restore.Node) bool { return blank(n) || bare(n) })

		return some(f.listed(), led) || some(f.listed(), holder) && !cleared
	}

	// It is the recorded etcd as long as one node has not rebooted since then.
	same := func(n restore.Node) bool {
		return n.Boot != "" && (n.Boot == f.record.Wipes[n.Name].Boot || holder(n) && n.Boot == f.record.Boots[n.Name])
	}
	other := func(n restore.Node) bool {
		return n.Boot != f.record.Boots[n.Name] && n.Boot != f.record.Wipes[n.Name].Boot
	}

	return some(those(f.listed(), led), other) && !some(f.listed(), same)
}

func (f facts) listed() []restore.Node {
	return those(f.own, func(n restore.Node) bool { return !n.Unlisted })
}

func (f facts) another() *verdict {
	mute, data := called(those(f.own, dumb)), called(those(f.own, holder))
	brief := f.record.Again < 15*time.Second

	return when(f.newer(), first(
		when(len(mute) > 0, hold(evidence, append(mute, data...)...)),
		when(brief, hold(evidence, data...)),
		giveUp(v1alpha1.ReasonEtcdRunsAgain, data...),
	))
}

// exact returns the nodes with sufficient evidence to be wiped.
func (f facts) exact() []restore.Node {
	return those(f.own, func(n restore.Node) bool { return speaks(n) && n.Boot != "" })
}

// forbidden returns the verdict for the first node whose data must not be wiped, or not any more.
func (f facts) forbidden() *verdict {
	for _, n := range those(f.exact(), holder) {
		debris := n.Name == f.record.Machine && f.record.Tries > 0 && !etcd(n)

		switch {
		case !f.options.Discard && !debris:
			return giveUp(v1alpha1.ReasonDataWouldBeLost, n.Name)
		case f.record.Wipes[n.Name].Times >= 5 && !f.marked(n):
			return giveUp(v1alpha1.ReasonRestoreFailed, n.Name)
		}
	}

	return nil
}

// wipes: all data that is not recorded yet is recorded first, then everything that is recorded is wiped.
func (f facts) wipes() *verdict {
	unmarked := called(those(those(f.exact(), holder), not(f.marked)))
	marked := called(those(f.exact(), func(n restore.Node) bool { return f.marked(n) && (holder(n) || ripe(n)) }))

	if len(unmarked)+len(marked) == 0 {
		return nil
	}

	// As long as nothing has been wiped, nothing is wiped before the restore is certain to continue afterwards.
	untouched := true
	for name := range f.record.Wipes {
		untouched = untouched && some(f.own, func(n restore.Node) bool {
			return n.Name == name && speaks(n) && holder(n) && f.marked(n)
		})
	}

	if len(unmarked) > 0 {
		return first(
			when(untouched, f.open()), f.deadEnd(), when(untouched, f.strangers()),
			do(restore.IntendWipe, unmarked...),
		)
	}

	return first(
		when(untouched, f.open()), when(untouched, f.deadEnd()), when(untouched, f.strangers()),
		do(restore.WipeData, marked...),
	)
}

// pending returns the nodes that have not come back from their wipe.
func (f facts) pending() *verdict {
	away := called(those(f.own, func(n restore.Node) bool {
		_, wiped := f.record.Wipes[n.Name]

		return wiped && !bare(n) && (n.Boot == "" || f.marked(n))
	}))

	return when(len(away) > 0, hold(restoring, away...))
}
