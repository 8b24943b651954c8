package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// takeouts watches how control-plane nodes are taken out of a cluster, call by call, and notes what comes too early.
type takeouts struct {
	w            *world
	cluster      string
	controlPlane []string
	kube         kubernetes.Interface
	talos        *talosclient.Client

	mu     sync.Mutex
	calls  map[string][]string // of each node, by address
	ids    map[string]uint64   // of members that leave, by address
	faults []string
}

// watchTakeouts begins to watch. It ends with the test.
func (w *world) watchTakeouts(cluster string, controlPlane []string) *takeouts {
	w.t.Helper()

	o := &takeouts{
		w: w, cluster: cluster, controlPlane: controlPlane, kube: w.kubernetes(cluster), talos: w.talos(cluster),
		calls: map[string][]string{}, ids: map[string]uint64{},
	}

	for _, address := range controlPlane {
		n := w.nodes[address]
		w.t.Cleanup(n.Faults().Subscribe(func(c apid.Call) { o.called(n, c.Method[strings.LastIndex(c.Method, "/")+1:]) }))
	}

	ctx, cancel := context.WithCancel(context.Background())

	var wg sync.WaitGroup

	wg.Go(func() { o.followObjects(ctx) })
	w.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})

	return o
}

func (o *takeouts) fault(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if text := fmt.Sprintf(format, args...); !slices.Contains(o.faults, text) {
		o.faults = append(o.faults, text)
	}
}

// called checks the world right before a node does what it is asked to.
func (o *takeouts) called(n *node.Node, method string) {
	switch method {
	case "EtcdForfeitLeadership":
		o.drained(n)
	case "EtcdLeaveCluster":
		o.quorum(n)
	case "Reset":
		o.gone(n)
	default:
		return
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	o.calls[n.Address()] = append(o.calls[n.Address()], method)
}

// drained: the node is cordoned, and only pods that belong to it are left.
func (o *takeouts) drained(n *node.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	name := n.Status().Hostname

	k, err := o.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil || !k.Spec.Unschedulable {
		o.fault("%s leaves and is not cordoned (%v)", name, err)
	}

	pods, err := o.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String(),
	})
	if err != nil {
		o.fault("the pods of %s: %v", name, err)

		return
	}

	for _, p := range pods.Items {
		if p.Annotations[corev1.MirrorPodAnnotationKey] == "" {
			o.fault("%s leaves and still has pod %s", name, p.Name)
		}
	}
}

// quorum: the others have quorum once this one is gone, and the node that leaves is the only one to do so.
func (o *takeouts) quorum(n *node.Node) {
	id, err := strconv.ParseUint(n.Status().EtcdMember, 16, 64)
	if err != nil {
		return // asked once more, and gone already
	}

	o.mu.Lock()
	o.ids[n.Address()] = id
	o.mu.Unlock()

	members, alive := 0, 0

	for _, address := range o.controlPlane {
		if address == n.Address() {
			continue
		}

		switch st := o.w.nodes[address].Status(); {
		case st.EtcdMember != "" && st.Powered:
			members, alive = members+1, alive+1
		case !st.Powered:
			members++
		}
	}

	if alive < members/2+1 {
		o.fault("%s leaves etcd, and %d of %d others work", n.Name(), alive, members)
	}
}

// gone: no survivor has the member on its list, by its ID.
func (o *takeouts) gone(n *node.Node) {
	o.mu.Lock()
	id := o.ids[n.Address()]
	o.mu.Unlock()

	if id == 0 {
		o.fault("%s is wiped and never left etcd", n.Name())
	}

	for _, address := range o.controlPlane {
		if st := o.w.nodes[address].Status(); address == n.Address() || st.EtcdMember == "" || !st.Powered {
			continue
		}

		ctx, cancel := context.WithTimeout(talosclient.WithNode(context.Background(), address), time.Minute)
		resp, err := o.talos.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})

		cancel()

		if err != nil {
			continue // it has just lost power
		}

		for _, m := range resp.GetMessages() {
			for _, e := range m.GetMembers() {
				if e.GetId() == id {
					o.fault("%s is wiped, and %s still has its member %x", n.Name(), address, id)
				}
			}
		}
	}
}

// followObjects: a Machine goes after its TalosMachine, and that after its Node object. What is gone at one moment is
// gone at the next one, so the three are read in this order.
func (o *takeouts) followObjects(ctx context.Context) {
	wait.Every(ctx, 200*time.Millisecond, func(ctx context.Context) {
		machines, talosMachines := &vitistackv1alpha1.MachineList{}, &v1alpha1.TalosMachineList{}

		if o.w.client.List(ctx, machines) != nil || o.w.client.List(ctx, talosMachines) != nil {
			return
		}

		nodes, err := o.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return
		}

		listed, left := map[string]bool{}, map[string]bool{}
		for _, m := range machines.Items {
			listed[m.Name] = true
		}

		for _, m := range talosMachines.Items {
			if left[m.Name] = true; !listed[m.Name] {
				o.fault("Machine %s went before its TalosMachine", m.Name)
			}
		}

		for _, n := range nodes.Items {
			if !left[n.Name] {
				o.fault("TalosMachine %s went before its Node object", n.Name)
			}
		}
	})
}

// check compares what was observed of so many nodes that were taken out.
func (o *takeouts) check(want int) {
	o.w.t.Helper()

	o.mu.Lock()
	defer o.mu.Unlock()

	for _, f := range o.faults {
		o.w.t.Error(f)
	}

	if len(o.calls) != want {
		o.w.t.Errorf("%d nodes were taken out, want %d", len(o.calls), want)
	}

	for address, calls := range o.calls {
		// A crash repeats steps, and undoes none.
		order := slices.Compact(slices.Clone(calls))
		order = slices.DeleteFunc(order, func(m string) bool { return m == "EtcdForfeitLeadership" })
		order = slices.Compact(order)

		if !slices.Equal(order, []string{"EtcdLeaveCluster", "Reset"}) || calls[0] != "EtcdForfeitLeadership" {
			o.w.t.Errorf("%s was asked to %v", address, calls)
		}
	}
}

// evictablePod runs a pod on a node, with a budget that lets it be evicted once.
func (w *world) evictablePod(cluster, nodeName string) {
	w.t.Helper()

	k, ctx := w.kubernetes(cluster), context.Background()
	labels := map[string]string{"app": nodeName}

	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: nodeName, Containers: []corev1.Container{{Name: "c", Image: "example.org/pod:1"}},
			AutomountServiceAccountToken: new(bool),
		},
	}

	budget, err := k.PolicyV1().PodDisruptionBudgets("default").Create(ctx, budget, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	// As the disruption controller does.
	budget.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: budget.Generation, DisruptionsAllowed: 1, CurrentHealthy: 1, ExpectedPods: 1,
	}

	if _, err := k.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(ctx, budget, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}

	if _, err := k.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}

	w.eventually("the pod runs", func(ctx context.Context) error {
		p, err := k.CoreV1().Pods("default").Get(ctx, nodeName, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}

		return err
	})
}

// evicted: the pod of evictablePod went through the eviction API, which is what notes it in the budget.
func (w *world) evicted(cluster, nodeName string) {
	w.t.Helper()

	b, err := w.kubernetes(cluster).PolicyV1().PodDisruptionBudgets("default").Get(context.Background(), nodeName,
		metav1.GetOptions{})
	if err != nil || b.Status.DisruptionsAllowed != 0 || len(b.Status.DisruptedPods) != 1 {
		w.t.Errorf("the budget of the pod on %s is %+v (%v)", nodeName, b.Status, err)
	}
}
