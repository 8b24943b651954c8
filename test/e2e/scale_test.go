package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/test/wait"
)

// scale sets the replicas of a KubernetesCluster.
func (w *world) scale(name string, controlPlanes, workers int) {
	w.t.Helper()

	o := &vitistackv1alpha1.KubernetesCluster{}
	w.get(o, name)

	base := o.DeepCopy()
	o.Spec.ControlPlane.Replicas, o.Spec.Workers[0].Replicas = int32(controlPlanes), int32(workers)

	if err := w.client.Patch(context.Background(), o, client.MergeFrom(base)); err != nil {
		w.t.Fatal(err)
	}
}

// machinesAre: the Machines of the cluster are these, and it is ready with them.
func (w *world) machinesAre(cluster string, want ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		list := &vitistackv1alpha1.MachineList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return err
		}

		var got []string
		for _, m := range list.Items {
			got = append(got, m.Name)
		}

		slices.Sort(got)

		if !slices.Equal(got, want) {
			c := &v1alpha1.TalosControlPlane{}
			_ = w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: cluster}, c)
			up := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionUpToDate)

			return fmt.Errorf("the machines are %v; %+v", got, up)
		}

		return w.condition(&vitistackv1alpha1.KubernetesCluster{}, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue)(ctx)
	}
}

// TestScale: a control plane grows from 1 over 3 to 5 and shrinks back, workers with it. The manager is killed at
// random moments, and a node that stays loses power in the middle. What goes is drained, leaves etcd, is wiped, and its
// objects go, in this order; the PKI and the data stay.
func TestScale(t *testing.T) {
	w := newRealWorld(t)
	addresses := []string{w.address(1), w.address(2), w.address(3), w.address(4), w.address(5)}
	workers := []string{w.address(6), w.address(7)}

	for i := range 7 {
		w.boot(i + 1)
	}

	small := strings.NewReplacer("replicas: 5", "replicas: 1", "replicas: 2", "replicas: 1")
	w.apply(small.Replace(clusterManifest("sized", addresses[0], addresses, workers)))
	w.running("sized")

	before := w.identity("sized")
	before.boots = map[string]string{addresses[0]: before.boots[addresses[0]]}

	w.scale("sized", 3, 2)
	w.killAtRandom(2)
	w.eventually("three and two",
		w.machinesAre("sized", "sized-cp-0", "sized-cp-1", "sized-cp-2", "sized-workers-0", "sized-workers-1"))
	w.scale("sized", 5, 2)
	w.killAtRandom(1)
	w.eventually("five and two", w.machinesAre("sized", "sized-cp-0", "sized-cp-1", "sized-cp-2",
		"sized-cp-3", "sized-cp-4", "sized-workers-0", "sized-workers-1"))
	w.etcdMembers("sized", 5)
	w.oneEtcd("sized", 5)
	w.nodesReady("sized", 7)

	out := w.watchTakeouts("sized", addresses)

	w.evictablePod("sized", "sized-cp-4")
	w.keepPod("sized", "sized-workers-1")
	w.scale("sized", 3, 1)

	// The pod's budget holds the worker; the control plane goes on meanwhile.
	w.eventually("the budget holds the drain", w.condition(&v1alpha1.TalosMachine{}, "sized-workers-1",
		v1alpha1.ConditionDeleting, metav1.ConditionTrue, v1alpha1.ReasonDraining))
	w.eventually("the first member is gone", w.membersAre("sized", 4))

	// With one of four away no other one may go.
	w.nodes[addresses[1]].Kill()
	w.killAtRandom(2)

	if err := w.nodes[addresses[1]].PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	w.eventually("two control-plane nodes are gone", w.membersAre("sized", 3))
	w.freePod("sized")
	w.eventually("three and one",
		w.machinesAre("sized", "sized-cp-0", "sized-cp-1", "sized-cp-2", "sized-workers-0"))
	w.scale("sized", 1, 1)
	w.killAtRandom(2)
	w.eventually("one and one", w.machinesAre("sized", "sized-cp-0", "sized-workers-0"))
	w.nodesReady("sized", 2)
	w.etcdMembers("sized", 1)
	w.sameIdentity("sized", before)
	w.evicted("sized", "sized-cp-4")
	out.check(4)

	for _, i := range []int{2, 3, 4, 5, 7} {
		if s := w.nodes[w.address(i)].Status(); s.Stage != "maintenance" {
			t.Errorf("machine %d was not wiped: %+v", i, s)
		}
	}

	w.idle(5 * time.Second)
	w.searchSecrets("sized")
}

// killAtRandom kills the manager so many times, at random moments of the next seconds.
func (w *world) killAtRandom(times int) {
	w.t.Helper()

	for range times {
		w.killWithin(500*time.Millisecond, 3500*time.Millisecond)
	}
}

// killWithin kills the manager at a random moment of a span, and starts it anew.
func (w *world) killWithin(from, to time.Duration) {
	w.t.Helper()

	w.killAfter(from + rand.N(to-from))
}

// killAfter kills the manager after a while, and starts it anew.
func (w *world) killAfter(pause time.Duration) {
	w.t.Helper()
	wait.Pass(w.t, pause)

	select {
	case <-w.manager.done:
		w.t.Fatalf("the manager ended by itself: %s", w.manager.log.String())
	default:
	}

	w.t.Logf("the manager is killed %s later", pause.Round(time.Millisecond))
	w.manager.kill()
	w.manager = w.startManager(w.plane)
}

// membersAre: etcd has so many members, as the control plane shows it.
func (w *world) membersAre(name string, want int32) func(context.Context) error {
	return func(ctx context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, cp); err != nil {
			return err
		}

		if cp.Status.EtcdMembers > want {
			return fmt.Errorf("%d members: %+v", cp.Status.EtcdMembers, cp.Status.Conditions)
		}

		return nil
	}
}

// keepPod runs a pod on a node, with a budget that forbids every eviction.
func (w *world) keepPod(cluster, node string) {
	w.t.Helper()

	k := w.kubernetes(cluster)
	labels := map[string]string{"app": "kept"}
	ctx := context.Background()

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Namespace: "default", Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "example.org/kept:1"}},
			AutomountServiceAccountToken: new(bool),
		},
	}
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Namespace: "default"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}

	if _, err := k.PolicyV1().PodDisruptionBudgets("default").Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}

	if _, err := k.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}

	w.eventually("the pod runs", func(ctx context.Context) error {
		p, err := k.CoreV1().Pods("default").Get(ctx, "kept", metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("the pod is %s", p.Status.Phase)
		}

		return err
	})
}

// freePod takes the budget away. The pod was there until now.
func (w *world) freePod(cluster string) {
	w.t.Helper()

	k := w.kubernetes(cluster)

	if _, err := k.CoreV1().Pods("default").Get(context.Background(), "kept", metav1.GetOptions{}); err != nil {
		w.t.Errorf("the pod was evicted although its budget forbids it: %v", err)
	}

	err := k.PolicyV1().PodDisruptionBudgets("default").Delete(context.Background(), "kept", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// TestDeadMemberDoesNotDeadlock: a control-plane node dies for good. Nothing is removed while it may come back;
// abandoned by a person, its member is removed by the survivors, although etcd is not whole, and the scale-down goes
// on.
func TestDeadMemberDoesNotDeadlock(t *testing.T) {
	w := newWorld(t)
	addresses := []string{w.address(1), w.address(2), w.address(3)}

	for i := range addresses {
		w.boot(i + 1)
	}

	w.apply(clusterManifest("bereft", addresses[0], addresses, nil))
	w.running("bereft")

	identity := w.identity("bereft").without(addresses[1], addresses[2])

	// The leader of etcd may be the one that dies.
	w.nodes[addresses[1]].Kill()

	dead := &v1alpha1.TalosMachine{}
	w.eventually("the death shows", w.condition(dead, "bereft-cp-1",
		v1alpha1.ConditionReachable, metav1.ConditionFalse))

	w.scaleControlPlane("bereft", 1)
	w.eventually("the scale-down is held", func(ctx context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "bereft"}, cp); err != nil {
			return err
		}

		c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionUpToDate)
		if c == nil || c.Reason != v1alpha1.ReasonScalingDown || !strings.Contains(c.Message, "bereft-cp-1") {
			return fmt.Errorf("the condition is %+v", c)
		}

		return nil
	})

	for _, a := range []string{addresses[0], addresses[2]} {
		if s := w.nodes[a].Status(); s.Stage != "running" || s.EtcdMember == "" {
			t.Errorf("a survivor was touched: %+v", s)
		}
	}

	patch := []byte(`{"metadata":{"annotations":{"` + v1alpha1.SkipResetAnnotation + `":"true"}}}`)
	if err := w.client.Patch(context.Background(), dead, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}

	w.eventually("one is left", w.machinesAre("bereft", "bereft-cp-0"))
	w.etcdMembers("bereft", 1)
	w.nodesReady("bereft", 1)

	if n := w.nodes[addresses[2]].Faults().Calls("EtcdRemoveMemberByID") +
		w.nodes[addresses[0]].Faults().Calls("EtcdRemoveMemberByID"); n != 1 {
		t.Errorf("%d members were removed as dead", n)
	}

	w.converged("bereft", identity)
}

func (w *world) scaleControlPlane(name string, replicas int32) {
	w.t.Helper()

	o := &vitistackv1alpha1.KubernetesCluster{}
	w.get(o, name)

	base := o.DeepCopy()
	o.Spec.ControlPlane.Replicas = replicas

	if err := w.client.Patch(context.Background(), o, client.MergeFrom(base)); err != nil {
		w.t.Fatal(err)
	}
}

// TestStaleMember: a member that was announced by mistake, and that no machine has, goes after two observations a
// minute apart, and only that one.
func TestStaleMember(t *testing.T) {
	w := newEtcdWorld(t)
	n := w.boot(1)

	w.apply(clusterManifest("haunted", n.Address(), []string{n.Address()}, nil))
	w.running("haunted")

	identity := w.identity("haunted")

	secret := &corev1.Secret{}
	w.get(secret, "haunted-state")

	state, err := clusterstate.Decode(secret.Data)
	if err != nil {
		t.Fatal(err)
	}

	c, err := etcd.Dial(state.Bundle.Secrets().Certs.Etcd, []string{n.Address()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	announced := wait.Now()

	if _, err := c.MemberAddAsLearner(context.Background(), []string{"https://" + w.address(99) + ":2380"}); err != nil {
		t.Fatal(err)
	}

	w.eventually("the stranger shows", w.condition(&v1alpha1.TalosControlPlane{}, "haunted",
		v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse))
	w.etcdMembers("haunted", 1)

	// The operator counts whole seconds, so that a minute may be up to one shorter.
	if took := wait.Now().Sub(announced); took < time.Minute-time.Second {
		t.Errorf("removed after %s: one look is not enough", took)
	}

	if calls := n.Faults().Calls("EtcdRemoveMemberByID"); calls != 1 {
		t.Errorf("%d removals", calls)
	}

	w.running("haunted")
	w.converged("haunted", identity)
}
