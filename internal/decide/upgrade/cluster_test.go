package upgrade_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/test/oracle"
)

// Stages of a machine. It serves etcd until it goes down, which is a while after it was asked to reboot.
const (
	stageRunning   = change.StageRunning
	stageRebooting = "rebooting"
	stageUpgrading = "upgrading" // a legacy installer runs, and the machine reboots by itself afterwards
	stageBooting   = "booting"
)

// node is a control-plane machine with two systems on its disk, of which one boots.
type node struct {
	name string
	// runs is the system that runs, next the one that boots next, other the one in the other slot.
	runs, next, other string
	// live and disk are the configurations that runs and that boots next.
	live, disk string
	boot       int
	stage      string
	due        time.Time // when the stage ends
	etcdAt     time.Time // when etcd has started
	job        *job
	// legacy is what becomes of a legacy upgrade.
	legacy outcome
	target string

	// member on its disk, 0 for none; last is the last one that it reported.
	member, last uint64
	learner      bool
	voting       int64
	leaves       bool // it has left etcd, and joins no more

	// Faults: the hardware is lost, it has no power, the operator or the other members cannot reach it, its etcd lags, its
	// kubelet is not ready.
	dead, off, cut, split, behind, sick bool
	// faulted is the moment of the fault that keeps it from serving, or from being up to date. served: it did before.
	faulted int64
	served  bool

	// away: an act has taken it away, in this boot, and it is not back.
	away     bool
	awayBoot int
	cordoned bool
	// fellBack is the version that it did not boot, or did not stay with, after an act; no person has asked for it again.
	fellBack string
	// before is the system that ran before, and fails when what runs falls back to it; zero if it stays. byAct: an act has
	// booted what runs.
	before string
	fails  time.Time
	byAct  bool
}

// job is an installer, or a pull. It ends with the manager that has started it.
type job struct {
	id      string // of the change, with what is done for it
	act     change.Act
	image   string
	boot    string
	due     time.Time
	outcome outcome
	ended   bool
}

// outcome is what becomes of an installer.
type outcome int

const (
	succeeds outcome = iota
	exits            // with a code that tells that nothing is changed
	breaks           // half way, without telling what is changed
	hangs            // for longer than it may
)

// reachable reports whether the operator reaches the machine.
func (n *node) reachable() bool { return !n.dead && !n.off && !n.cut && n.stage != stageBooting }

func (n *node) bootID() string { return fmt.Sprint(n.boot) }

// etcdOf is the minor of etcd 3 in a version of Talos: v1.11 brings etcd 3.6. Source:
// https://github.com/siderolabs/talos/releases/tag/v1.11.0
func etcdOf(version string) int {
	if upgrade.Newer(version, "v1.10.99") {
		return 6
	}

	return 5
}

// serves reports whether the member of the machine takes part in etcd.
func (w *world) serves(n *node) bool { return w.etcdRuns(n) && !n.split && w.listed(n.member) }

func (w *world) etcdRuns(n *node) bool {
	return n.member != 0 && !n.dead && !n.off && n.stage != stageBooting && !w.now.Before(n.etcdAt) && etcdOf(n.runs) >= w.needs
}

func (w *world) listed(id uint64) bool {
	return slices.ContainsFunc(w.members, func(m safety.Member) bool { return m.ID == id })
}

func (w *world) votes(id uint64) bool {
	return slices.ContainsFunc(w.members, func(m safety.Member) bool { return m.ID == id && !m.Learner })
}

// voters counts the voting members that can serve, by the given condition, and all of them.
func (w *world) voters(can func(*node) bool) (up, all int) {
	for _, m := range w.members {
		if !m.Learner {
			all++
		}
	}

	for _, n := range w.nodes {
		if w.votes(n.member) && can(n) {
			up++
		}
	}

	return up, all
}

func (w *world) quorum() bool {
	up, all := w.voters(w.serves)

	return all > 0 && up >= safety.Quorum(all)
}

func (w *world) leads() uint64 {
	var serving []uint64

	for _, n := range w.nodes {
		if w.serves(n) && w.votes(n.member) {
			serving = append(serving, n.member)
		}
	}

	if len(serving) == 0 {
		return 0
	}

	return serving[w.leader%len(serving)]
}

// passes advances the clock, and what machines do by themselves.
func (w *world) passes(d time.Duration) {
	w.now = w.now.Add(d)

	for _, n := range w.nodes {
		w.proceed(n)
	}

	w.join()
	w.raise()
	w.notice()
}

// proceed takes a machine through the stages that are due.
func (w *world) proceed(n *node) {
	if j := n.job; j != nil && !w.now.Before(j.due) {
		w.endJob(n, false)
	}

	if !n.fails.IsZero() && !n.off && n.stage == stageRunning && !w.now.Before(n.fails) {
		w.fallBack(n)
	}

	for !n.dead && !n.off && n.stage != stageRunning && !w.now.Before(n.due) {
		switch n.stage {
		case stageUpgrading:
			switch n.legacy {
			case succeeds:
				n.next, n.other = n.target, n.target
			case breaks:
				w.halfWritten(n, n.target)
			case exits, hangs:
			}

			w.goDown(n)
		case stageRebooting:
			w.goDown(n)
		case stageBooting:
			w.start(n)
		}
	}
}

// goDown ends what runs on a machine.
func (w *world) goDown(n *node) {
	w.endJob(n, true)
	n.stage, n.due, n.fails = stageBooting, w.now.Add(w.duration("boot")), time.Time{}
	w.Logf("%s goes down", n.name)
}

// start boots a machine. A boot loader that finds that the new system does not work boots the old one.
func (w *world) start(n *node) {
	if w.broken[n.name+n.next] {
		if n.away && n.boot == n.awayBoot && !w.retries(n) {
			n.fellBack = n.next
		}

		n.next = n.runs
	}

	if n.next != n.runs {
		n.other, n.before = n.runs, n.runs
		if w.brief[n.name+n.next] {
			n.fails = w.now.Add(w.duration("falls back"))
		}
	}

	n.byAct = n.away && n.boot == n.awayBoot
	n.boot++
	n.runs, n.live, n.stage = n.next, n.disk, stageRunning
	n.etcdAt = w.now.Add(w.duration("etcd"))
	w.Logf("%s runs %s in boot %d", n.name, n.runs, n.boot)
}

// fallBack boots the system of before, unless an installer has replaced that meanwhile.
func (w *world) fallBack(n *node) {
	if n.fails = (time.Time{}); n.dead || n.next != n.runs || n.other != n.before {
		return
	}

	w.tick++
	w.Logf("%s falls back from %s to %s", n.name, n.runs, n.before)

	if n.byAct && !w.retries(n) {
		n.fellBack = n.runs
	}

	n.next = n.before
	w.goDown(n)
}

// endJob ends the job of a machine: by itself, or because of what it runs on or for.
func (w *world) endJob(n *node, killed bool) {
	j := n.job
	if j == nil {
		return
	}

	n.job, j.ended = nil, true
	if killed {
		j.outcome = breaks
	}

	switch {
	case j.act == change.Pull:
	case j.outcome == succeeds:
		n.next, n.other = j.image, j.image
	case j.outcome == breaks:
		w.halfWritten(n, j.image)
	}

	w.Logf("%s of %s on %s ends: %d", j.act, j.image, n.name, j.outcome)
}

// halfWritten is what an installer leaves that ends half way: it may have done its work, or none of it.
func (w *world) halfWritten(n *node, image string) {
	if n.other = ""; w.oneOf(2, "boots what is half written") {
		n.next, n.other = image, image
	}
}

// join has machines without a member join etcd, one at a time, and learners vote.
func (w *world) join() {
	if !w.quorum() {
		return
	}

	for _, n := range w.nodes {
		switch {
		case n.dead || n.off || n.split || n.stage != stageRunning || n.leaves:
		case n.member == 0 && !slices.ContainsFunc(w.members, func(m safety.Member) bool { return m.Learner }):
			n.member, n.etcdAt = w.nextMember(n.name, true), w.now
			n.learner = true
		case n.learner && w.serves(n) && !n.behind:
			i := slices.IndexFunc(w.members, func(m safety.Member) bool { return m.ID == n.member })
			w.members = slices.Clone(w.members)
			w.members[i].Learner, n.learner, n.voting = false, false, w.tick
		}
	}
}

// nextMember adds a member to the list.
func (w *world) nextMember(address string, learner bool) uint64 {
	w.ids++
	w.members = append(slices.Clone(w.members), safety.Member{
		ID: w.ids, PeerAddresses: []string{address}, Learner: learner,
	})

	return w.ids
}

// raise lets the data follow the members: once all of them run a newer etcd, older ones cannot read it.
func (w *world) raise() {
	least := 6

	for _, m := range w.members {
		i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.member == m.ID })
		if i < 0 || !w.serves(w.nodes[i]) {
			return
		}

		least = min(least, etcdOf(w.nodes[i].runs))
	}

	w.needs = max(w.needs, least)
}

// notice notes since when machines do not serve, and which are back.
func (w *world) notice() {
	for _, n := range w.nodes {
		up := w.serves(n) && !n.behind

		switch {
		case up && n.away && n.boot != n.awayBoot:
			n.away, n.faulted = false, 0
			w.Logf("%s is back", n.name)
		case n.away:
		case up:
			n.faulted = 0
		case n.faulted == 0, n.served && !w.serves(n):
			n.faulted = w.tick
		}

		if n.served = w.serves(n); n.served {
			n.last = n.member
		}
	}
}

// truth is what the oracle judges by. Where a machine is taken away that works, a member that lags is none that serves:
// it has not got what was written. A dead one may be replaced nevertheless, because a member that lags votes.
func (w *world) truth(replace bool) oracle.Truth {
	e := oracle.Etcd{ID: 1}
	t := oracle.Truth{}

	for _, m := range w.members {
		out := oracle.Member{ID: m.ID, Learner: m.Learner}
		if i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.member == m.ID }); i >= 0 {
			out.Voting = w.nodes[i].voting
		}

		e.Members = append(e.Members, out)
	}

	for _, n := range w.nodes {
		up := w.serves(n) && (!n.away && !n.behind || replace && (!n.away || n.boot != n.awayBoot))

		if n.member != 0 {
			t.Disks = append(t.Disks, oracle.Disk{
				Machine: n.name, Etcd: 1, Member: n.member, Serving: up, Faulted: n.faulted,
				Known: true,
			})
		}
	}

	t.Etcds = []oracle.Etcd{e}

	return t
}

// judge lets the oracle judge an act that is about to be done.
func (w *world) judge(a oracle.Act) {
	var away []string

	for _, n := range w.nodes {
		if n.away {
			away = append(away, n.name)
		}
	}

	a.Etcd = 1
	for _, v := range oracle.Judge(w.truth(a.Replace), a, away) {
		w.Fatalf("%s; members %+v", v, w.members)
	}
}

// takeAway is an act that makes a machine go down.
func (w *world) takeAway(n *node, evidence int64) {
	w.judge(oracle.Act{Kind: oracle.Reboot, Machine: n.name, Evidence: evidence})

	n.away, n.awayBoot, n.faulted = true, n.boot, 0
	w.disruptions++
}

// drop removes a member from the list, which needs a quorum.
func (w *world) drop(id uint64, evidence int64, dead bool) bool {
	if !w.quorum() || !w.listed(id) {
		return false
	}

	a := oracle.Act{Kind: oracle.Remove, Member: id, Evidence: evidence, Replace: dead}
	for _, n := range w.nodes {
		if n.member == id {
			a.Machine = n.name
		}
	}

	w.judge(a)

	w.members = slices.DeleteFunc(slices.Clone(w.members), func(m safety.Member) bool { return m.ID == id })
	w.disruptions++
	w.Logf("member %d of %s is removed", id, a.Machine)
	w.notice()

	return true
}

// tell is what a machine tells the operator about etcd, as evidence for the safety kernel.
func (w *world) tell(e safety.Node, n *node) safety.Node {
	if n == nil {
		return e
	}

	e.LastMember = n.last
	if silent := w.silent; !n.reachable() || silent {
		w.silent = false

		return e
	}

	e.Answer, e.EtcdData, e.BootID = safety.AnswerMember, safety.DataAbsent, n.bootID()
	if n.member == 0 {
		e.EtcdWaiting = true

		return e
	}

	e.EtcdData = safety.DataPresent

	switch {
	case !w.etcdRuns(n) || !w.listed(n.member):
	case n.split || !w.quorum():
		e.MemberID, e.NoLeader = n.member, true
	default:
		e.MemberID, e.Members, e.Leader, e.Learner = n.member, w.members, w.leads(), n.learner
		if e.RaftIndex = 100_000; n.behind {
			e.RaftIndex = 10
		}
	}

	return e
}

func (w *world) node(name string) *node {
	if i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.name == name }); i >= 0 {
		return w.nodes[i]
	}

	return nil
}

// oneOf is true for one in n; never while there are no more faults.
func (w *world) oneOf(n int, what string) bool {
	return !w.quiet && rapid.IntRange(0, n-1).Draw(w.T, what) == n-1
}

// duration is how long a machine takes for something. Some are so slow that they are abandoned.
func (w *world) duration(what string) time.Duration {
	if w.quiet {
		return 10 * time.Second
	}

	return rapid.SampledFrom([]time.Duration{
		10 * time.Second, 40 * time.Second, 4 * time.Minute, 15 * time.Minute,
	}).Draw(w.T, what)
}
