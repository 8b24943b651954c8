package kubernetes_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// modelled is a cluster of modelled nodes, with a Deployment of pods that bear the label app=web.
type modelled struct {
	t      *testing.T
	client clientset.Interface
	nodes  *kubernetes.ModelNodes
	off    sync.Map
	boots  int
}

// newModelled has workers a, b and c, and a control-plane node, which takes no pods.
func newModelled(t *testing.T) *modelled {
	t.Helper()

	address := loopback.Address(t)
	cfg := machineConfig(t, "https://"+address+":6443", machine.TypeControlPlane)
	f := &modelled{t: t, nodes: &kubernetes.ModelNodes{}}

	m, err := kubernetes.StartModel(t.Context(), kubernetes.ModelOptions{
		Name: "cp", Address: address, Config: cfg, Nodes: f.nodes,
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(m.Close)

	admin, err := kubernetes.AdminConfig(cfg, address)
	if err != nil {
		t.Fatal(err)
	}

	f.client = clientset.NewForConfigOrDie(admin)
	f.nodes.Register(
		kubernetes.KubeletOptions{NodeName: "cp", Address: address, Config: cfg, ControlPlane: true}, f.alive("cp"))

	for _, name := range []string{"a", "b", "c"} {
		f.boot(name)
	}

	labels := map[string]string{"app": "web"}

	_, err = f.client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return f
}

func (f *modelled) alive(name string) func() bool {
	return func() bool { _, off := f.off.Load(name); return !off }
}

// boot makes a node, or boots it again.
func (f *modelled) boot(name string) {
	f.boots++
	f.nodes.Register(kubernetes.KubeletOptions{
		NodeName: name, Config: machineConfig(f.t, "https://127.0.0.1:6443", machine.TypeWorker), BootID: fmt.Sprint(f.boots),
	}, f.alive(name))
}

func (f *modelled) budget(spec policyv1.PodDisruptionBudgetSpec) {
	f.t.Helper()

	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}

	_, err := f.client.PolicyV1().PodDisruptionBudgets("default").Create(f.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: spec,
	}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

// cordon makes nodes refuse pods, or take them again.
func (f *modelled) cordon(on bool, names ...string) {
	f.t.Helper()

	for _, name := range names {
		_, err := f.client.CoreV1().Nodes().Patch(f.t.Context(), name, types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on), metav1.PatchOptions{})
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// pods on a node, or on all; ready are those that work.
func (f *modelled) pods(node string) (all []corev1.Pod, ready int) {
	f.t.Helper()

	o := metav1.ListOptions{}
	if node != "" {
		o.FieldSelector = "spec.nodeName=" + node
	}

	list, err := f.client.CoreV1().Pods(metav1.NamespaceAll).List(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}

	for i := range list.Items {
		if slices.ContainsFunc(list.Items[i].Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}

	return list.Items, ready
}

func (f *modelled) allReady() {
	f.t.Helper()
	wait.For(f.t, "three pods are ready", func(context.Context) error {
		_, n := f.pods("")

		return wait.True(n == 3)
	})
}

func (f *modelled) evict(node string) error {
	f.t.Helper()

	all, _ := f.pods(node)
	if len(all) == 0 {
		f.t.Fatalf("no pod runs on %s", node)
	}

	return f.client.PolicyV1().Evictions("default").Evict(f.t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: all[0].Name},
	})
}

// TestModelledPods: pods are spread over the nodes that take them, an evicted one comes back elsewhere, and a node that
// boots starts its own anew.
func TestModelledPods(t *testing.T) {
	f := newModelled(t)
	f.allReady()

	for node, want := range map[string]int{"a": 1, "b": 1, "c": 1, "cp": 0} {
		if all, _ := f.pods(node); len(all) != want {
			t.Errorf("%d pods on %s", len(all), node)
		}
	}

	f.cordon(true, "a", "b", "c")

	if err := f.evict("a"); err != nil {
		t.Fatal(err)
	}

	if _, ready := f.pods(""); ready != 2 {
		t.Errorf("%d pods are ready after an eviction, and no node takes another one", ready)
	}

	f.cordon(false, "b", "c")
	f.allReady()
	wait.For(t, "the evicted pod is gone", func(context.Context) error {
		all, _ := f.pods("a")

		return wait.True(len(all) == 0)
	})

	f.off.Store("b", true)

	if all, ready := f.pods("b"); len(all) == 0 || ready != 0 {
		t.Errorf("%d pods of a node that is off, %d ready", len(all), ready)
	}

	f.off.Delete("b")
	f.boot("b")
	f.allReady()

	if err := f.client.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the last node has all pods", func(context.Context) error {
		_, ready := f.pods("c")

		return wait.True(ready == 3)
	})
}

// TestModelledBudgets: an eviction waits for the budgets of the pod, a deletion does not.
func TestModelledBudgets(t *testing.T) {
	for name, c := range map[string]struct {
		spec    policyv1.PodDisruptionBudgetSpec
		allowed int32
	}{
		"a number":           {policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(2))}, 1},
		"a percentage":       {policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromString("50%"))}, 1},
		"most are away":      {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))}, 1},
		"none may be away":   {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0))}, 0},
		"least is no number": {policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromString("all"))}, 0},
		"most is no number":  {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromString("all"))}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newModelled(t)
			f.budget(c.spec)
			f.allReady()
			f.cordon(true, "a", "b", "c") // nothing comes back

			list, err := f.client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 || list.Items[0].Status.DisruptionsAllowed != c.allowed {
				t.Fatalf("budgets %+v, error %v", list, err)
			}

			nodes := []string{"a", "b"}

			for i := range c.allowed {
				if err := f.evict(nodes[i]); err != nil {
					t.Errorf("an eviction that the budget allows: %v", err)
				}
			}

			if err := f.evict(nodes[c.allowed]); !apierrors.IsTooManyRequests(err) {
				t.Errorf("an eviction that the budget forbids: %v", err)
			}

			all, _ := f.pods(nodes[c.allowed])
			if err := f.client.CoreV1().Pods("default").Delete(t.Context(), all[0].Name, metav1.DeleteOptions{}); err != nil {
				t.Errorf("a deletion: %v", err)
			}

			if _, ready := f.pods(""); ready != 2-int(c.allowed) {
				t.Errorf("%d pods are ready after a deletion", ready)
			}
		})
	}
}
