package taloscontrolplane_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
)

// running creates a healthy control plane.
func (e *env) running(size int) (*v1alpha1.TalosControlPlane, []*node.Node) {
	e.Helper()

	cp, nodes := e.found(size)
	e.until(cp, "etcd and the API are there", func() bool {
		return meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionEtcdHealthy) &&
			meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionAvailable)
	})

	return cp, nodes
}

// stranger returns a machine that runs with the cluster's configuration and is not listed.
func (e *env) stranger(i int, role configmachine.Type) *node.Node {
	e.Helper()

	n := e.boot(i)
	e.install(e.state(), role, n)

	return n
}

// ready writes the status that the TalosMachine controller gives to a healthy machine.
func (e *env) ready(names ...string) {
	e.Helper()

	for _, n := range names {
		m := &v1alpha1.TalosMachine{}
		e.Get(m, n)

		m.Status.Hostname = n
		m.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
			LastTransitionTime: metav1.NewTime(e.Clock.Now()),
		}}

		e.UpdateStatus(m)
	}
}

// after advances the clock and reconciles.
func (e *env) after(d time.Duration, cp *v1alpha1.TalosControlPlane) {
	e.Helper()
	e.Clock.Sleep(d)

	// The conditions show what the reconciliation waits for.
	_, _ = e.pass(cp)
}

// TestStaleMember: an orphaned member is removed after two observations a minute apart, also in a cluster with workers:
// the state records those too, and they have no member.
func TestStaleMember(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.running(3)

	at := e.Clock.Now()
	e.record(func(s *clusterstate.State) {
		s.Runtime.Machines["w-0"] = clusterstate.Machine{
			Address: e.address(20), ConfiguredAt: &at, Role: string(v1alpha1.RoleWorker),
		}
		// Recorded by a version that did not record roles.
		s.Runtime.Machines["w-1"] = clusterstate.Machine{Address: e.address(21), ConfiguredAt: &at}
	})

	worker := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "w-1", Labels: map[string]string{
			v1alpha1.ControlPlaneLabel: name, v1alpha1.RoleLabel: string(v1alpha1.RoleWorker),
		}},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: name}, Role: v1alpha1.RoleWorker,
			WorkerRef: &v1alpha1.ObjectReference{Name: "w"},
		},
	}
	e.Create(worker)

	// Nothing is sent to a paused machine, although it could remove the member.
	held := e.talosMachine(0)
	metav1.SetMetaDataAnnotation(&held.ObjectMeta, v1alpha1.PausedAnnotation, "true")

	e.Update(held)

	stray := e.stranger(3, configmachine.TypeControlPlane)
	e.until(cp, "the strange member shows", func() bool {
		return cp.Status.EtcdMembers == 4 &&
			harness.Has(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonEtcdUnhealthy, "a second check")
	})
	e.Condition(cp, v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse, v1alpha1.ReasonEtcdUnhealthy, "is not the member of any node")
	e.after(59*time.Second, cp)

	if harness.Calls("EtcdRemoveMemberByID", nodes...) != 0 {
		t.Error("one look was enough")
	}

	// A machine that runs and votes is only not listed: the management cluster may have been restored from a backup.
	for range 3 {
		e.after(time.Minute, cp)
	}

	if got := harness.Calls("EtcdRemoveMemberByID", nodes...); got != 0 {
		t.Errorf("%d removals of a member that works", got)
	}

	e.Condition(cp, v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse, v1alpha1.ReasonEtcdUnhealthy,
		"the machine at "+e.address(3)+" responds as a node of this cluster: list it")
	stray.Kill()

	// Another control plane that owns the cluster may be about to list it.
	e.claim(elsewhere, string(cp.UID))
	e.after(time.Minute, cp)

	if got := harness.Calls("EtcdRemoveMemberByID", nodes...); got != 0 {
		t.Errorf("%d removals of a member of another owner", got)
	}

	e.claim(string(cp.UID), elsewhere)

	// It may still be in promotion: while the nodes disagree about that, the observations start again.
	e.Until(cp, "it is gone", func() { e.Clock.Sleep(time.Second) }, func() error { _, err := e.pass(cp); return err },
		func() bool { return cp.Status.EtcdMembers == 3 })

	if got := harness.Calls("EtcdRemoveMemberByID", nodes...); got != 1 || harness.Calls("EtcdRemoveMemberByID", nodes[0]) != 0 {
		t.Errorf("%d removals, %d of them by a machine that is held", got, harness.Calls("EtcdRemoveMemberByID", nodes[0]))
	}
}

// TestStaleMemberOfARememberedMachine: a control-plane machine without an object, for example after a move, may have
// the member. So may a machine that cannot be distinguished from a worker.
func TestStaleMemberOfARememberedMachine(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.running(3)

	at := e.Clock.Now()
	e.record(func(s *clusterstate.State) {
		s.Runtime.Machines["cp-9"] = clusterstate.Machine{Address: e.address(29), ConfiguredAt: &at}
	})
	e.stranger(3, configmachine.TypeControlPlane)
	e.until(cp, "the strange member shows", func() bool { return cp.Status.EtcdMembers == 4 })

	for range 3 {
		e.after(time.Minute, cp)
	}

	if got := harness.Calls("EtcdRemoveMemberByID", nodes...); got != 0 || cp.Status.EtcdMembers != 4 {
		t.Errorf("%d removals, %d members", got, cp.Status.EtcdMembers)
	}

	e.Condition(cp, v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse, v1alpha1.ReasonEtcdUnhealthy,
		"it may be that of cp-9: list it again, or, once it is wiped or destroyed, annotate the object with "+
			v1alpha1.ForgetMachinesAnnotation+"=cp-9")
}

// nodeObjects returns the names of the Node objects of the cluster.
func (e *env) nodeObjects() []string {
	e.Helper()

	c, err := e.r.Workloads.Cluster(e.Context(), e.state().Bundle, []string{e.address(0)})
	if err != nil {
		e.Fatal(err)
	}

	nodes, err := c.Nodes(e.Context())
	if err != nil {
		e.Fatal(err)
	}

	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}

	return out
}

// ghosts creates Node objects of unlisted machines that are gone.
func (e *env) ghosts(indexes ...int) {
	e.Helper()

	for _, i := range indexes {
		n := e.stranger(i, configmachine.TypeWorker)
		e.Eventually(n.Name()+" registers", func(context.Context) error {
			if got := e.nodeObjects(); !slices.Contains(got, n.Name()) {
				return fmt.Errorf("the nodes are %v", got)
			}

			return nil
		})
		n.Kill()
	}
}

func (e *env) nodesAre(want ...string) {
	e.Helper()

	if got := e.nodeObjects(); !slices.Equal(got, want) {
		e.Errorf("the nodes are %v, want %v", got, want)
	}
}

// TestStaleNode: orphaned Node objects are removed one at a time, each after two observations a minute apart.
func TestStaleNode(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.running(1)

	e.ready("cp-0")
	e.ghosts(7, 8)
	e.after(5*time.Minute, cp)
	e.after(59*time.Second, cp)
	e.nodesAre("cp-0", "cp-7", "cp-8")
	e.after(time.Second, cp)
	e.nodesAre("cp-0", "cp-8")

	// After a removal, the observations of the next one start again.
	e.after(5*time.Minute, cp)
	e.nodesAre("cp-0", "cp-8")
	e.after(time.Minute, cp)
	e.nodesAre("cp-0")

	if got := e.eventsWith(v1alpha1.ReasonStaleNode); len(got) != 2 {
		t.Errorf("events: %v", got)
	}
}

// TestStaleNodeKept: nothing is removed if a user keeps it, while a machine is not ready, or because of a status alone.
func TestStaleNodeKept(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.running(1)

	e.ghosts(7)

	// cp-0 has no status that reports it as ready.
	e.after(5*time.Minute, cp)
	e.after(5*time.Minute, cp)
	e.nodesAre("cp-0", "cp-7")

	e.ready("cp-0")
	metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.KeepNodeAnnotation, "true")

	e.Update(cp)

	e.after(5*time.Minute, cp)
	e.after(5*time.Minute, cp)
	e.nodesAre("cp-0", "cp-7")

	delete(cp.Annotations, v1alpha1.KeepNodeAnnotation)

	e.Update(cp)

	e.after(5*time.Minute, cp)
	nodes[0].Faults().Fail("Memory", codes.Unavailable, 1, 0)
	nodes[0].Faults().Fail("Read", codes.Unavailable, 1, 0)
	e.after(time.Minute, cp)
	e.nodesAre("cp-0", "cp-7")

	if meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionReady).Status != metav1.ConditionTrue {
		t.Errorf("the look failed the pass: %+v", cp.Status.Conditions)
	}

	nodes[0].Faults().Clear()
	e.after(time.Minute, cp)
	e.nodesAre("cp-0")
}

// eventsWith returns the events so far that contain a text.
func (e *env) eventsWith(text string) []string {
	return slices.DeleteFunc(e.Told(), func(event string) bool { return !strings.Contains(event, text) })
}
