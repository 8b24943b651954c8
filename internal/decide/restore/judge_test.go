package restore_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/test/oracle"
)

// truth returns the state that the oracle judges by. Remains of an attempt are no etcd.
func (w *world) truth() oracle.Truth {
	var t oracle.Truth

	ids := map[string]uint64{}

	for cluster, members := range w.members {
		ids[cluster] = uint64(len(ids) + 1)
		e := oracle.Etcd{ID: ids[cluster]}

		for _, name := range members {
			m := w.machine(name)
			e.Members = append(e.Members, oracle.Member{ID: id(name), Learner: m != nil && m.data == cluster && m.learner > 0})
		}

		t.Etcds = append(t.Etcds, e)
	}

	for _, m := range w.machines {
		t.Disks = append(t.Disks, oracle.Disk{
			Machine: m.name, Etcd: ids[m.data], Member: id(m.name), Serving: m.up() && m.sound(),
			Known: !slices.Contains(w.options.Lost, m.name),
		})
	}

	return t
}

// check compares each decision with the real state.
func (w *world) check(d restore.Decision, nodes []restore.Node) {
	switch d.Action {
	case restore.IntendWipe, restore.WipeData:
		w.checkWipe(d, nodes)
	case restore.Upload:
		w.checkUpload(d.Machines[0])
	case restore.Finish:
		w.checkFinish()
	case restore.Stop:
		w.checkStop(d)
	case restore.Save:
		if d.Required && w.options.Save == v1alpha1.LastSnapshotTry {
			w.fail("a copy is required where it was to be tried")
		}
	case restore.Wait, restore.Next, restore.Choose, restore.Prove:
	}
}

func (w *world) checkWipe(d restore.Decision, nodes []restore.Node) {
	untouched := w.untouched(nodes)

	if untouched {
		w.checkWayOn(d)
		w.checkUnlisted(d)
	}

	for _, name := range d.Machines {
		m := w.machine(name)

		switch {
		case !w.faults && w.quorum(m.data) && w.unknown():
			w.fail("%s serves, no machine is in a boot that was recorded, and it is wiped", name)
		case w.old && w.kept.Step != "" && !w.saved && w.quorum(m.data):
			w.fail("%s serves %s, of which there is no copy, and is wiped", name, m.data)
		case m.data == "old" && !w.options.Discard:
			w.fail("%s is wiped without leave", name)
		case m.data == "old" && w.options.Save == v1alpha1.LastSnapshotRequire && !w.saved:
			w.fail("%s is wiped before there is a copy", name)
		case m.data == "old" && untouched && w.options.Save == "" && w.led && !w.saved && !w.old:
			w.fail("%s is wiped without a copy of an etcd that had quorum", name)
		case m.starts > 0 && !w.old:
			w.fail("%s is wiped while its etcd starts", name)
		case m.unlisted:
			w.fail("%s is wiped, and is not listed", name)
		}
	}
}

// unknown: an etcd has quorum, and every responding machine has booted since it was recorded.
func (w *world) unknown() bool {
	serves := false

	for _, m := range w.machines {
		if m.down > 0 || m.dead || m.maintenance || m.unlisted {
			continue
		}

		boot := fmt.Sprintf("%s-%d", m.name, m.boot)
		if boot == w.record.Wipes[m.name].Boot || m.data != "" && boot == w.record.Boots[m.name] {
			return false
		}

		serves = serves || m.up() && m.sound() && w.quorum(m.data)
	}

	return serves
}

// untouched: every node whose wipe was recorded proves that it has not begun. A node that does not may be in progress.
func (w *world) untouched(nodes []restore.Node) bool {
	for name, wipe := range w.record.Wipes {
		if !some(nodes, func(n restore.Node) bool { return n.Name == name && holder(n) && n.Boot == wipe.Boot }) {
			return false
		}
	}

	return true
}

// checkUnlisted: no first wipe begins while an unlisted machine may continue to run.
func (w *world) checkUnlisted(d restore.Decision) {
	for _, m := range w.machines {
		if m.unlisted && m.data != "" {
			w.fail("%v are to be wiped while %s, which is not listed, has %s", d.Machines, m.name, m.data)
		}
	}
}

// checkWayOn: no wipe begins while a node is unreachable, or if the restore could not continue afterwards.
func (w *world) checkWayOn(d restore.Decision) {
	for _, m := range w.machines {
		silent := m.down > 0 || m.dead

		switch {
		case m.unlisted || slices.Contains(w.options.Lost, m.name):
		case silent:
			w.fail("%v are to be wiped while %s is silent", d.Machines, m.name)
		case m.leaving && slices.Contains(d.Machines, m.name) && (m.config == restore.ConfigSettled && m.kind == "init" ||
			m.config == restore.ConfigStaged && m.nextKind == "init"):
			w.fail("%v are to be wiped while %s would found an etcd of its own", d.Machines, m.name)
		case m.maintenance || m.leaving:
		case m.config == restore.ConfigTried, m.config == restore.ConfigStaged && m.data == "":
			w.fail("%v are to be wiped while %s is %s, and then it does not go on", d.Machines, m.name, m.config)
		case m.unsynced:
			w.fail("%v are to be wiped while the clock of %s is not in sync", d.Machines, m.name)
		case m.config == restore.ConfigSettled && m.kind != "controlplane",
			m.config == restore.ConfigStaged && m.nextKind != "controlplane":
			w.fail("%v are to be wiped while %s is %q and becomes %q", d.Machines, m.name, m.kind, m.nextKind)
		}
	}
}

func (w *world) checkUpload(name string) {
	found := oracle.Act{Kind: oracle.Found, Machine: name, Word: true}
	for _, v := range oracle.Judge(w.truth(), found, nil) {
		w.fail("%s", v)
	}

	for _, m := range w.machines {
		lost := slices.Contains(w.options.Lost, m.name)

		switch {
		case m.name != name && m.data != "" && !lost:
			w.fail("the snapshot goes to %s, and %s holds %s", name, m.name, m.data)
		case m.name == name && (m.unsynced && m.config == restore.ConfigUnread || m.config != restore.ConfigSettled):
			w.fail("the snapshot goes to %s, whose config is %s", name, m.config)
		}
	}
}

func (w *world) checkFinish() {
	for _, m := range w.machines {
		switch {
		case m.dead, (m.leaving || m.unlisted) && m.data == "":
		case m.data != w.machines[0].data || !strings.HasPrefix(m.data, "new"):
			w.fail("complete, and the nodes hold %q and %q", w.machines[0].data, m.data)
		case m.learner > 0:
			w.fail("complete, and %s does not vote", m.name)
		}
	}
}

// checkStop: a restore ends permanently only for a reason that a user has to decide about.
func (w *world) checkStop(d restore.Decision) {
	is := func(holds func(m *machine) bool) bool { return slices.ContainsFunc(w.machines, holds) }
	often := w.record.Tries >= restore.MaxTries

	for _, wipe := range w.record.Wipes {
		often = often || wipe.Times >= restore.MaxWipes
	}

	why := map[string]bool{
		v1alpha1.ReasonDataWouldBeLost: !w.options.Discard && is(func(m *machine) bool { return m.data != "" && !m.unlisted }),
		v1alpha1.ReasonRestoreRefused:  w.record.Step == "" && is(func(m *machine) bool { return m.kind == "init" }),
		v1alpha1.ReasonEtcdRunsAgain:   is(func(m *machine) bool { return m.data != "" }) && (w.faults || w.old || w.unknown()),
		v1alpha1.ReasonRestoreFailed:   often,
	}
	if !why[d.Reason] {
		w.fail("stopped without a reason: %s: %s", d.Reason, d.Message)
	}
}
