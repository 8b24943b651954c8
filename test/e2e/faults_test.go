package e2e

import (
	"context"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestFaultyNodesDelayOnlyThemselves: a frozen, a partitioned, a slow and a refusing worker.
func TestFaultyNodesDelayOnlyThemselves(t *testing.T) {
	w := newWorld(t)
	for i := 1; i <= 6; i++ {
		w.boot(i)
	}

	frozen, partitioned, slow, refusing := w.nodes[w.address(3)], w.nodes[w.address(4)], w.nodes[w.address(5)], w.nodes[w.address(6)]

	frozen.Freeze(true)
	partitioned.Partition(true)
	slow.Faults().Slow("", time.Second)
	refusing.Faults().Fail("ApplyConfiguration", codes.Unavailable, 1, 1_000_000)

	w.apply(clusterManifest("faulty", w.address(1), []string{w.address(1)},
		[]string{w.address(2), w.address(3), w.address(4), w.address(5), w.address(6)}))

	machine := func(name, kind string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		w.eventually(name+" is "+reason, w.condition(&v1alpha1.TalosMachine{}, name, kind, status, reason))
	}

	machine("faulty-cp-0", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	machine("faulty-workers-0", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	machine("faulty-workers-3", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	machine("faulty-workers-1", v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable)
	machine("faulty-workers-2", v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable)
	machine("faulty-workers-4", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable)

	w.eventually("the others have finished", func(ctx context.Context) error {
		c := &vitistackv1alpha1.KubernetesCluster{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "faulty"}, c); err != nil {
			return err
		}

		if !c.Status.ControlPlaneReady || c.Status.WorkersReady != 2 {
			return fmt.Errorf("they have not: %+v", c.Status)
		}

		return nil
	})

	w.eventually("the culprits are named", func(ctx context.Context) error {
		group := &v1alpha1.TalosWorker{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "faulty-workers"}, group); err != nil {
			return err
		}

		for _, culprit := range []string{"faulty-workers-1", "faulty-workers-2", "faulty-workers-4"} {
			if text := fmt.Sprint(group.Status.Conditions); !strings.Contains(text, culprit) {
				return fmt.Errorf("%s is not named in %s", culprit, text)
			}
		}

		return nil
	})

	// Who refuses is asked less and less often.
	calls := refusing.Faults().Calls("ApplyConfiguration")
	t.Logf("%d configs were refused", calls)

	if calls == 0 || calls > 30 {
		t.Errorf("the worker that refuses its config was sent it %d times", calls)
	}

	frozen.Freeze(false)
	partitioned.Partition(false)
	slow.Faults().Clear()
	refusing.Faults().Clear()

	w.running("faulty")
	w.nodesReady("faulty", 6)

	w.dies(t, "faulty-workers-0", w.nodes[w.address(2)])
}

// dies: a power cut shows in the status. How soon is measured by make bench-scale.
func (w *world) dies(t *testing.T, machine string, n *node.Node) {
	t.Helper()

	n.Kill()

	cut := wait.Now()

	w.eventually(machine+" shows as dead",
		w.condition(&v1alpha1.TalosMachine{}, machine, v1alpha1.ConditionReachable, metav1.ConditionFalse))
	t.Logf("the power cut showed after %s", wait.Now().Sub(cut).Round(time.Millisecond))

	if err := n.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	w.eventually(machine+" is back",
		w.condition(&v1alpha1.TalosMachine{}, machine, v1alpha1.ConditionReady, metav1.ConditionTrue))
}

// TestNothingIsConfiguredIntoTheWrongCluster: two clusters at once whose nodes are mixed up in the manifests.
func TestNothingIsConfiguredIntoTheWrongCluster(t *testing.T) {
	w := newWorld(t)
	for i := 1; i <= 3; i++ {
		w.boot(i)
	}

	// Both want machine 3, at the same time.
	w.apply(clusterManifest("east", w.address(1), []string{w.address(1)}, []string{w.address(3)}))
	w.apply(clusterManifest("west", w.address(2), []string{w.address(2)}, []string{w.address(3)}))

	w.eventually("one cluster has machine 3, the other says why not", func(ctx context.Context) error {
		owner := w.nodes[w.address(3)].Status().ClusterName

		loser, ok := map[string]string{"east": "west", "west": "east"}[owner]
		if !ok {
			return fmt.Errorf("machine 3 belongs to %q", owner)
		}

		m := &v1alpha1.TalosMachine{}
		if w.condition(m, loser+"-workers-0", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonAddressConflict)(ctx) == nil {
			return nil
		}

		return w.condition(m, loser+"-workers-0", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonForeignNode)(ctx)
	})

	for _, c := range []string{"east", "west"} {
		w.eventually(c+" has its control plane",
			w.condition(&v1alpha1.TalosControlPlane{}, c, v1alpha1.ConditionReady, metav1.ConditionTrue))
	}

	// A third cluster lists a node of the first one, without its PKI.
	before := w.nodes[w.address(1)].Faults().MutatingCalls()
	w.apply(clusterManifest("thief", w.address(1), []string{w.address(1)}, nil))
	w.eventually("the third cluster leaves the node alone",
		w.condition(&v1alpha1.TalosControlPlane{}, "thief", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonForeignNode))

	for i, want := range map[int]string{1: "east", 2: "west"} {
		if got := w.nodes[w.address(i)].Status().ClusterName; got != want {
			t.Errorf("machine %d belongs to %q, want %q", i, got, want)
		}
	}

	if calls := w.nodes[w.address(1)].Faults().MutatingCalls() - before; calls > 0 {
		t.Errorf("%d mutating calls went to a node of another cluster", calls)
	}
}

// TestDiskLossDuringBootstrap: the node that is bootstrapped loses its disk at that very moment, another one a little
// later. In the end there is one etcd, with three members.
func TestDiskLossDuringBootstrap(t *testing.T) {
	w := newEtcdWorld(t)

	var (
		once sync.Once
		lost = make(chan *node.Node, 1)
	)

	for i := 1; i <= 3; i++ {
		n := w.boot(i)
		n.Faults().Subscribe(func(c apid.Call) {
			if strings.HasSuffix(c.Method, "/Bootstrap") {
				once.Do(func() { lost <- n })
			}
		})
	}

	w.apply(clusterManifest("lossy", w.address(1), []string{w.address(1), w.address(2), w.address(3)}, nil))

	w.swapDisk(t, <-lost)
	w.running("lossy")
	w.etcdMembers("lossy", 3)
	w.oneEtcd("lossy", 3)

	// And once more, with a member of the finished cluster.
	t.Logf("one etcd after the first loss")

	identity := w.identity("lossy").without(w.address(2))

	// The power stays off until the loss shows: a node that is back within three seconds may never be missed.
	second := w.nodes[w.address(2)]
	if err := second.WipeDisk(); err != nil {
		t.Fatal(err)
	}

	w.eventually("the loss shows",
		w.condition(&v1alpha1.TalosControlPlane{}, "lossy", v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse))

	if err := second.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	w.eventually("the node with the new disk is a member again",
		w.condition(&v1alpha1.TalosControlPlane{}, "lossy", v1alpha1.ConditionEtcdHealthy, metav1.ConditionTrue))
	w.running("lossy")
	w.oneEtcd("lossy", 3)
	w.converged("lossy", identity)
}

// swapDisk takes the power, puts a new disk in and switches on again.
func (w *world) swapDisk(t *testing.T, n *node.Node) {
	t.Helper()

	if err := n.WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := n.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	// The operator has to have observed it: only then does the old health no longer count.
	w.eventually(n.Name()+" is looked at anew", func(context.Context) error {
		if calls := n.Faults().Calls("ApplyConfiguration"); n.Status().Stage == "maintenance" {
			return fmt.Errorf("still in maintenance mode after %d configs", calls)
		}

		return nil
	})
}

// oneEtcd: every control-plane node responds with the same member list.
func (w *world) oneEtcd(cluster string, nodes int) {
	w.t.Helper()

	var machines []int
	for i := range nodes {
		machines = append(machines, i+1)
	}

	w.oneEtcdAt(cluster, machines...)
}

// oneEtcdAt: these machines answer with the same member list.
func (w *world) oneEtcdAt(cluster string, machines ...int) {
	w.t.Helper()

	c := w.talos(cluster)

	views := map[string]bool{}

	for _, i := range machines {
		ctx, cancel := context.WithTimeout(talosclient.WithNode(context.Background(), w.address(i)), time.Minute)

		resp, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})

		cancel()

		if err != nil {
			w.t.Fatalf("asking %s for its members: %v", w.address(i), err)
		}

		for _, m := range resp.GetMessages() {
			view := ""
			for _, e := range m.GetMembers() {
				view += fmt.Sprintf("%x ", e.GetId())
			}

			views[view] = true
		}
	}

	if len(views) != 1 {
		w.t.Errorf("the nodes see %d different etcd clusters: %v", len(views), views)
	}
}

// TestManagerKilledDuringCreation kills the manager at 20 random moments.
func TestManagerKilledDuringCreation(t *testing.T) {
	w := newRealWorld(t)
	for i := 1; i <= 4; i++ {
		w.boot(i)
	}

	seed := rand.Int63()
	rng := rand.New(rand.NewSource(seed))

	t.Logf("seed %d", seed)
	w.apply(clusterManifest("killed", w.address(1), []string{w.address(1), w.address(2), w.address(3)}, []string{w.address(4)}))

	since := wait.Now()

	for range 20 {
		w.killAfter(time.Duration(200+rng.Intn(1500)) * time.Millisecond)
	}

	w.running("killed")
	w.nodesReady("killed", 4)
	w.etcdMembers("killed", 3)
	w.oneEtcd("killed", 3)

	writes, err := w.writes(since.Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}

	created := 0

	for _, wr := range writes {
		if wr.Verb == "create" && wr.Resource == "secrets" && wr.Name == "killed-state" && wr.Code < 300 {
			created++
		}
	}

	if created != 1 {
		t.Errorf("the PKI was made %d times", created)
	}

	asked, bootstraps := 0, 0
	for _, n := range w.nodes {
		asked += n.Faults().Calls("Bootstrap")
		bootstraps += n.Faults().Answers("Bootstrap", codes.OK)
	}

	// None has answered, when the manager was killed between the call and its answer.
	if asked == 0 || bootstraps > 1 {
		t.Errorf("asked %d times for a bootstrap, and %d nodes accepted one", asked, bootstraps)
	}
}
