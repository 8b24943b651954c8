package upgrade_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// kubernetes is supported by each Talos of the model.
const kubernetes = "v1.33.2"

// releases of Talos that the model upgrades to. Those before v1.13 install and reboot by one call, and v1.11 brings
// another etcd.
var releases = []string{"v1.10.9", "v1.11.6", "v1.12.12", "v1.13.9", "v1.13.10"}

// world is a cluster, with the managers that upgrade it.
type world struct {
	*rapid.T
	plane

	now time.Time
	// tick is the moment of the last evidence.
	tick int64

	nodes   []*node
	members []safety.Member
	ids     uint64
	leader  int
	// needs is the minor of etcd that the data needs.
	needs int
	// broken are the systems that do not boot, by the name of the machine and the version.
	// brief are those that boot, and fall back some time later.
	broken, brief map[string]bool
	// missing: images cannot be pulled. crowded: pods do not leave.
	missing, crowded bool

	managers []*manager
	// interrupts of this round, by the number of acts.
	interrupts map[int]interrupt
	acts       int
	// cached: the next read of the control plane is an old one. silent: the next machine does not respond.
	cached, silent bool
	// within: a manager acts in the middle of a step of the other. quiet: there are no more faults.
	within, quiet bool
	disruptions   int
}

func newWorld(t *rapid.T) *world {
	from := rapid.SampledFrom(releases).Draw(t, "from")
	w := &world{
		T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), needs: etcdOf(from), broken: map[string]bool{},
		brief: map[string]bool{},
	}
	w.cp = &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{
		Name: "c", Generation: 1, Labels: map[string]string{configLabel: "a"},
	}}
	w.cp.Spec.TalosVersion = from
	w.cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	w.cp.Spec.Rollout = &v1alpha1.RolloutOptions{RebootPolicy: v1alpha1.RebootAutomatic}
	w.older = w.cp.DeepCopy()

	for range rapid.SampledFrom([]int{3, 1, 2, 4, 5}).Draw(t, "machines") {
		n := w.add(from)
		n.member = w.nextMember(n.name, false)
		n.last = n.member
	}

	for range 2 {
		w.managers = append(w.managers, &manager{world: w, jobs: map[string]*job{}})
	}

	w.aim(rapid.SampledFrom(releases).Draw(t, "to"))

	return w
}

// add lists another machine, which joins by itself.
func (w *world) add(version string) *node {
	w.ids++
	n := &node{
		name: fmt.Sprint("m-", w.ids), runs: version, next: version, other: version, boot: 1, stage: stageRunning,
		live: w.cp.Labels[configLabel], disk: w.cp.Labels[configLabel],
	}
	w.nodes = append(w.nodes, n)

	if !w.quiet {
		if bad := rapid.SampledFrom(append([]string{"", "", ""}, releases...)).Draw(w.T, "does not boot"); bad != version {
			w.broken[n.name+bad] = true
		}

		w.brief[n.name+rapid.SampledFrom(append([]string{"", "", ""}, releases...)).Draw(w.T, "falls back")] = true
	}

	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: n.name, Generation: 1}}
	m.Status.ConfigHash = n.live
	w.machines = append(w.machines, m)
	w.written(m)
	w.edit(func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Machines = append(slices.Clone(cp.Spec.Machines), v1alpha1.MachineEntry{Name: n.name})
	})

	return n
}

// edit changes the spec of the control plane.
func (w *world) edit(change func(*v1alpha1.TalosControlPlane)) {
	w.older = w.cp.DeepCopy()
	change(w.cp)
	w.cp.Generation++
	w.writes++
	w.cp.ResourceVersion = fmt.Sprint(w.writes)
}

// aim sets the version of the spec. That is a word of a person about machines that have fallen back, too.
func (w *world) aim(version string) {
	w.edit(func(cp *v1alpha1.TalosControlPlane) { cp.Spec.TalosVersion = version })
	w.forgive()
	w.Logf("the spec asks for %s", version)
}

func (w *world) forgive() {
	for _, n := range w.nodes {
		n.fellBack = ""
	}
}

// unlist removes a machine from the list.
func (w *world) unlist(name string) {
	w.edit(func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Machines = slices.DeleteFunc(slices.Clone(cp.Spec.Machines), func(e v1alpha1.MachineEntry) bool {
			return e.Name == name
		})
	})
	w.Logf("%s is to leave", name)
}

// replace puts a new machine in the place of one that is lost.
func (w *world) replace(name string) {
	w.unlist(name)
	w.abandon(name)
	w.add(w.cp.Spec.TalosVersion)
}

// abandon is the word that a machine does not come back.
func (w *world) abandon(name string) {
	m := w.find(name)
	m.Annotations = map[string]string{v1alpha1.SkipResetAnnotation: "true"}
	w.written(m)
}

func (w *world) decommission(name string) {
	if m := w.find(name); m != nil && m.DeletionTimestamp == nil {
		m.DeletionTimestamp = &metav1.Time{Time: w.now}
		w.written(m)
	}
}

// forget removes a machine that is out of the cluster.
func (w *world) forget(name string) {
	w.machines = slices.DeleteFunc(w.machines, func(m *v1alpha1.TalosMachine) bool { return m.Name == name })
	w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return n.name == name })
	w.Logf("%s is out of the cluster", name)
}

// interrupt is what happens between two acts of a round.
type interrupt string

const (
	kill      interrupt = "kill"      // the manager
	another   interrupt = "another"   // manager acts
	something interrupt = "something" // happens to the cluster
	later     interrupt = "later"     // time passes
	stale     interrupt = "stale"     // the next read of the control plane is an old one
	unasked   interrupt = "unasked"   // the next machine that is asked for its etcd does not respond
)

// interrupted draws what happens in the next round, by the number of acts before it.
func (w *world) interrupted() {
	w.acts, w.interrupts = 0, map[int]interrupt{}

	for range rapid.IntRange(0, 3).Draw(w.T, "interrupts") {
		at := rapid.IntRange(1, 40).Draw(w.T, "at")
		w.interrupts[at] = rapid.SampledFrom([]interrupt{
			something, another, later, kill, stale, unasked,
		}).Draw(w.T, "interrupt")
	}
}

// between is a moment between two acts of a manager. It returns false if the manager is killed then.
func (m *manager) between() (alive bool) {
	m.acts++

	switch m.interrupts[m.acts] {
	case kill:
		m.Logf("a manager is killed")
		m.killed()

		return false
	case another:
		if !m.within {
			m.within = true
			m.Logf("another manager acts")
			m.other().round()
			m.Logf("the first one goes on")

			m.within = false
		}
	case something:
		m.event()
	case later:
		m.passes(m.duration("meanwhile"))
	case stale:
		m.cached = true
	case unasked:
		m.silent = true
	}

	return true
}

func (m *manager) other() *manager {
	return m.managers[map[bool]int{true: 1, false: 0}[m.managers[0] == m]]
}

// round is one reconciliation of each object.
func (m *manager) round() {
	if !m.reconcileControlPlane() {
		return
	}

	for _, name := range names(m.list()) {
		if !m.reconcileMachine(name) {
			return
		}
	}
}

// event is one thing that happens to the cluster.
func (w *world) event() {
	w.tick++

	n := w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(w.T, "machine")]

	switch what := rapid.SampledFrom([]string{
		"nothing", "restart", "power", "cut", "split", "lag", "sick", "leader", "registry", "pods", "version", "config", "policy",
		"retry", "roll back", "leave", "join", "die",
	}).Draw(w.T, "event"); what {
	case "restart":
		w.restart(n)
	case "power":
		w.power(n)
	case "cut":
		n.cut = !n.cut
	case "split":
		n.split = !n.split
	case "lag":
		n.behind = !n.behind
	case "sick":
		n.sick = !n.sick
	case "leader":
		w.leader++
	case "registry":
		w.missing = !w.missing
	case "pods":
		w.crowded = !w.crowded
	case "roll back":
		w.rollBack(n)
	case "die":
		w.die(n)
	default:
		w.ask(n, what)
	}

	w.notice()
}

// ask is something that a person wants.
func (w *world) ask(n *node, what string) {
	switch what {
	case "version":
		w.aim(rapid.SampledFrom(releases).Draw(w.T, "version"))
	case "config":
		config := rapid.SampledFrom([]string{"a", "b", "c" + needsReboot, "d" + needsReboot}).Draw(w.T, "config")
		w.edit(func(cp *v1alpha1.TalosControlPlane) { cp.Labels = map[string]string{configLabel: config} })
		w.Logf("the spec has the configuration %s", config)
	case "policy":
		w.edit(func(cp *v1alpha1.TalosControlPlane) {
			cp.Spec.Rollout = &v1alpha1.RolloutOptions{RebootPolicy: map[v1alpha1.RebootPolicy]v1alpha1.RebootPolicy{
				v1alpha1.RebootManual: v1alpha1.RebootAutomatic, v1alpha1.RebootAutomatic: v1alpha1.RebootManual,
			}[cp.Spec.Rollout.RebootPolicy]}
		})
	case "retry":
		w.retry(n)
	case "leave":
		if len(w.cp.Spec.Machines) > 1 && w.listedNow(n) {
			w.unlist(n.name)
		}
	case "join":
		if len(w.nodes) < 5 {
			w.add(w.cp.Spec.TalosVersion)
		}
	}
}

func (w *world) listedNow(n *node) bool {
	return slices.ContainsFunc(w.cp.Spec.Machines, func(e v1alpha1.MachineEntry) bool { return e.Name == n.name })
}

// retry is the word of a person that a machine is to be tried again.
func (w *world) retry(n *node) {
	if m := w.find(n.name); m != nil {
		m.Annotations = map[string]string{
			v1alpha1.RetryAnnotation: "true", v1alpha1.SkipResetAnnotation: m.Annotations[v1alpha1.SkipResetAnnotation],
		}
		n.fellBack = ""

		w.written(m)
		w.Logf("retry %s", n.name)
	}
}

// retries reports whether a person has asked for a retry that no manager has noted yet.
func (w *world) retries(n *node) bool {
	m := w.find(n.name)

	return m != nil && m.Annotations[v1alpha1.RetryAnnotation] != ""
}

// restart is a reboot that is not the operator's.
func (w *world) restart(n *node) {
	if !n.dead && !n.off && n.stage != stageBooting {
		w.Logf("%s is restarted", n.name)
		w.goDown(n)
	}
}

// power fails, or returns.
func (w *world) power(n *node) {
	if n.off = !n.off; n.off {
		w.Logf("%s loses power", n.name)
		w.endJob(n, true)

		n.stage, n.fails = stageBooting, time.Time{}

		return
	}

	n.due = w.now.Add(w.duration("boot"))
	w.Logf("%s has power", n.name)
}

// rollBack boots the other slot, as a person does. None does that to more machines than etcd can do without.
func (w *world) rollBack(n *node) {
	left, all := w.voters(func(o *node) bool { return o != n && !o.dead && etcdOf(o.runs) >= w.needs })
	if n.other == "" || n.off || n.dead || n.stage != stageRunning || left < safety.Quorum(all) {
		return
	}

	w.Logf("%s is rolled back to %s", n.name, n.other)

	n.next, n.other = n.other, n.runs
	w.goDown(n)
}

// die destroys a machine, as long as enough disks are left for a quorum.
func (w *world) die(n *node) {
	left, all := w.voters(func(o *node) bool { return o != n && !o.dead && etcdOf(o.runs) >= w.needs })
	if n.dead || left < safety.Quorum(all) {
		return
	}

	w.Logf("%s is lost", n.name)
	w.endJob(n, true)

	n.dead = true
}

// TestHistories: whatever breaks meanwhile, an upgrade never takes the quorum of etcd, and never a second machine; it
// reboots no machine without permission in this boot, gives none an older system, and none a second time what it has
// fallen back from. Once nothing breaks any more, the cluster runs the version of the spec, or says why not; and it
// does, once a person has cared for that.
func TestHistories(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)

		for range rapid.IntRange(5, 60).Draw(t, "rounds") {
			if w.interrupted(); rapid.IntRange(0, 2).Draw(t, "something happens") == 2 {
				w.event()
			}

			w.passes(rapid.SampledFrom([]time.Duration{
				15 * time.Second, time.Second, time.Minute, 5 * time.Minute,
			}).Draw(t, "time"))
			w.managers[0].round()
		}

		w.settle()
	})
}
