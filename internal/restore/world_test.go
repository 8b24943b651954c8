package restore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/plan"
	"github.com/talos-operator/talos-operator/internal/restore"
)

// machine is a control-plane node of the modelled estate.
type machine struct {
	name        string
	boot        int
	down        int // turns until it answers again
	maintenance bool
	// data names the etcd cluster whose data it has; empty without.
	data string
	// failed: etcd cannot start from what it has, and says so. hung: it tries for ever.
	failed, hung bool
	// promised: a snapshot is there, and etcd is to start from it in a moment; a reboot forgets that.
	uploaded, promised bool
	resetting          bool
	// config is which one the next boot takes.
	config restore.Config
	// leaving: its object is being deleted, so nobody gives it a config.
	leaving bool
	// unlisted: it had a config once, and the objects know nothing of it.
	unlisted bool
}

// world is an estate with a restore that works on it.
type world struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	machines []*machine
	options  restore.Options
	record   restore.Record
	log      []string
	// faults happen while true.
	faults bool
	// uploads counts clusters that were founded from the snapshot.
	founded int
	// damaged is how many snapshots arrive damaged.
	damaged int
	saved   bool
	// starting is the boot that Starting of the record belongs to.
	starting string
	// members of each etcd cluster, those whose data is gone too: nobody takes them off its list.
	members map[string][]string
	// kept is the record as it was in the turn keepAt: a backup of the management plane. old: it has come back.
	kept    restore.Record
	keepAt  int
	old     bool
	ended   restore.Action
	done    bool
	stopped bool
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: "+format+"\n%s", slices.Concat([]any{w.seed}, args, []any{strings.Join(w.log, "\n")})...)
}

// newWorld has three machines (or one, or five): running, dead, empty or fresh.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // a test
		record: restore.Record{Wipes: map[string]restore.Wipe{}, Boots: map[string]string{}}, faults: true,
		members: map[string][]string{},
	}
	w.keepAt = w.rng.IntN(40)

	kind := w.rng.IntN(4)

	for i := range []int{1, 3, 5}[w.rng.IntN(3)] {
		m := &machine{
			name: fmt.Sprintf("cp-%d", i), boot: 1, leaving: i > 0 && w.rng.IntN(6) == 0, config: restore.ConfigSettled,
		}

		switch {
		case kind == 0, kind == 3 && w.rng.IntN(2) == 0:
			m.data = "old"
		case kind == 1:
			m.maintenance = true
		}

		w.machines = append(w.machines, m)
	}

	if w.rng.IntN(4) == 0 {
		m := &machine{name: "cp-7", boot: 1, unlisted: true, config: restore.ConfigSettled}
		if m.data = []string{"", "old"}[w.rng.IntN(2)]; w.rng.IntN(3) == 0 {
			m.down = 1 + w.rng.IntN(400)
		}

		w.machines = append(w.machines, m)
	}

	for _, m := range w.machines {
		w.takes(m, m.data)
	}

	w.options.Discard = w.rng.IntN(4) > 0
	w.options.Save = []v1alpha1.LastSnapshotPolicy{"", "Require", "Try", "Skip"}[w.rng.IntN(4)]
	w.damaged = max(0, w.rng.IntN(6)-3)
	w.keep()

	return w
}

func (w *world) holders(cluster string) []*machine {
	return slices.DeleteFunc(slices.Clone(w.machines), func(m *machine) bool { return m.data != cluster || m.failed || m.hung })
}

// takes: the machine has the data of a cluster, and is a member of it.
func (w *world) takes(m *machine, cluster string) {
	if m.data = cluster; cluster != "" && !slices.Contains(w.members[cluster], m.name) {
		w.members[cluster] = append(w.members[cluster], m.name)
	}
}

// quorum: a majority of the members of a cluster runs.
func (w *world) quorum(cluster string) bool {
	up := 0

	for _, m := range w.holders(cluster) {
		if m.down == 0 && !m.resetting && !m.maintenance {
			up++
		}
	}

	return up > len(w.members[cluster])/2
}

func id(name string) uint64 { return uint64(name[len(name)-1]) + 1 }

func (w *world) evidence() []restore.Node {
	var out []restore.Node

	for _, m := range w.machines {
		n := restore.Node{Node: plan.Node{Name: m.name, Address: m.name, Unlisted: m.unlisted}, Leaving: m.leaving}

		switch {
		case m.down > 0:
		case m.maintenance:
			n.Answer = plan.AnswerMaintenance
		default:
			n.Answer, n.Boot = plan.AnswerMember, fmt.Sprintf("%s-%d", m.name, m.boot)
			n.Type, n.NextType, n.TimeSynced = "controlplane", "controlplane", true
			n.Config = m.config
			n.EtcdData = plan.DataAbsent
			n.EtcdWaiting = m.data == "" && !m.promised && !m.resetting
			n.EtcdFailed = m.failed

			if m.data != "" {
				n.EtcdData = plan.DataPresent
			}

			if w.faults && w.rng.IntN(15) == 0 {
				n.Boot, n.Config, n.TimeSynced = "", restore.ConfigUnread, false // it does not tell everything
			}

			if m.data != "" && !m.failed && !m.hung && !m.resetting {
				n.MemberID = id(m.name)

				// Without a leader it gives no list.
				if w.quorum(m.data) {
					n.Leader = id(w.holders(m.data)[0].name)

					for _, name := range w.members[m.data] {
						n.Members = append(n.Members, plan.Member{ID: id(name), Name: name})
					}
				} else {
					n.NoLeader, n.EtcdRuns = true, true
				}
			}
		}

		out = append(out, n)
	}

	return out
}

// live lets time pass: nodes come back, reset, start etcd, join, and break.
func (w *world) live() {
	for _, m := range w.machines {
		switch {
		case m.down > 0:
			m.down--

			continue
		case m.resetting:
			m.resetting, m.data, m.failed, m.hung, m.uploaded, m.promised = false, "", false, false, false, false
			m.boots()
			m.down = w.rng.IntN(3)
		case m.maintenance && !m.leaving && !m.unlisted && w.rng.IntN(2) == 0:
			m.maintenance = false // the control plane gives it its config
			m.boots()
		case m.promised:
			w.found(m)
		case m.data == "" && !m.maintenance:
			w.join(m)
		}

		if w.faults && w.rng.IntN(25) == 0 {
			w.breaks(m)
		}
	}
}

// boots: the boot takes what is on the disk.
func (m *machine) boots() { m.boot, m.config = m.boot+1, restore.ConfigSettled }

func (w *world) found(m *machine) {
	m.promised, m.uploaded = false, false

	if w.damaged > 0 {
		w.damaged--
		m.data, m.failed = "debris", true

		return
	}

	w.founded++
	w.takes(m, fmt.Sprintf("new-%d", w.founded))
	w.note("%s runs %s", m.name, m.data)
}

// join is what Talos does on its own: an empty node looks for a cluster and joins it.
func (w *world) join(m *machine) {
	for _, o := range w.machines {
		if o != m && o.data != "" && o.down == 0 && !o.failed && !o.hung && !o.resetting && w.quorum(o.data) {
			w.takes(m, o.data)
			w.note("%s joins %s", m.name, m.data)

			return
		}
	}
}

func (w *world) breaks(m *machine) {
	switch w.rng.IntN(5) {
	case 0, 1:
		m.down = 1 + w.rng.IntN(8)
		m.boots()

		if m.promised && w.rng.IntN(2) == 0 {
			m.data, m.hung = "debris", true // half of a database
		}

		m.promised = false
		w.note("%s loses power", m.name)
	case 2:
		m.down = 1 + w.rng.IntN(8) // frozen: it comes back as it was
		w.note("%s is silent", m.name)
	case 3:
		m.config = []restore.Config{restore.ConfigSettled, restore.ConfigStaged, restore.ConfigTried}[w.rng.IntN(3)]
	case 4:
		if strings.HasPrefix(m.data, "new") || w.rng.IntN(3) > 0 {
			return
		}

		m.data, m.failed, m.hung, m.uploaded, m.promised = "", false, false, false, false
		m.boots()
		w.note("%s has a new disk", m.name)
		m.maintenance = true
	}
}

func (w *world) machine(name string) *machine {
	for _, m := range w.machines {
		if m.name == name {
			return m
		}
	}

	return nil
}

// turn does what the controller does, or dies on the way.
func (w *world) turn() {
	nodes := w.evidence()
	w.watch(nodes)
	d := restore.Decide(w.options, w.record, nodes)
	w.check(d, nodes)
	w.ended = d.Action
	w.record.Age += 5 * time.Second
	w.record.Noted += 5 * time.Second

	if d.Action != restore.Wait {
		w.note("%s: %d %v %s", w.record.Step, d.Action, d.Machines, d.Message)
	}

	dies := w.faults && w.rng.IntN(12) == 0

	switch d.Action {
	case restore.Wait:
	case restore.Next:
		if w.record.Step == "" {
			w.noteBoots(nodes)
		}

		w.enter(d.Step)
	case restore.Save:
		w.save(d, dies)

		if w.record.Saved {
			w.noteBoots(nodes)
		}
	case restore.IntendWipe:
		w.record.Noted = 0

		for _, name := range d.Machines {
			old := w.record.Wipes[name]
			w.record.Wipes[name] = restore.Wipe{Boot: fmt.Sprintf("%s-%d", name, w.machine(name).boot), Times: old.Times + 1}
		}
	case restore.WipeData:
		for _, name := range d.Machines {
			if m := w.machine(name); m.down == 0 && !dies {
				m.resetting = true
			}
		}
	case restore.Choose:
		w.record.Machine = d.Machines[0]
		w.record.Boot = fmt.Sprintf("%s-%d", d.Machines[0], w.machine(d.Machines[0]).boot)
		w.record.Tries++
		w.record.Noted = 0
		w.record.Asked, w.record.Starting, w.starting = false, 0, ""
		w.enter(v1alpha1.RestoreUploading)
	case restore.Upload:
		w.upload(w.machine(d.Machines[0]), dies)
	case restore.Prove:
		w.enter(v1alpha1.RestoreJoining)
	case restore.Finish:
		w.done = true
	case restore.Stop:
		w.stopped = true
	}
}

// watch keeps what the controller records of what it sees.
func (w *world) watch(nodes []restore.Node) {
	switch w.record.Step {
	case v1alpha1.RestoreWiping:
		if w.record.Again += 5 * time.Second; !restore.RunsAgain(w.record, nodes) {
			w.record.Again = 0
		}
	case "", v1alpha1.RestorePreflight, v1alpha1.RestoreSaving:
		if restore.HasQuorum(nodes) {
			w.record.HadQuorum, w.record.Leaderless = true, 0
		} else if restore.Leaderless(nodes) {
			w.record.Leaderless += 5 * time.Second
		}
	case v1alpha1.RestoreRecovering:
		for _, n := range nodes {
			if n.Name != w.record.Machine || n.EtcdData != plan.DataPresent || n.Serves() || n.Boot == "" {
				continue
			}

			if w.record.Starting += 5 * time.Second; n.Boot != w.starting {
				w.record.Starting, w.starting = 0, n.Boot
			}
		}
	default:
	}
}

// noteBoots keeps the boots of the nodes with data.
func (w *world) noteBoots(nodes []restore.Node) {
	w.record.Boots, w.record.Noted = map[string]string{}, 0

	for _, n := range nodes {
		if n.EtcdData == plan.DataPresent {
			w.record.Boots[n.Name] = n.Boot
		}
	}
}

// keep makes a backup of the management plane.
func (w *world) keep() {
	w.kept = w.record
	w.kept.Wipes, w.kept.Boots = maps.Clone(w.record.Wipes), maps.Clone(w.record.Boots)
}

// comesBack: weeks later the record of a restore that is complete is what it was in the middle of it.
func (w *world) comesBack() {
	for _, m := range w.machines {
		m.unlisted = false // by now it is

		if w.rng.IntN(2) == 0 {
			m.boots()
		}
	}

	const weeks = 300 * time.Hour

	w.note("the record comes back as it was in the step %q", w.kept.Step)
	w.record, w.saved, w.old, w.done, w.stopped, w.faults = w.kept, false, true, false, false, true
	w.record.Age += weeks
	w.record.Noted += weeks
}

// forget: a person finds the machines that are not listed, wipes them, and says so; at first only those that have not
// joined what was restored.
func (w *world) forget(all bool) {
	w.machines = slices.DeleteFunc(w.machines, func(m *machine) bool {
		return m.unlisted && (all || !strings.HasPrefix(m.data, "new"))
	})
}

func (w *world) enter(step v1alpha1.RestoreStep) { w.record.Step = step }

func (w *world) save(d restore.Decision, dies bool) {
	if m := w.machine(d.Machines[0]); dies || m.down > 0 || w.faults && w.rng.IntN(3) == 0 {
		w.record.SaveFailures++

		return
	}

	w.saved, w.record.Saved = true, true
}

func (w *world) upload(m *machine, dies bool) {
	if m.down > 0 || m.resetting {
		return
	}

	if m.promised {
		w.fail("the snapshot of %s is exchanged under an etcd that reads it", m.name)
	}

	m.uploaded = true
	w.record.Asked, w.record.Age = true, 0

	if dies && w.rng.IntN(2) == 0 {
		return // before the bootstrap
	}

	if m.data == "" {
		m.promised = true
	}

	if !dies {
		w.enter(v1alpha1.RestoreRecovering)
	}
}

// check holds each decision against what is really there.
func (w *world) check(d restore.Decision, nodes []restore.Node) {
	olds := slices.ContainsFunc(w.machines, func(m *machine) bool { return m.data == "old" })

	switch d.Action {
	case restore.IntendWipe, restore.WipeData:
		w.checkWayOn(d)
		w.checkUnlisted(d)

		for _, name := range d.Machines {
			m := w.machine(name)
			if w.old && w.kept.Step != "" && !w.saved && w.quorum(m.data) {
				w.fail("%s serves %s, of which there is no copy, and is wiped", name, m.data)
			}

			if m.data == "old" && !w.options.Discard {
				w.fail("%s is wiped without leave", name)
			}

			if m.data == "old" && w.options.Save == v1alpha1.LastSnapshotRequire && !w.saved {
				w.fail("%s is wiped before there is a copy", name)
			}
		}
	case restore.Upload:
		for _, m := range w.machines {
			if m.name != d.Machines[0] && m.data != "" && (m.down == 0 || m.unlisted) {
				w.fail("the snapshot goes to %s, and %s holds %s", d.Machines[0], m.name, m.data)
			}
		}
	case restore.Finish:
		for _, m := range w.machines {
			if (m.leaving || m.unlisted) && m.data == "" {
				continue
			}

			if m.data != w.machines[0].data || !strings.HasPrefix(m.data, "new") {
				w.fail("complete, and the nodes hold %q and %q", w.machines[0].data, m.data)
			}
		}
	case restore.Stop:
		if !olds && !w.old && w.record.Step == "" && !slices.ContainsFunc(nodes, func(n restore.Node) bool { return n.Type == "init" }) {
			w.fail("refused without a reason: %s", d.Message)
		}
	case restore.Wait, restore.Next, restore.Save, restore.Choose, restore.Prove:
	}
}

// checkUnlisted: nothing is wiped for the first time while a machine that is not listed may run on.
func (w *world) checkUnlisted(d restore.Decision) {
	for _, m := range w.machines {
		if m.unlisted && m.data != "" && d.Action == restore.IntendWipe && len(w.record.Wipes) == 0 {
			w.fail("%v are to be wiped while %s, which is not listed, has %s", d.Machines, m.name, m.data)
		}
	}
}

// checkWayOn: no wipe is recorded while some node would keep the restore from going on after it.
func (w *world) checkWayOn(d restore.Decision) {
	if d.Action != restore.IntendWipe {
		return
	}

	for _, m := range w.machines {
		if m.down > 0 || m.maintenance || m.leaving || m.unlisted {
			continue
		}

		if m.config == restore.ConfigTried || m.config == restore.ConfigStaged && m.data == "" {
			w.fail("%v are to be wiped while %s is %s, and then it does not go on", d.Machines, m.name, m.config)
		}
	}
}
