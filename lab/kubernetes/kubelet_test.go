package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/test/wait"
)

// kubeletOptions are those of a control-plane node with a fast heart.
func (c *controlPlane) kubeletOptions(name string) kubernetes.KubeletOptions {
	return kubernetes.KubeletOptions{
		NodeName: name, Address: c.address, Version: "v0.0.1", TalosVersion: "v1.13.9", Config: c.cfg, ControlPlane: true,
		BootID: "b00f1a54-0000-4000-8000-000000000001", MachineUUID: "c0ffee00-0000-4000-8000-000000000001",
		CPUs: 4, MemoryMiB: 8192, Log: c.log, Heartbeat: 200 * time.Millisecond,
		Client:         func() (clientset.Interface, error) { return clientset.NewForConfig(c.current().Config()) },
		APIServerReady: func(ctx context.Context) error { return c.current().Ready(ctx) },
	}
}

// worker is the config and the options of a worker of the same cluster.
func (c *controlPlane) worker(name string, patches ...string) kubernetes.KubeletOptions {
	o := c.kubeletOptions(name)
	o.ControlPlane, o.APIServerReady = false, nil
	o.Config = machineConfig(c.t, "https://"+c.address+":6443", machine.TypeWorker, patches...)

	return o
}

func (c *controlPlane) kubelet(o kubernetes.KubeletOptions) *kubernetes.Kubelet {
	k := kubernetes.StartKubelet(context.Background(), o)
	c.t.Cleanup(k.Stop)

	return k
}

// node waits until check accepts the Node object.
func (c *controlPlane) node(name string, check func(*corev1.Node) error) *corev1.Node {
	c.t.Helper()

	var node *corev1.Node

	eventually(c.t, "node "+name, func(ctx context.Context) error {
		var err error
		if node, err = c.client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}

		return check(node)
	})

	return node
}

// ready accepts a node with the given status of its Ready condition.
func ready(want corev1.ConditionStatus) func(*corev1.Node) error {
	return func(node *corev1.Node) error {
		for _, cond := range node.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status == want {
				return nil
			}
		}

		return fmt.Errorf("conditions %s", conditions(node))
	}
}

func taints(node *corev1.Node) []string {
	list := []string{}
	for _, t := range node.Spec.Taints {
		list = append(list, fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect))
	}

	slices.Sort(list)

	return list
}

func TestNodeRegisters(t *testing.T) {
	t.Parallel()

	c := quiet.join(t)
	c.cfg = patched(t, c.cfg,
		`machine: {nodeLabels: {rack: r1}, nodeTaints: {dedicated: "db:NoExecute"}, nodeAnnotations: {note: hi}}`)

	var told atomic.Int32

	o := c.kubeletOptions("n1")
	// An API server that is slow for a moment must not count as one that is gone.
	o.Heartbeat = 2 * time.Second
	o.OnReady = func(ready bool) {
		if ready {
			told.Add(1)
		}
	}
	c.kubelet(o)

	node := c.node("n1", ready(corev1.ConditionTrue))

	for key, want := range map[string]string{
		"kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux", "rack": "r1",
		"node-role.kubernetes.io/control-plane": "", "node.kubernetes.io/exclude-from-external-load-balancers": "",
	} {
		if got, ok := node.Labels[key]; !ok || got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}

	if node.Annotations["note"] != "hi" {
		t.Errorf("annotations %v", node.Annotations)
	}

	// The API server's own not-ready taint stays until a controller takes it away.
	want := []string{
		"dedicated=db:NoExecute", "node-role.kubernetes.io/control-plane=:NoSchedule", "node.kubernetes.io/not-ready=:NoSchedule",
	}
	if diff := cmp.Diff(want, taints(node)); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}

	info := node.Status.NodeInfo
	if info.KubeletVersion != "v1.36.4" || info.OSImage != "Talos (v1.13.9)" || info.BootID != o.BootID ||
		info.SystemUUID != o.MachineUUID {
		t.Errorf("node info %+v", info)
	}

	if diff := cmp.Diff([]corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: c.address}, {Type: corev1.NodeHostName, Address: "n1"},
	}, node.Status.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}

	if node.Status.Capacity.Cpu().Value() != 4 || node.Status.Capacity.Memory().Value() != 8<<30 {
		t.Errorf("capacity %v", node.Status.Capacity)
	}

	// The lease is written after the Node, and then again and again.
	var first time.Time

	eventually(t, "the lease is renewed", func(ctx context.Context) error {
		lease, err := c.client().CoordinationV1().Leases("kube-node-lease").Get(ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}

		if first.IsZero() {
			first = lease.Spec.RenewTime.Time
		}

		if !lease.Spec.RenewTime.After(first) {
			return errNotYet
		}

		return nil
	})

	// A node at rest writes nothing but its lease.
	if again := c.node("n1", ready(corev1.ConditionTrue)); again.ResourceVersion != node.ResourceVersion {
		t.Errorf("the node was written again:\n%s", cmp.Diff(node, again))
	}

	if told.Load() != 1 {
		t.Errorf("OnReady was called %d times", told.Load())
	}
}

func TestConfigChangesReachTheNode(t *testing.T) {
	t.Parallel()

	c := quiet.join(t)
	o := c.worker("w1", `machine: {nodeLabels: {rack: r1, zone: a}, nodeTaints: {dedicated: "db:NoExecute"}}`)
	k := c.kubelet(o)
	node := c.node("w1", ready(corev1.ConditionTrue))

	if _, ok := node.Labels["node-role.kubernetes.io/control-plane"]; ok {
		t.Error("a worker has the control-plane role")
	}

	// What other people put there stays.
	node.Labels["theirs"] = "yes"
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "theirs", Effect: corev1.TaintEffectNoSchedule})
	eventually(t, "another hand", func(ctx context.Context) error {
		_, err := c.client().CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})

		return err
	})

	k.SetConfig(machineConfig(t, "https://"+c.address+":6443", machine.TypeWorker,
		`machine: {nodeLabels: {zone: b}, nodeTaints: {fresh: NoSchedule}, kubelet: {image: "ghcr.io/siderolabs/kubelet:v1.36.9"}}`))

	c.node("w1", func(node *corev1.Node) error {
		_, rack := node.Labels["rack"]
		if rack || node.Labels["zone"] != "b" || node.Labels["theirs"] != "yes" {
			return fmt.Errorf("labels %v", node.Labels)
		}

		if got := strings.Join(taints(node), " "); !strings.Contains(got, "fresh=:NoSchedule") ||
			!strings.Contains(got, "theirs=:NoSchedule") || strings.Contains(got, "dedicated") {
			return fmt.Errorf("taints %s", got)
		}

		if v := node.Status.NodeInfo.KubeletVersion; v != "v1.36.9" {
			return fmt.Errorf("kubelet version %s", v)
		}

		return nil
	})
}

func TestDeletedNodeComesBack(t *testing.T) {
	t.Parallel()

	c := quiet.join(t)
	c.kubelet(c.worker("w2"))
	node := c.node("w2", ready(corev1.ConditionTrue))

	if err := c.client().CoreV1().Nodes().Delete(t.Context(), "w2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	c.node("w2", func(again *corev1.Node) error {
		if again.UID == node.UID {
			return errNotYet
		}

		return ready(corev1.ConditionTrue)(again)
	})
}

func TestMirrorPods(t *testing.T) {
	t.Parallel()

	c := start(t)

	var down atomic.Bool

	down.Store(true)

	o := c.kubeletOptions("n1")
	o.APIServerReady = func(ctx context.Context) error {
		if down.Load() {
			return errors.New("not ready")
		}

		return c.server.Ready(ctx)
	}
	k := c.kubelet(o)

	pods := func(want string) {
		t.Helper()
		eventually(t, "static pods "+want, func(ctx context.Context) error {
			list, err := c.client().CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}

			var got []string

			for _, pod := range list.Items {
				status := "unready"

				for _, cond := range pod.Status.Conditions {
					if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
						status = "ready"
					}
				}

				_, version, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
				got = append(got, fmt.Sprintf("%s %s %s %s", pod.Name, version, pod.Status.Phase, status))
			}

			slices.Sort(got)

			if all := strings.Join(got, ", "); all != want {
				return errors.New(all)
			}

			return nil
		})
	}

	pods("kube-apiserver-n1 v1.36.4 Running unready, kube-controller-manager-n1 v1.36.4 Running unready, " +
		"kube-scheduler-n1 v1.36.4 Running unready")
	down.Store(false)
	pods("kube-apiserver-n1 v1.36.4 Running ready, kube-controller-manager-n1 v1.36.4 Running ready, " +
		"kube-scheduler-n1 v1.36.4 Running ready")
	k.SetConfig(patched(t, c.cfg, "cluster: {scheduler: {image: registry.k8s.io/kube-scheduler:v1.36.9}}"))
	pods("kube-apiserver-n1 v1.36.4 Running ready, kube-controller-manager-n1 v1.36.4 Running ready, " +
		"kube-scheduler-n1 v1.36.9 Running ready")
}

func TestKubeletOutlivesTheAPIServer(t *testing.T) {
	t.Parallel()

	c := start(t)
	said := make(chan bool, 16)
	o := c.worker("w1")
	o.OnReady = func(ready bool) { said <- ready }

	c.kubelet(o)
	expect(t, said, true)
	c.server.Kill()
	// It cannot be observed, but the node has to call itself not ready by the time its cluster would.
	expect(t, said, false)
	c.run()
	expect(t, said, true)
}

// expect waits for the word. Others may come before: the first passes can meet an API server that is still making
// its namespaces.
func expect(t *testing.T, said <-chan bool, want bool) {
	t.Helper()

	for what := fmt.Sprintf("OnReady(%t)", want); wait.Done(t, what, said) != want; {
	}
}
