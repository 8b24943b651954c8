package workload_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

// start runs the etcd and the API server of one control-plane node at an address, and returns the PKI of its cluster.
func start(t *testing.T, address string) (*clusterstate.Bundle, clientset.Interface) {
	t.Helper()

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	bundle, err := pki.New(wait.Now())
	if err != nil {
		t.Fatal(err)
	}

	in, err := generate.NewInput("c", "https://"+address+":6443", "1.36.2", generate.WithSecretsBundle(bundle.Secrets()),
		generate.WithVersionContract(machineryconfig.TalosVersion1_13))
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := in.Config(configmachine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()

	member, err := etcd.Bootstrap(t.Context(), etcd.Options{
		Binary: filepath.Join(assets, "etcd"), Utl: filepath.Join(assets, "etcdutl"), Dir: filepath.Join(dir, "etcd"),
		Name: "n1", Address: address, CA: cfg.Cluster().Etcd().CA(),
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(member.Kill)
	wait.For(t, "etcd serves", member.Health)

	server, err := kubernetes.StartAPIServer(t.Context(), kubernetes.APIServerOptions{
		Binary: filepath.Join(assets, "kube-apiserver"), Dir: filepath.Join(dir, "kubernetes"), Name: "n1", Address: address,
		Config: cfg,
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(server.Kill)
	wait.For(t, "the API server is ready", server.Ready)

	c, err := clientset.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}

	return bundle, c
}

// TestWorkload: the first API server that responds is asked, and a drain takes one step at a time.
func TestWorkload(t *testing.T) {
	subnet := loopback.Subnet(t)
	address, silent := subnet+".1", subnet+".9"
	bundle, c := start(t, address)
	clients := &workload.Clients{Clock: clock.RealClock{}}

	version, err := clients.Version(t.Context(), bundle, []string{silent, address})
	if err != nil || version != "v1.36.2" {
		t.Errorf("version %q, %v", version, err)
	}

	blackHoles(t, clients, bundle, subnet, address)

	_, err = clients.Version(t.Context(), bundle, []string{silent})
	if failure.ClassOf(err) != failure.ClassTransient {
		t.Errorf("no API server: %v", err)
	}

	cluster, err := clients.Cluster(t.Context(), bundle, []string{silent, address})
	if err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the namespace is there", func(ctx context.Context) error {
		_, err := c.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})

		return err
	})
	create(t, c)

	ours := workload.NodeRef{Name: "w", UUID: "AB-1"}
	step := func(o workload.DrainOptions, want ...string) {
		t.Helper()

		left, err := cluster.Drain(t.Context(), ours, o)
		if err != nil || !slices.Equal(left, want) {
			t.Errorf("left %q, %v; want %q", left, err, want)
		}
	}
	own := workload.DrainOptions{GracePeriodSeconds: -1}

	// A node of that name, registered by another machine, is neither drained nor deleted, and the machine does not count
	// as drained. Nor does it if its own Node has another name.
	theirs := workload.NodeRef{Name: "w", UUID: "other"}
	for _, ref := range []workload.NodeRef{
		theirs, {Name: "w.example.org", UUID: "AB-1"}, {Name: "w.example.org", UUID: "other", BootID: "BOOT"},
	} {
		var unclear *workload.NodeUnclearError
		if left, err := cluster.Drain(t.Context(), ref, own); !errors.As(err, &unclear) {
			t.Errorf("draining %+v: %v, %v", ref, left, err)
		}
	}

	if n, err := c.CoreV1().Nodes().Get(t.Context(), "w", metav1.GetOptions{}); err != nil || n.Spec.Unschedulable {
		t.Errorf("the node is cordoned, for a machine that it may not belong to (%v)", err)
	}

	if err := cluster.DeleteNode(t.Context(), theirs); err != nil {
		t.Error(err)
	}

	step(own, "default/held (held by PodDisruptionBudget held)", "default/plain")

	n, err := c.CoreV1().Nodes().Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil || !n.Spec.Unschedulable {
		t.Errorf("the node is not cordoned (%v)", err)
	}

	// The firmware makes Talos and the kubelet report different UUIDs, and the boot is the same.
	ours = workload.NodeRef{Name: "w", UUID: "other", BootID: "BOOT"}

	// What was asked to leave is not asked again; without a kubelet it never ends.
	step(own, "default/held (held by PodDisruptionBudget held)", "default/plain (is ending)")
	step(workload.DrainOptions{GracePeriodSeconds: 0, Force: true}, "default/held", "default/plain (is ending)")

	if _, err := c.CoreV1().Pods("default").Get(t.Context(), "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a forced pod is still there: %v", err)
	}

	for _, name := range []string{"daemon", "static", "elsewhere"} {
		p, err := c.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || p.DeletionTimestamp != nil {
			t.Errorf("%s was to stay: %v", name, err)
		}
	}

	proof(t, c, cluster)

	for range 2 {
		if err := cluster.DeleteNode(t.Context(), ours); err != nil {
			t.Error(err)
		}
	}

	// The Node was deleted, and the kubelet has not ended this pod.
	step(own, "default/plain (is ending)")

	now := int64(0)
	if err := c.CoreV1().Pods("default").Delete(t.Context(), "plain", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Error(err)
	}

	step(own)
	step(running(nil, nil))

	var unclear *workload.NodeUnclearError
	if left, err := cluster.Drain(t.Context(), ours, running(nil, errUntold)); !errors.As(err, &unclear) ||
		!errors.Is(err, errUntold) {
		t.Errorf("it is unknown what the machine runs: %q, %v", left, err)
	}

	left, err := cluster.Drain(t.Context(), ours, running([]string{"default/plain"}, nil))
	if !errors.As(err, &unclear) || !strings.HasSuffix(unclear.Why, "and the machine still runs default/plain") {
		t.Errorf("the machine runs a pod: %q, %v", left, err)
	}

	removeNode(t, c, cluster)
	owners(t, c, cluster)
	notServed(t, cluster)
	obstacles(t, c, cluster)
	bootstrapManifests(t, c, cluster)
}

// errUntold is why a machine does not report which pods it runs.
var errUntold = errors.New("no response")

// running are the options of a drain of a machine that reports some pods.
func running(pods []string, err error) workload.DrainOptions {
	return workload.DrainOptions{
		GracePeriodSeconds: -1, Running: func(context.Context) ([]string, error) { return slices.Clone(pods), err },
	}
}

// owners: of control planes that claim a cluster the first one has it, until the next one names it as the former owner.
func owners(t *testing.T, c clientset.Interface, cluster *workload.Cluster) {
	t.Helper()

	for _, step := range []struct{ uid, former, want string }{
		{"a", "", "a"}, {"a", "", "a"}, {"b", "", "a"}, {"b", "c", "a"}, {"b", "a", "b"}, {"a", "", "b"}, {"b", "a", "b"},
	} {
		got, err := cluster.Own(t.Context(), workload.Claim{UID: step.uid, Name: "ns/" + step.uid, Former: step.former})
		if err != nil || got != step.want {
			t.Errorf("%+v: %s, %v", step, got, err)
		}
	}

	record, err := c.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), workload.OwnerConfigMap, metav1.GetOptions{})
	if err != nil || record.Data["controlPlane"] != "ns/b" {
		t.Errorf("the record: %v, %v", record.Data, err)
	}

	for _, step := range []struct{ ends, next, want string }{{"a", "c", "b"}, {"b", "c", "c"}} {
		if err := cluster.Disown(t.Context(), step.ends); err != nil {
			t.Error(err)
		}

		if got, err := cluster.Own(t.Context(), workload.Claim{UID: step.next}); err != nil || got != step.want {
			t.Errorf("%+v: %s, %v", step, got, err)
		}
	}
}

// blackHoles: API servers that are gone without a word do not hold up the question to one that is there.
func blackHoles(t *testing.T, clients *workload.Clients, bundle *clusterstate.Bundle, subnet, address string) {
	t.Helper()

	var addresses []string

	for _, last := range []string{".21", ".22", ".23"} {
		l, err := net.Listen("tcp", subnet+last+":6443") // nothing accepts
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()

		addresses = append(addresses, subnet+last)
	}

	// Less than all of them take one after the other.
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()

	if version, err := clients.Version(ctx, bundle, append(addresses, address)); err != nil || version != "v1.36.2" {
		t.Errorf("behind three that are gone: %q, %v", version, err)
	}
}

// removeNode: a Node goes only as it was read.
func removeNode(t *testing.T, c clientset.Interface, cluster *workload.Cluster) {
	t.Helper()

	node, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "ghost", Annotations: map[string]string{v1alpha1.KeepNodeAnnotation: "true"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	node.Status = corev1.NodeStatus{
		NodeInfo:   corev1.NodeSystemInfo{SystemUUID: "ab-2", OSImage: "Talos (v1.13.9)"},
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "ghost"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.9"}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
	}

	if node, err = c.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	read, err := cluster.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	want := []safety.ClusterNode{{
		Name: "ghost", UID: string(node.UID), Version: node.ResourceVersion, SystemUUID: "ab-2", Addresses: []string{"10.0.0.9"},
		Silent: true, Talos: true, Kept: true,
	}}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Error(diff)
	}

	// It comes back in the meantime.
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	if _, err := c.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	if removed, err := cluster.RemoveNode(t.Context(), read[0]); err != nil || removed {
		t.Errorf("a node that came back: %v, %v", removed, err)
	}

	if read, err = cluster.Nodes(t.Context()); err != nil || !read[0].Ready || read[0].Silent {
		t.Fatalf("%+v, %v", read, err)
	}

	readyNodes(t, cluster)

	for _, want := range []bool{true, false} {
		if removed, err := cluster.RemoveNode(t.Context(), read[0]); err != nil || removed != want {
			t.Errorf("removed: %v, %v", removed, err)
		}
	}
}

// readyNodes: a ready Node keeps a returned machine from being wiped, whether it has one of the known names or only the
// UUID of the machine.
func readyNodes(t *testing.T, cluster *workload.Cluster) {
	t.Helper()

	connect := func(context.Context) (*workload.Cluster, error) { return cluster, nil }

	for name, tc := range map[string]struct {
		found safety.Identity
		want  safety.NodeState
	}{
		"by its name":      {safety.Identity{Name: "w-0", NodeName: "ghost", UUID: "other"}, safety.NodeReady},
		"by its UUID":      {safety.Identity{Name: "w-0", NodeName: "gone", UUID: "AB-2"}, safety.NodeReady},
		"by neither":       {safety.Identity{Name: "w-0", NodeName: "gone", UUID: "other"}, safety.NodeNotReady},
		"without any UUID": {safety.Identity{Name: "w-0", NodeName: "gone"}, safety.NodeNotReady},
	} {
		f := safety.Fencing{Found: tc.found}

		workload.ObserveNode(t.Context(), connect, &f)

		if f.Node != tc.want || (f.NodeName == "ghost") != (tc.want == safety.NodeReady) {
			t.Errorf("%s: %d, %q", name, f.Node, f.NodeName)
		}
	}
}

// create makes a node with pods of every kind: plain, held by a budget, of a DaemonSet, static, and one elsewhere.
func create(t *testing.T, c clientset.Interface) {
	t.Helper()

	ctx := t.Context()
	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	node, err := c.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	must(err)

	node.Status.NodeInfo.SystemUUID, node.Status.NodeInfo.BootID = "ab-1", "boot"
	_, err = c.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	must(err)

	// Nothing here makes the account that every pod names.
	_, err = c.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	must(err)

	labels := map[string]string{"app": "d"}
	daemon, err := c.AppsV1().DaemonSets("default").Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/d:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	must(err)

	one := intstr.FromInt32(1)
	budget, err := c.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "held"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}},
		},
	}, metav1.CreateOptions{})
	must(err)

	// As the disruption controller does. Until it has, an eviction is answered "try again in ten seconds".
	budget.Status.ObservedGeneration = budget.Generation
	_, err = c.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(ctx, budget, metav1.UpdateOptions{})
	must(err)

	for _, name := range []string{"plain", "held", "daemon", "static", "elsewhere"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
			Spec: corev1.PodSpec{
				NodeName: "w", Containers: []corev1.Container{{Name: "c", Image: "example.org/p:1"}},
				AutomountServiceAccountToken: new(bool),
			},
		}

		switch name {
		case "daemon":
			owner := metav1.NewControllerRef(daemon, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
			pod.OwnerReferences = []metav1.OwnerReference{*owner}
		case "static":
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		case "elsewhere":
			pod.Spec.NodeName = "other"
		}

		made, err := c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		must(err)

		made.Status.Phase = corev1.PodRunning
		_, err = c.CoreV1().Pods("default").UpdateStatus(ctx, made, metav1.UpdateOptions{})
		must(err)
	}
}

// proof: a restore sees the revision of etcd, all Secrets, and whether a kubelet has been heard of since.
func proof(t *testing.T, c clientset.Interface, cluster *workload.Cluster) {
	t.Helper()

	ctx, since := t.Context(), time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

	before, err := cluster.Contents(ctx)
	if err != nil || before.Revision == 0 || before.Namespaces == 0 {
		t.Fatalf("%+v, %v", before, err)
	}

	for i := range 3 {
		if _, err := c.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i)},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	after, err := cluster.Contents(ctx)
	if err != nil || after.Secrets != before.Secrets+3 || after.Revision < before.Revision+3 || after.Namespaces != before.Namespaces {
		t.Errorf("%+v, after three Secrets %+v, %v", before, after, err)
	}

	alive := func(want bool, what string, ref workload.NodeRef) {
		t.Helper()

		if got, err := cluster.Alive(ctx, ref, since); err != nil || got != want {
			t.Errorf("%s: %t, %v", what, got, err)
		}
	}
	ours := workload.NodeRef{Name: "w", UUID: "AB-1"}

	alive(false, "no lease", ours)

	leases := c.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	old := metav1.NewMicroTime(since.Add(-time.Hour))

	lease, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "w"}, Spec: coordinationv1.LeaseSpec{RenewTime: &old},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	ready := func(status corev1.ConditionStatus) {
		t.Helper()

		n, err := c.CoreV1().Nodes().Get(ctx, "w", metav1.GetOptions{})
		if err == nil {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
			_, err = c.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	ready(corev1.ConditionTrue)
	alive(false, "a lease from before", ours)

	now := metav1.NewMicroTime(since.Add(time.Minute))
	lease.Spec.RenewTime = &now

	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	alive(true, "a lease from now", ours)
	alive(false, "another machine of the name", workload.NodeRef{Name: "w", UUID: "other"})
	alive(false, "no such node", workload.NodeRef{Name: "x"})
	ready(corev1.ConditionFalse)
	alive(false, "not ready", ours)
}
