package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// elected is a replica that takes part in the leader election.
func (w *world) elected() *manager {
	w.t.Helper()

	cfg, err := w.plane.AuditedConfigIn(w.ns)
	if err != nil {
		w.t.Fatal(err)
	}

	m := w.startManagerAs(cfg, "--leader-elect", "--leader-election-namespace="+w.ns)
	w.t.Cleanup(m.kill)

	return m
}

// elect replaces the manager of the world by a replica that leads.
func (w *world) elect() {
	w.t.Helper()
	w.manager.kill()
	w.manager = w.elected()
	w.eventually("the first replica leads", w.leads(""))
}

// standby is another replica, which is ready and healthy, and does not lead.
func (w *world) standby() *manager {
	w.t.Helper()

	m := w.elected()
	w.eventually("the standby is ready", m.answers("/readyz", http.StatusOK))

	if code := m.probe("/healthz"); code != http.StatusOK {
		w.t.Errorf("the standby's healthz answers %d", code)
	}

	return m
}

// terminate ends a replica in order, as the kubelet does.
func (w *world) terminate(m *manager) {
	w.t.Helper()

	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}

	wait.Done(w.t, "the replica ends", m.done)

	if code := m.cmd.ProcessState.ExitCode(); code != 0 {
		w.t.Errorf("the replica ends with %d: %s", code, m.log.String())
	}
}

// roll replaces the replica as a Deployment does: the new one is ready before the old one ends.
func (w *world) roll() {
	w.t.Helper()

	w.succeed(w.standby())
}

// recreate replaces the replica as a Deployment with the strategy Recreate does: the old one ends before the new one
// starts.
func (w *world) recreate() {
	w.t.Helper()

	before := w.leader(w.t)

	w.terminate(w.manager)
	w.manager = w.elected()
	w.eventually("the new replica leads", w.leads(before))
}

// succeed ends the replica, and has another one lead.
func (w *world) succeed(next *manager) {
	w.t.Helper()

	before := w.leader(w.t)

	w.terminate(w.manager)
	w.manager = next
	w.eventually("the new replica leads", w.leads(before))
}

// rollAtRandom replaces the replica at a random moment of the next seconds, with each of the strategies.
func (w *world) rollAtRandom() {
	w.t.Helper()

	for _, replace := range []func(){w.roll, w.recreate} {
		pause := 200*time.Millisecond + rand.N(1500*time.Millisecond)

		wait.Pass(w.t, pause)
		w.t.Logf("the operator is replaced %s later", pause.Round(time.Millisecond))
		replace()
	}
}

// rollDuring makes the next call of a method to one of some machines slow, runs what leads to it, and replaces the
// replica while the machine is at it.
func (w *world) rollDuring(method string, begin func(), machines ...int) {
	w.t.Helper()

	var once sync.Once

	arrived := make(chan struct{})

	for _, i := range machines {
		faults := w.nodes[w.address(i)].Faults()
		faults.Add(apid.Rule{Method: method, Delay: time.Second, Count: 1})

		cancel := faults.Subscribe(func(c apid.Call) {
			if c.Mutating && strings.HasSuffix(c.Method, "/"+method) {
				once.Do(func() { close(arrived) })
			}
		})
		w.t.Cleanup(cancel)
	}

	next := w.standby()

	begin()
	wait.Done(w.t, method+" is called", arrived)
	w.succeed(next)
}

// lease is that of the leader election.
func (w *world) lease() *coordinationv1.Lease {
	w.t.Helper()

	lease := &coordinationv1.Lease{}
	w.get(lease, "talos-operator.talos-operator.io")

	return lease
}

// changes counts the calls by which machines were asked for a change, by machine and method. A dry run is none.
type changes struct {
	mu    sync.Mutex
	count map[string]int
}

func (w *world) countChanges(machines ...int) *changes {
	c := &changes{count: map[string]int{}}

	for _, i := range machines {
		w.t.Cleanup(w.nodes[w.address(i)].Faults().Subscribe(func(call apid.Call) {
			if !call.Mutating {
				return
			}

			c.mu.Lock()
			defer c.mu.Unlock()

			c.count[fmt.Sprintf("machine %d: %s", i, call.Method[strings.LastIndex(call.Method, "/")+1:])]++
		}))
	}

	return c
}

// of is how often the machines were asked by a method, together.
func (c *changes) of(method string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	total := 0

	for name, n := range c.count {
		if strings.HasSuffix(name, ": "+method) {
			total += n
		}
	}

	return total
}

// take returns what was counted, and begins anew.
func (c *changes) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()

	out := c.count
	c.count = map[string]int{}

	return out
}

// onceAt: each machine was asked once by a method, and none more often by any. Images may be pulled again. Before its
// reboot, a configuration may be staged again, and the leadership be forfeited again.
func (w *world) onceAt(story string, got map[string]int, method string, machines int) {
	w.t.Helper()

	asked := 0

	for what, n := range got {
		if strings.HasSuffix(what, ": "+method) {
			asked++
		}

		// A configuration is staged again if the reboot after it was not recorded yet: something else may be staged. A
		// replica that ends after the leadership was forfeited does not begin the reboot; the next one does both.
		prepares := method == "Reboot" &&
			(strings.HasSuffix(what, ": ApplyConfiguration") || strings.HasSuffix(what, ": EtcdForfeitLeadership"))

		if n > 1 && !prepares && !strings.HasSuffix(what, "Pull") {
			w.t.Errorf("%s: %s %d times", story, what, n)
		}
	}

	if asked != machines {
		w.t.Errorf("%s: %d machines were asked by %s, want %d: %v", story, asked, method, machines, got)
	}
}

// TestLeaderIsKilled in the middle of the creation of a cluster. The standby takes over when the lease has expired, and
// not before; it does what is left, and nothing that was done.
func TestLeaderIsKilled(t *testing.T) {
	w := newWorld(t)
	for i := 1; i <= 4; i++ {
		w.boot(i)
	}

	w.elect()
	next := w.standby()
	acts := w.countChanges(1, 2, 3, 4)

	w.apply(clusterManifest("killed", w.address(1), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4)}))
	w.eventually("the first machine gets its config", func(context.Context) error {
		return wait.True(acts.of("ApplyConfiguration") > 0)
	})
	wait.Pass(t, rand.N(time.Second))
	w.manager.kill()

	killed, before := wait.Now(), w.lease()
	w.manager = next

	w.eventually("the standby leads", w.leads(*before.Spec.HolderIdentity))

	after := w.lease()
	if got, want := *after.Spec.LeaseTransitions, *before.Spec.LeaseTransitions+1; got != want {
		t.Errorf("%d changes of the leader, want %d", got, want)
	}

	// No replica acts while the lease of the one that was killed is valid.
	acquired := after.Spec.AcquireTime.Time
	valid := time.Duration(*before.Spec.LeaseDurationSeconds) * time.Second

	if waited := acquired.Sub(before.Spec.RenewTime.Time); waited < valid {
		t.Errorf("taken over %s after the last renewal, and the lease is valid for %s", waited, valid)
	}

	w.running("killed")
	w.nodesReady("killed", 4)
	w.oneEtcd("killed", 3)

	writes, err := w.writes(killed)
	if err != nil {
		t.Fatal(err)
	}

	if len(writes) == 0 {
		t.Error("the standby has written nothing")
	}

	for _, wr := range writes {
		// What the leader sent last may be read after its end, and is cut off then.
		if wr.Time.Before(acquired) && wr.Code != http.StatusGatewayTimeout {
			t.Errorf("without a leader somebody wrote %s", wr)
		}
	}

	// A call whose answer was lost with the process may be repeated, once.
	if n := acts.of("Bootstrap"); n != 1 && n != 2 {
		t.Errorf("%d calls for a bootstrap", n)
	}

	accepted := 0
	for _, n := range w.nodes {
		accepted += n.Faults().Answers("Bootstrap", codes.OK)
	}

	if accepted != 1 {
		t.Errorf("%d machines accepted a bootstrap", accepted)
	}
}

// TestOperatorIsUpdated in the middle of the creation of a cluster, of a change of its configuration, and of an upgrade
// of Talos, each time several times, with both strategies of a Deployment: at random moments, and while a machine is at
// work on a call. Each machine is asked once for each change, and boots once for each: unlike a crash, an end in order
// loses no answer.
func TestOperatorIsUpdated(t *testing.T) {
	w := newWorld(t)
	for i := 1; i <= 4; i++ {
		w.boot(i, func(o *node.Options) { o.TalosVersion = "v1.12.4" })
	}

	w.elect()

	holders, acts := w.lease().Spec.LeaseTransitions, w.countChanges(1, 2, 3, 4)

	w.rollDuring("Bootstrap", func() {
		w.apply(strings.NewReplacer("v1.36.2", "v1.34.3", "v1.13.9", "v1.12.4").Replace(clusterManifest("updated",
			w.address(1), []string{w.address(1), w.address(2), w.address(3)}, []string{w.address(4)})))
	}, 1, 2, 3)
	w.rollAtRandom()
	w.running("updated")
	w.eventually("nothing is left to do", w.upToDate("updated"))

	created := acts.take()
	w.onceAt("creation", created, "ApplyConfiguration", 4)
	w.onceAt("creation", created, "Bootstrap", 1)

	check, before := w.watchReboots("updated", 1, 2, 3), w.boots()

	w.rollDuring("Reboot", func() { w.patchCluster("updated", needsReboot("one")) }, 1, 2, 3, 4)
	w.rollAtRandom()
	w.eventually("the reboots are through", w.upToDate("updated"))
	check()

	if rebooted := w.rebooted(before); len(rebooted) != 4 {
		t.Errorf("only %v rebooted", rebooted)
	}

	w.onceAt("change", acts.take(), "Reboot", 4)

	check = w.watchReboots("updated", 1, 2, 3)

	w.rollDuring("Upgrade", func() { w.upgrade("updated", "v1.12.12") }, 1, 2, 3, 4)
	w.rollAtRandom()
	w.eventually("everything runs v1.12.12", w.runsTalos("updated", "v1.12.12", 4))
	check()
	w.onceAt("upgrade", acts.take(), "Upgrade", 4)

	w.running("updated")
	w.nodesReady("updated", 4)
	w.eventually("no node is cordoned", w.schedulable("updated", 4))
	w.oneEtcd("updated", 3)
	w.idle(5 * time.Second)

	if n := acts.take(); len(n) > 0 {
		t.Errorf("machines are changed again: %v", n)
	}

	// Three replicas for each story, and each of them has led.
	if got := *w.lease().Spec.LeaseTransitions - *holders; got != 9 {
		t.Errorf("the leader has changed %d times", got)
	}

	for _, n := range w.nodes {
		for _, method := range []string{"Bootstrap", "Reboot", "Upgrade", "EtcdForfeitLeadership"} {
			if cut := n.Faults().Answers(method, codes.Canceled); cut > 0 {
				t.Errorf("%s: %d calls of %s were cut off", n.Name(), cut, method)
			}
		}
	}
}
