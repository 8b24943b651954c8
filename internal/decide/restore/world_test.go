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
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// machine is a control-plane node of the simulated cluster.
type machine struct {
	name        string
	boot        int
	down        int // turns until it responds again
	maintenance bool
	// data names the etcd cluster whose data it has; empty if it has none.
	data string
	// failed: etcd cannot start from its data, and reports that. hung: it tries forever.
	failed, hung bool
	// promised: the snapshot is on the node, and etcd is about to start from it; a reboot discards that.
	uploaded, promised bool
	resetting          bool
	// reads is for how many turns it reads the snapshot; quiet: it appears to wait for a bootstrap meanwhile. starts is
	// for how many turns its etcd does not respond yet.
	reads, starts int
	quiet         bool
	// index is the last entry of its etcd; learner is for how many turns it does not vote yet.
	index   uint64
	learner int
	// config tells which configuration the next boot uses; kind is the machine type of the live one, nextKind that of a
	// staged one.
	config         restore.Config
	kind, nextKind string
	// unsynced: its clock is not in sync. stubborn is how many wipes fail to remove the data. dead: it never comes back.
	unsynced bool
	stubborn int
	dead     bool
	// leaving: its object is being deleted, so it is not configured again.
	leaving bool
	// unlisted: it was configured once, and has no object.
	unlisted bool
}

// world is a simulated cluster with a restore that is working on it.
type world struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	machines []*machine
	options  restore.Options
	record   restore.Record
	log      []string
	// faults occur while it is true.
	faults bool
	// founded counts clusters that were bootstrapped from the snapshot.
	founded int
	// damaged is how many snapshots arrive damaged.
	damaged int
	saved   bool
	// full: the store is out of space. led: etcd was observed with quorum before anything was wiped.
	full, led bool
	// starting is the boot that Starting of the record refers to.
	starting string
	// members of each etcd cluster, including those whose data is gone: they are never removed from its list.
	members map[string][]string
	// kept is the record as it was in the turn keepAt: a backup of the management plane. old: it has been restored.
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
	w.t.Fatalf("seed %d: "+format+"\n%s\ngo test ./internal/decide/restore -run '^TestHistories$' -args -histories 1 -seed %d",
		slices.Concat([]any{w.seed}, args, []any{strings.Join(w.log, "\n"), w.seed})...)
}

// newWorld creates three machines (or one, or five): running, dead, empty or new.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)),
		record: restore.Record{Wipes: map[string]restore.Wipe{}, Boots: map[string]string{}}, faults: true,
		members: map[string][]string{},
	}
	w.keepAt = w.rng.IntN(40)

	kind := w.rng.IntN(4)

	for i := range []int{1, 3, 5}[w.rng.IntN(3)] {
		m := &machine{
			name: fmt.Sprintf("cp-%d", i), boot: 1, leaving: i > 0 && w.rng.IntN(6) == 0, config: restore.ConfigSettled,
			kind: "controlplane", nextKind: "controlplane", unsynced: w.rng.IntN(20) == 0, index: uint64(w.rng.IntN(3)),
		}

		if w.rng.IntN(12) == 0 {
			m.stubborn = w.rng.IntN(restore.MaxWipes + 2)
		}

		if w.rng.IntN(12) == 0 {
			m.config, m.nextKind = restore.ConfigStaged, []string{"controlplane", "worker", "init"}[w.rng.IntN(3)]
		}

		if w.rng.IntN(60) == 0 {
			m.kind = []string{"worker", "init"}[w.rng.IntN(2)]
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
		m := &machine{name: "cp-7", boot: 1, unlisted: true, config: restore.ConfigSettled, kind: "controlplane"}
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
	w.full = w.rng.IntN(8) == 0
	w.record.Size = []int64{0, 1 << 20, 100 << 20, 400 << 20}[w.rng.IntN(4)]

	if w.damaged = max(0, w.rng.IntN(6)-3); w.rng.IntN(20) == 0 {
		w.damaged = restore.MaxTries + 1
	}

	w.keep()

	return w
}

func (w *world) holders(cluster string) []*machine {
	return slices.DeleteFunc(slices.Clone(w.machines), func(m *machine) bool { return m.data != cluster || !m.sound() })
}

// sound reports whether its etcd runs, or would run.
func (m *machine) sound() bool { return m.data != "" && !m.failed && !m.hung && m.starts == 0 }

// up reports whether it runs and participates in the cluster.
func (m *machine) up() bool { return m.down == 0 && !m.resetting && !m.maintenance && !m.dead }

// takes reports whether the machine has the data of a cluster and is a member of it.
func (w *world) takes(m *machine, cluster string) {
	if m.data = cluster; cluster != "" && !slices.Contains(w.members[cluster], m.name) {
		w.members[cluster] = append(w.members[cluster], m.name)
	}
}

// quorum reports whether a majority of the members of a cluster runs.
func (w *world) quorum(cluster string) bool {
	voters := len(w.members[cluster])
	for _, m := range w.machines {
		if m.data == cluster && m.learner > 0 {
			voters--
		}
	}

	return len(w.voting(cluster)) > voters/2
}

// voting returns the machines whose members of a cluster run and vote.
func (w *world) voting(cluster string) []*machine {
	return slices.DeleteFunc(w.holders(cluster), func(m *machine) bool { return !m.up() || m.learner > 0 })
}

func id(name string) uint64 { return uint64(name[len(name)-1]) + 1 }

func (w *world) evidence() []restore.Node {
	var out []restore.Node

	for _, m := range w.machines {
		n := restore.Node{Node: safety.Node{Name: m.name, Address: m.name, Unlisted: m.unlisted}, Leaving: m.leaving}

		switch {
		case m.down > 0, m.dead:
		case m.maintenance:
			n.Answer = safety.AnswerMaintenance
		default:
			w.tells(m, &n)
		}

		out = append(out, n)
	}

	return out
}

// tells sets what a configured machine reports about itself.
func (w *world) tells(m *machine, n *restore.Node) {
	n.Answer, n.Boot = safety.AnswerMember, fmt.Sprintf("%s-%d", m.name, m.boot)
	n.Config, n.Type, n.NextType, n.TimeSynced = m.config, m.kind, m.kind, !m.unsynced
	n.EtcdData, n.EtcdFailed = safety.DataAbsent, m.failed
	n.EtcdWaiting = m.data == "" && (!m.promised || m.quiet) && !m.resetting

	switch m.config {
	case restore.ConfigTried:
		n.NextType = ""
	case restore.ConfigStaged:
		n.NextType = m.nextKind
	default:
	}

	if m.data != "" {
		n.EtcdData = safety.DataPresent
	}

	switch {
	case !w.faults || w.rng.IntN(15) > 0:
	case w.rng.IntN(2) == 0:
		n.EtcdData, n.EtcdWaiting, n.EtcdFailed = safety.DataUnknown, false, false // the state of its etcd is unknown

		return
	default:
		n.Boot, n.Config, n.TimeSynced = "", restore.ConfigUnread, false // some evidence is missing
	}

	switch {
	case !m.sound() || m.resetting:
	case w.quorum(m.data):
		n.MemberID, n.RaftIndex, n.Learner = id(m.name), m.index, m.learner > 0
		n.Leader = id(w.voting(m.data)[0].name)

		for _, name := range w.members[m.data] {
			n.Members = append(n.Members, safety.Member{
				ID: id(name), Name: name, Learner: w.machine(name) != nil && w.machine(name).learner > 0,
			})
		}
	default:
		n.NoLeader, n.EtcdRuns = true, true // without a leader it reports no list
	}
}

// live simulates the passage of time: nodes come back, reset, start etcd, join, and fail.
func (w *world) live() {
	for _, m := range w.machines {
		switch {
		case m.dead:
			continue
		case m.down > 0:
			// Unreachable machines continue to work.
			m.down--
			m.reads, m.starts = max(0, m.reads-1), max(0, m.starts-1)

			if m.promised && m.reads == 0 {
				w.found(m)
			}

			continue
		case m.resetting && m.stubborn > 0:
			m.resetting = false
			m.stubborn--
			m.boots()
		case m.resetting:
			m.resetting = false
			m.erase()
			m.boots()
			m.down = w.rng.IntN(3)
		case m.starts > 0:
			m.starts--
		case m.maintenance && !m.leaving && !m.unlisted && w.rng.IntN(2) == 0:
			m.maintenance, m.kind = false, "controlplane" // the control plane configures it again
			m.boots()
		case m.promised && m.reads > 0:
			m.reads--
		case m.promised:
			w.found(m)
		case m.data == "" && !m.maintenance:
			w.join(m)
		case m.sound() && w.quorum(m.data):
			m.index += uint64(w.rng.IntN(2))
			m.learner = max(0, m.learner-1)
		}

		if w.faults && w.rng.IntN(25) == 0 {
			w.breaks(m)
		}
	}
}

// boots simulates a boot, which uses the configuration on the disk.
func (m *machine) boots() {
	if m.config == restore.ConfigStaged {
		m.kind = m.nextKind
	}

	m.boot, m.config = m.boot+1, restore.ConfigSettled
}

// erase removes all of its etcd data.
func (m *machine) erase() {
	m.data, m.failed, m.hung, m.uploaded, m.promised = "", false, false, false, false
	m.index, m.starts, m.learner = 0, 0, 0
}

func (w *world) found(m *machine) {
	m.promised, m.uploaded = false, false

	if w.damaged > 0 {
		w.damaged--
		m.data, m.failed = "debris", true

		return
	}

	w.founded++
	w.takes(m, fmt.Sprintf("new-%d", w.founded))

	// Usually it responds immediately; occasionally it takes nearly the maximum time.
	if w.rng.IntN(3) == 0 {
		m.starts = w.rng.IntN(300/turnSeconds + 3*w.reading())
	}

	w.note("%s runs %s", m.name, m.data)
}

// turnSeconds is the duration of a turn.
const turnSeconds = 5

// reading returns how many turns the slowest disk needs to read the snapshot once.
func (w *world) reading() int { return int(w.record.Size>>23) / turnSeconds }

// join simulates what Talos does by itself: an empty node searches for a cluster and joins it.
func (w *world) join(m *machine) {
	for _, o := range w.machines {
		if o != m && o.up() && o.sound() && w.quorum(o.data) {
			w.takes(m, o.data)
			m.learner = w.rng.IntN(4)
			w.note("%s joins %s", m.name, m.data)

			return
		}
	}
}

func (w *world) breaks(m *machine) {
	switch w.rng.IntN(7) {
	case 0, 1:
		m.down = 1 + w.rng.IntN(8)
		m.boots()

		if m.promised && m.reads == 0 && w.rng.IntN(2) == 0 {
			m.data, m.hung = "debris", true // a partial database
		}

		m.promised = false
		w.note("%s loses power", m.name)
	case 2:
		m.down = 1 + w.rng.IntN(8) // frozen: it comes back unchanged
		w.note("%s is silent", m.name)
	case 3:
		m.config = []restore.Config{restore.ConfigSettled, restore.ConfigStaged, restore.ConfigTried}[w.rng.IntN(3)]
		m.nextKind = []string{"controlplane", "controlplane", "worker", "init"}[w.rng.IntN(4)]
	case 5:
		m.unsynced = w.rng.IntN(2) == 0
	case 6:
		// The first one remains, and no member of the restored etcd dies, because a restore does not recover it.
		if m.name == "cp-0" || m.unlisted || w.rng.IntN(6) > 0 || w.old || w.restores(m) {
			return
		}

		m.dead, m.promised = true, false
		w.note("%s is dead", m.name)
	case 4:
		if strings.HasPrefix(m.data, "new") || w.rng.IntN(3) > 0 {
			return
		}

		m.erase()
		m.boots()
		w.note("%s has a new disk", m.name)
		m.maintenance = true
	}
}

// restores reports whether the machine has, or is on the list of, an etcd that was started from the snapshot.
func (w *world) restores(m *machine) bool {
	for cluster, members := range w.members {
		if cluster != "old" && slices.Contains(members, m.name) {
			return true
		}
	}

	return m.promised
}

// fixes simulates a user who does what the restore advises, as far as possible.
func (w *world) fixes() {
	w.faults, w.full = false, false
	w.forget(false)

	for _, m := range w.machines {
		m.config, m.kind, m.unsynced, m.stubborn = restore.ConfigSettled, "controlplane", false, 0

		if m.dead {
			w.options.Lost = append(w.options.Lost, m.name)
		}
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

// turn does what the controller does, or dies in between.
func (w *world) turn() {
	nodes := w.evidence()
	w.watch(nodes)
	d := restore.Decide(w.options, w.record, nodes)
	w.check(d, nodes)
	w.ended = d.Action
	w.record.Age += turnSeconds * time.Second
	w.record.Noted += turnSeconds * time.Second

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

			if old.Times == restore.MaxWipes {
				w.fail("%s is wiped once more", name)
			}
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
		if w.record.Tries++; w.record.Tries > restore.MaxTries {
			w.fail("the snapshot is sent once more")
		}

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

// watch records the observations as the controller does.
func (w *world) watch(nodes []restore.Node) {
	switch w.record.Step {
	case v1alpha1.RestoreWiping:
		if w.record.Again += turnSeconds * time.Second; !restore.RunsAgain(w.record, nodes) {
			w.record.Again = 0
		}
	case "", v1alpha1.RestorePreflight, v1alpha1.RestoreSaving:
		if restore.HasQuorum(nodes) {
			w.record.HadQuorum, w.record.Leaderless, w.led = true, 0, true
		} else if restore.Leaderless(nodes) {
			w.record.Leaderless += turnSeconds * time.Second
		}
	case v1alpha1.RestoreRecovering:
		for _, n := range nodes {
			if n.Name != w.record.Machine || n.EtcdData != safety.DataPresent || n.Serves() || n.Boot == "" {
				continue
			}

			if w.record.Starting += turnSeconds * time.Second; n.Boot != w.starting {
				w.record.Starting, w.starting = 0, n.Boot
			}
		}
	default:
	}
}

// noteBoots records the boots of the nodes with data.
func (w *world) noteBoots(nodes []restore.Node) {
	w.record.Boots, w.record.Noted = map[string]string{}, 0

	for _, n := range nodes {
		if n.EtcdData == safety.DataPresent {
			w.record.Boots[n.Name] = n.Boot
		}
	}
}

// keep takes a backup of the management plane.
func (w *world) keep() {
	w.kept = w.record
	w.kept.Wipes, w.kept.Boots = maps.Clone(w.record.Wipes), maps.Clone(w.record.Boots)
}

// comesBack: weeks later, the record of a completed restore is restored to an intermediate state.
func (w *world) comesBack() {
	for _, m := range w.machines {
		m.unlisted = false // it is listed by now

		if w.rng.IntN(2) == 0 {
			m.boots()
		}
	}

	const weeks = 300 * time.Hour

	w.note("the record comes back as it was in the step %q", w.kept.Step)
	w.record, w.saved, w.old, w.done, w.stopped, w.faults = w.kept, false, true, false, false, true
	w.record.Age += weeks
	w.record.Noted += weeks
	w.record.Starting, w.record.Again, w.starting = 0, 0, "" // only the process has these values
}

// forget simulates a user who finds the unlisted machines, wipes them, and confirms that; at first only those that have
// not joined the restored etcd.
func (w *world) forget(all bool) {
	w.machines = slices.DeleteFunc(w.machines, func(m *machine) bool {
		return m.unlisted && (all || !strings.HasPrefix(m.data, "new"))
	})
}

func (w *world) enter(step v1alpha1.RestoreStep) { w.record.Step = step }

func (w *world) save(d restore.Decision, dies bool) {
	m := w.machine(d.Machines[0])
	if !d.Required && w.record.SaveFailures >= restore.MaxSaves {
		w.fail("the copy is tried once more")
	}

	for _, o := range w.machines {
		if d.Serving && slices.Contains(d.Machines, o.name) && o.index > m.index {
			w.fail("the copy is that of %s, and %s has more", m.name, o.name)
		}
	}

	if dies || m.down > 0 || w.full || w.faults && w.rng.IntN(3) == 0 {
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

	if w.faults && w.rng.IntN(10) == 0 {
		w.record.Asked = false // it rejects the call

		return
	}

	if dies && w.rng.IntN(2) == 0 {
		return // before the bootstrap
	}

	// The response is sent before the snapshot is read.
	if m.data == "" {
		m.promised, m.reads, m.quiet = true, w.rng.IntN(2), w.rng.IntN(2) == 0

		if w.rng.IntN(3) == 0 {
			m.reads = w.rng.IntN(20/turnSeconds + w.reading())
		}
	}

	if !dies {
		w.enter(v1alpha1.RestoreRecovering)
	}
}
