package talosmachine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kube "k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/wait"
)

// api opens the Kubernetes API of the cluster.
func (e *env) api() kube.Interface {
	e.Helper()

	cfg, err := e.state().Bundle.RESTConfig("https://"+e.address(1)+":6443", wait.Now(), time.Hour)
	if err != nil {
		e.Fatal(err)
	}

	c, err := kube.NewForConfig(cfg)
	if err != nil {
		e.Fatal(err)
	}

	return c
}

// keep runs a pod on a node, with a PodDisruptionBudget that never permits its eviction.
func (e *env) keep(nodeName string) string {
	e.Helper()

	c, name := e.api(), "on-"+nodeName
	labels := map[string]string{"app": name}
	all := intstr.FromString("100%")

	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-stays"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: nodeName, Containers: []corev1.Container{{Name: "c", Image: "example.org/kept:1"}},
			AutomountServiceAccountToken: new(bool),
		},
	}

	budget, err := c.PolicyV1().PodDisruptionBudgets("default").Create(e.Context(), budget, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}

	// As the disruption controller does.
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DesiredHealthy: 1, ExpectedPods: 1}
	if _, err := c.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(e.Context(), budget, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}

	e.Eventually("a pod is bound to "+nodeName, func(context.Context) error {
		_, err := c.CoreV1().Pods("default").Create(e.Context(), pod, metav1.CreateOptions{})

		return err
	})
	e.Eventually(name+" runs", func(context.Context) error {
		p, err := c.CoreV1().Pods("default").Get(e.Context(), name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}

		return err
	})

	return name
}

func (e *env) podExists(name string) bool {
	e.Helper()

	p, err := e.api().CoreV1().Pods("default").Get(e.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		e.Fatal(err)
	}

	return err == nil && p.DeletionTimestamp == nil
}

// takeOut removes a machine from the cluster, as its group does when it is no longer listed.
func (e *env) takeOut(name string, drain *v1alpha1.DrainOptions) {
	e.Helper()
	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		m.Spec.OnDelete, m.Spec.Drain = v1alpha1.OnDeleteDecommission, drain
	})

	e.Delete(e.machine(name))
}

// holds reconciles a machine that is being removed a few times, and compares what it waits for.
func (e *env) holds(name, reason, part string) {
	e.Helper()

	for range 3 {
		m, _, err := e.pass(name)
		if err != nil {
			e.Fatal(err)
		}

		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionDeleting)
		if c == nil || c.Reason != reason || !strings.Contains(c.Message, part) {
			e.Fatalf("%s waits for %+v; want %s, %q", name, c, reason, part)
		}
	}

	if n := e.nodes[name].Faults().Calls("Reset"); n > 0 {
		e.Errorf("%s was asked to reset %d times", name, n)
	}
}

// leaves reconciles a machine until it is removed: wiped, and its Node object and TalosMachine deleted.
func (e *env) leaves(name string) {
	e.Helper()
	e.Eventually(name+" is out", func(context.Context) error {
		_, err := e.r.Reconcile(e.Context(), ctrl.Request{NamespacedName: e.Key(name)})
		if gerr := e.Admin.Get(e.Context(), e.Key(name), &v1alpha1.TalosMachine{}); !apierrors.IsNotFound(gerr) {
			return fmt.Errorf("it is there (%w), last pass: %w", gerr, err)
		}

		return nil
	})

	if s := e.nodes[name].Status(); s.Stage != "maintenance" {
		e.Errorf("%s is not wiped: %+v", name, s)
	}

	if _, err := e.api().CoreV1().Nodes().Get(e.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		e.Errorf("the Node object of %s: %v", name, err)
	}
}

// TestDrainTimeout: what happens to a pod whose PodDisruptionBudget never permits its eviction, in a real API server.
// Before the timeout, the budget is respected in all cases.
func TestDrainTimeout(t *testing.T) {
	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	e := newEnv(t)
	e.assets = assets
	e.found(1, 3)

	held := func(pod string) string { return "default/" + pod + " (held by PodDisruptionBudget " + pod + "-stays)" }
	timeout := &metav1.Duration{Duration: time.Minute}
	pods := map[string]string{}

	for _, name := range []string{"w-0", "w-1", "w-2"} {
		pods[name] = e.keep(name)
	}

	for name, policy := range map[string]v1alpha1.DrainTimeout{
		"w-0": "", "w-1": v1alpha1.DrainForce, "w-2": v1alpha1.DrainSkip,
	} {
		e.takeOut(name, &v1alpha1.DrainOptions{Timeout: timeout, OnTimeout: policy})
		e.holds(name, v1alpha1.ReasonDraining, held(pods[name]))

		if !e.cordoned(name) || !e.podExists(pods[name]) {
			t.Errorf("%s: cordoned %t, its pod is there %t", name, e.cordoned(name), e.podExists(pods[name]))
		}
	}

	e.sleep(time.Minute + time.Second)

	// Force ignores the budget.
	e.leaves("w-1")

	if e.podExists(pods["w-1"]) {
		t.Error("Force left the pod")
	}

	// Skip leaves the pod running.
	e.leaves("w-2")

	if !e.podExists(pods["w-2"]) {
		t.Error("Skip deleted the pod")
	}

	// Hold, the default, waits for user action without a limit.
	e.holds("w-0", v1alpha1.ReasonDrainHeld, held(pods["w-0"]))
	e.sleep(time.Hour)
	e.holds("w-0", v1alpha1.ReasonDrainHeld, "drain.onTimeout")

	if !e.podExists(pods["w-0"]) {
		t.Error("Hold evicted the pod")
	}

	change(e, &v1alpha1.TalosWorker{}, group, func(g *v1alpha1.TalosWorker) {
		g.Spec.Drain = &v1alpha1.DrainOptions{OnTimeout: v1alpha1.DrainForce}
	})
	e.leaves("w-0")
}

// TestDrainRegisteredName: the Node that is drained, and deleted in the end, is the one that the kubelet has registered,
// also if its name is not the hostname. Nothing is reset while a pod runs there.
func TestDrainRegisteredName(t *testing.T) {
	const fqdn = "w-0.example.org"

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	e := newEnv(t)
	e.assets = assets
	e.createGroups(1)
	e.createState()
	change(e, &v1alpha1.TalosWorker{}, group, func(g *v1alpha1.TalosWorker) {
		g.Spec.ConfigPatches = []string{
			"machine: {kubelet: {registerWithFQDN: true}}",
			"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: " + fqdn + "\n",
		}
	})
	e.boot("cp-0", 1, nil)
	e.boot("w-0", 100, &v1alpha1.ObjectReference{Name: group})
	e.bootstrap("cp-0")

	m := e.until("w-0", "it is ready", func(m *v1alpha1.TalosMachine) bool { return m.Status.WorkingHash != "" })
	if m.Status.NodeName != fqdn || m.Status.Hostname != "w-0" {
		t.Errorf("Node %s of host %s", m.Status.NodeName, m.Status.Hostname)
	}

	pod := e.keep(fqdn)

	e.takeOut("w-0", &v1alpha1.DrainOptions{Timeout: &metav1.Duration{Duration: time.Minute}})
	e.holds("w-0", v1alpha1.ReasonDraining, "default/"+pod)

	if !e.cordoned(fqdn) || !e.podExists(pod) {
		t.Errorf("cordoned %t, the pod is there %t", e.cordoned(fqdn), e.podExists(pod))
	}

	change(e, &v1alpha1.TalosWorker{}, group, func(g *v1alpha1.TalosWorker) {
		g.Spec.Drain = &v1alpha1.DrainOptions{OnTimeout: v1alpha1.DrainForce}
	})
	e.sleep(time.Minute + time.Second)
	e.leaves("w-0")

	if _, err := e.api().CoreV1().Nodes().Get(t.Context(), fqdn, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Node object: %v", err)
	}
}

// TestDrainWithoutNode: a machine without a Node, which an old status does not name either, is not wiped while it runs
// pods that Kubernetes has already deleted. Its status gets the name from the machine.
func TestDrainWithoutNode(t *testing.T) {
	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	e := newEnv(t)
	e.assets = assets
	e.createGroups(1)
	e.createState()
	change(e, &v1alpha1.TalosWorker{}, group, func(g *v1alpha1.TalosWorker) {
		g.Spec.ConfigPatches = []string{"machine: {kubelet: {skipNodeRegistration: true}, pods: [{apiVersion: v1, kind: Pod, " +
			"metadata: {name: own, namespace: kube-system}, spec: {containers: [{name: c, image: own:1}]}}]}"}
	})
	e.boot("cp-0", 1, nil)
	e.boot("w-0", 100, &v1alpha1.ObjectReference{Name: group})
	e.bootstrap("cp-0")

	m := e.until("w-0", "it is configured", func(m *v1alpha1.TalosMachine) bool { return m.Status.NodeName != "" })
	m.Status.NodeName = ""
	e.UpdateStatus(m)
	e.nodes["w-0"].Outlive("default/web-0", "default/web-w-0", "kube-system/own-w-0")

	e.Eventually("the API server is ready", func(ctx context.Context) error {
		_, err := e.api().Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)

		return err
	})

	const left = "there is no Node w-0, and the machine still runs default/web-0, default/web-w-0"

	e.takeOut("w-0", &v1alpha1.DrainOptions{Timeout: &metav1.Duration{Duration: time.Minute}})
	e.holds("w-0", v1alpha1.ReasonDraining, left)

	e.nodes["w-0"].Faults().Fail("Containers", codes.Unavailable, 1, 0)
	e.holds("w-0", v1alpha1.ReasonDraining, "it is unknown which pods the machine runs")

	// A container runtime that is broken for good holds the drain, even with Force, until a user decides.
	e.sleep(time.Minute + time.Second)

	for _, policy := range []v1alpha1.DrainTimeout{v1alpha1.DrainHold, v1alpha1.DrainForce} {
		change(e, &v1alpha1.TalosWorker{}, group, func(g *v1alpha1.TalosWorker) {
			g.Spec.Drain = &v1alpha1.DrainOptions{OnTimeout: policy}
		})
		e.holds("w-0", v1alpha1.ReasonDrainHeld, "it is unknown which pods the machine runs ("+e.address(100)+" did not respond "+
			"to the request for its containers); repair or reboot the machine, or set drain.onTimeout to Skip")
	}

	e.nodes["w-0"].Faults().Clear()
	e.holds("w-0", v1alpha1.ReasonDrainHeld, left)

	e.nodes["w-0"].Outlive("kube-system/own-w-0")

	var log strings.Builder

	ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}))
	if _, err := e.r.Reconcile(ctx, ctrl.Request{NamespacedName: e.Key("w-0")}); err != nil {
		t.Error(err)
	}

	if !strings.Contains(log.String(), "counts as drained") || !strings.Contains(log.String(), `"node"="w-0"`) {
		t.Errorf("the log does not say why nothing was evicted: %s", log.String())
	}

	e.leaves("w-0")
}
