package talconfig_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kube "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/wait"
)

// busy is a cluster with a worker that runs two pods.
type busy struct {
	*running

	cfg *rest.Config
	api kube.Interface
}

func newBusy(t *testing.T) *busy {
	t.Helper()

	b := &busy{running: newRunning(t, 1)}
	b.reboots = true

	bundle, err := clusterstate.ParseBundle(b.bundle)
	if err != nil {
		t.Fatal(err)
	}

	server := "https://" + b.nodes[0].Address() + ":6443"

	if b.cfg, err = bundle.RESTConfig(server, wait.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}

	if b.api, err = kube.NewForConfig(b.cfg); err != nil {
		t.Fatal(err)
	}

	good, err := bundle.Kubeconfig(clusterstate.KubeconfigParams{ClusterName: "prod", Server: server}, wait.Now())
	if err != nil {
		t.Fatal(err)
	}

	b.write("kubeconfig", string(good))
	b.write("silent", strings.ReplaceAll(string(good), ":6443", ":6444"))

	labels, replicas := map[string]string{"app": "web"}, int32(2)
	web := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/web:1"}}},
		}},
	}

	if _, err := b.api.AppsV1().Deployments("default").Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	b.runs("web-1", "web-2")

	return b
}

// runs waits until the worker runs some pods, and no others.
func (b *busy) runs(names ...string) {
	b.t.Helper()
	wait.For(b.t, fmt.Sprintf("%v run on w-1", names), func(ctx context.Context) error {
		list, err := b.api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=w-1"})
		if err != nil {
			return err
		}

		var got []string

		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				got = append(got, p.Name)
			}
		}

		if !slices.Equal(got, names) {
			return fmt.Errorf("%v run", got)
		}

		return nil
	})
}

// cordoned are the Nodes that are cordoned, with the mark of each.
func (b *busy) cordoned() string {
	b.t.Helper()

	list, err := b.api.CoreV1().Nodes().List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}

	var out []string

	for i := range list.Items {
		if n := &list.Items[i]; n.Spec.Unschedulable || n.Annotations[v1alpha1.CordonedAnnotation] != "" {
			out = append(out, n.Name+"="+n.Annotations[v1alpha1.CordonedAnnotation])
		}
	}

	return strings.Join(out, " ")
}

// reboot returns whether the worker has rebooted meanwhile.
func (b *busy) reboot(do func()) bool {
	before := b.nodes[3].Status().BootID

	do()

	return b.nodes[3].Status().BootID != before
}

var (
	applyAll    = []string{"apply", "-c", "FOLDER/talconfig.yaml"}
	applyWorker = append(slices.Clone(applyAll), "--yes", "--node", "w-1")
	force       = []string{"--drain-timeout", "0s", "--on-drain-timeout", "Force"}
)

func with(words []string, more ...string) []string { return slices.Concat(words, more) }

// TestApplyDrains: pods leave a node before it reboots, and return once it is healthy. What another client has cordoned
// stays cordoned, and what an earlier run has cordoned does not.
func TestApplyDrains(t *testing.T) {
	t.Parallel()

	b := newBusy(t)

	byHand := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := b.api.CoreV1().Nodes().Patch(t.Context(), "cp-1", types.StrategicMergePatchType, byHand,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	b.configure("one")
	b.drainAll()

	all := intstr.FromString("100%")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "stay"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}

	if _, err := b.api.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	b.hold()
	b.byHand()
	b.unlisted()
	b.skip()
	b.withoutKubernetes()
	b.unhealthy()
	b.undrained()
	b.lostMeanwhile()
}

// undrained: a run without drains uncordons what an earlier one has left cordoned.
func (b *busy) undrained() {
	b.t.Helper()
	b.configure("seven")

	if _, _, err := b.run(with(applyWorker, "--drain-timeout", "1s")...); err == nil || b.cordoned() != "cp-1= w-1=apply/prod" {
		b.t.Errorf("held: %v, cordoned: %s", err, b.cordoned())
	}

	if !b.reboot(func() {
		if out := b.mustRun(with(applyWorker, "--no-drain")...); !strings.Contains(out, "w-1: uncordoned.") {
			b.t.Errorf("without a drain: %s", out)
		}
	}) {
		b.t.Error("w-1 was not rebooted")
	}

	if got := b.cordoned(); got != "cp-1=" {
		b.t.Errorf("cordoned: %s", got)
	}
}

// drainAll changes all nodes.
func (b *busy) drainAll() {
	b.t.Helper()

	out, _, err := b.run(with(applyAll, "--dry-run")...)
	if err == nil || !strings.Contains(err.Error(), "w-1 would reboot with a change of HostnameConfig") ||
		!strings.Contains(err.Error(), "which could not be tried") {
		b.t.Errorf("what cannot be tried: %v, %s", err, out)
	}

	out, errOut, err := b.run(with(applyAll, "--dry-run", "--untried")...)
	if exit.CodeOf(err) != 2 || strings.Count(out, "is drained, reboots") != 4 ||
		!strings.Contains(errOut, "cp-1 was cordoned by another client") || b.cordoned() != "cp-1=" {
		b.t.Errorf("a dry run: %v, %s%s, cordoned: %s", err, out, errOut, b.cordoned())
	}

	out = b.mustRun(with(applyAll, "--yes", "--untried")...)

	drained, applied := strings.Index(out, "w-1: drained."), strings.Index(out, "w-1: applying")
	if !strings.Contains(out, "(4 of 4)") || strings.Count(out, ": uncordoned.") != 3 || drained < 0 || applied < drained {
		b.t.Errorf("all nodes: %s", out)
	}

	for _, pod := range []string{"web-1", "web-2"} {
		if i := strings.Index(out, "w-1: default/"+pod+" has left."); i < 0 || i > applied {
			b.t.Errorf("%s did not leave before the reboot: %s", pod, out)
		}
	}

	if got := b.cordoned(); got != "cp-1=" {
		b.t.Errorf("cordoned: %s", got)
	}

	for _, n := range b.nodes {
		if moved := n.Faults().Calls("EtcdForfeitLeadership") > 0; moved != strings.HasPrefix(n.Name(), "cp-") {
			b.t.Errorf("%s was asked to move the leadership of etcd: %t", n.Name(), moved)
		}
	}

	b.runs("web-3", "web-4")
}

// hold: pods that may not be evicted hold the reboot. The next run uncordons the node, although it has nothing to change.
func (b *busy) hold() {
	b.t.Helper()
	b.configure("two")

	if b.reboot(func() {
		out, _, err := b.run(with(applyWorker, "--drain-timeout", "1s")...)
		if err == nil || !strings.Contains(out, "w-1: waiting for default/web-3 (held by PodDisruptionBudget stay), default/web-4") ||
			!strings.Contains(err.Error(), "not drained after 1s, because of default/web-3 (held by PodDisruptionBudget stay)") ||
			!strings.Contains(err.Error(), "the node stays cordoned until then") {
			b.t.Errorf("held: %v, %s", err, out)
		}
	}) {
		b.t.Error("w-1 was rebooted with its pods")
	}

	if got := b.cordoned(); got != "cp-1= w-1=apply/prod" {
		b.t.Errorf("cordoned: %s", got)
	}

	b.runs("web-3", "web-4")
	b.configure("one")

	out, _, err := b.run(with(applyAll, "--dry-run")...)
	if exit.CodeOf(err) != 2 || !strings.Contains(out, "0 nodes would change") ||
		!strings.Contains(out, "1 node that an earlier run has left cordoned would be uncordoned") {
		b.t.Errorf("after a run that was held: %v, %s", err, out)
	}

	if b.reboot(func() { b.mustRun(applyWorker...) }) {
		b.t.Error("w-1 was rebooted without a change")
	}

	if got := b.cordoned(); got != "cp-1=" {
		b.t.Errorf("cordoned: %s", got)
	}
}

// schedulable cordons the worker as kubectl does, or uncordons it.
func (b *busy) schedulable(is bool) {
	b.t.Helper()

	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, !is)
	if _, err := b.api.CoreV1().Nodes().Patch(b.t.Context(), "w-1", types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// byHand: a drain is interrupted, and the node is uncordoned manually. The next run removes its mark, so that a manual
// cordon later on stays.
func (b *busy) byHand() {
	b.t.Helper()
	b.configure("two")

	err := b.interruptAt("w-1: waiting for default/web-3", applyWorker...)
	if err == nil || !strings.Contains(err.Error(), "w-1: interrupted while draining it; nothing was sent to it; "+
		"0 of 1 nodes were changed, and no other one is: run the command again to go on; the node stays cordoned until then") {
		b.t.Errorf("a drain was interrupted: %v", err)
	}

	if got := b.cordoned(); got != "cp-1= w-1=apply/prod" {
		b.t.Errorf("cordoned: %s", got)
	}

	b.schedulable(true)
	b.configure("one")

	out, _, err := b.run(with(applyWorker, "--dry-run")...)
	if exit.CodeOf(err) != 2 || !strings.Contains(out, "1 node that another client has uncordoned would lose the mark") {
		b.t.Errorf("a node that was uncordoned: %v, %s", err, out)
	}

	if b.mustRun(applyWorker...); b.cordoned() != "cp-1=" {
		b.t.Errorf("the mark stays: %s", b.cordoned())
	}

	b.schedulable(false)

	if b.mustRun(applyWorker...); b.cordoned() != "cp-1= w-1=" {
		b.t.Errorf("a node that was cordoned manually: %s", b.cordoned())
	}

	b.schedulable(true)
}

// unlisted: the node is cordoned, and its pods cannot be listed. The run says what it leaves, and the next one goes on.
func (b *busy) unlisted() {
	b.t.Helper()
	b.configure("two")

	var hides atomic.Bool

	hides.Store(true)

	_, _, err := b.run(with(applyWorker, "--drain-timeout", "1s", "--kubeconfig", b.proxy(&hides, "/api/v1/pods"))...)
	if err == nil || !strings.Contains(err.Error(), "it is not drained after 1s") ||
		!strings.Contains(err.Error(), "the node stays cordoned until then") || b.cordoned() != "cp-1= w-1=apply/prod" {
		b.t.Errorf("the pods are not listed: %v, cordoned: %s", err, b.cordoned())
	}

	b.configure("one")

	if b.mustRun(applyWorker...); b.cordoned() != "cp-1=" {
		b.t.Errorf("cordoned: %s", b.cordoned())
	}
}

// skip: the pods that remain are rebooted with the node, or deleted.
func (b *busy) skip() {
	b.t.Helper()
	b.configure("two")

	if !b.reboot(func() {
		out := b.mustRun(with(applyWorker, "--drain-timeout", "1s", "--on-drain-timeout", "Skip")...)
		if !strings.Contains(out, "w-1: reboots regardless of default/web-3 (held by PodDisruptionBudget stay)") {
			b.t.Errorf("skipped: %s", out)
		}
	}) {
		b.t.Error("w-1 was not rebooted")
	}

	b.runs("web-3", "web-4")
	b.configure("three")

	if !b.reboot(func() { b.mustRun(slices.Concat(applyWorker, force, []string{"--kubeconfig", "FOLDER/kubeconfig"})...) }) {
		b.t.Error("w-1 was not rebooted")
	}

	b.runs("web-5", "web-6")

	if got := b.cordoned(); got != "cp-1=" {
		b.t.Errorf("cordoned: %s", got)
	}
}

// withoutKubernetes: nothing that reboots is changed, unless the user says so.
func (b *busy) withoutKubernetes() {
	b.t.Helper()
	b.configure("four")

	before, silent := b.mutating(), []string{"--kubeconfig", "FOLDER/silent"}

	_, _, err := b.run(with(applyWorker, silent...)...)
	if err == nil || !strings.Contains(err.Error(), "w-1 cannot be drained before the reboot: ") ||
		!strings.Contains(err.Error(), "--no-drain; nothing was changed") {
		b.t.Errorf("without Kubernetes: %v", err)
	}

	if after := b.mutating(); !slices.Equal(after, before) {
		b.t.Errorf("the nodes were written to: %v, %v", before, after)
	}

	if _, _, err := b.run(with(applyWorker, "--kubeconfig", "FOLDER/missing")...); err == nil ||
		!strings.Contains(err.Error(), "reading --kubeconfig") {
		b.t.Errorf("a kubeconfig that does not exist: %v", err)
	}

	if _, _, err := b.run(with(applyWorker, "--on-drain-timeout", "hold")...); err == nil ||
		!strings.Contains(err.Error(), `--on-drain-timeout is Hold, Force or Skip, not "hold"`) {
		b.t.Errorf("an unknown word: %v", err)
	}

	if !b.reboot(func() {
		if out := b.mustRun(slices.Concat(applyWorker, silent, []string{"--no-drain"})...); !strings.Contains(out, "reboots, is not drained") {
			b.t.Errorf("without a drain: %s", out)
		}
	}) {
		b.t.Error("w-1 was not rebooted")
	}

	b.runs("web-5", "web-6")

	_, errOut, err := b.run(with(applyWorker, silent...)...)
	if err != nil || !strings.Contains(errOut, "it is unknown whether an earlier run has left nodes cordoned") {
		b.t.Errorf("nothing reboots: %v, %s", err, errOut)
	}
}

// proxy forwards requests to the Kubernetes API, and refuses those for a path while it hides it. It returns the
// kubeconfig.
func (b *busy) proxy(hides *atomic.Bool, path string) string {
	b.t.Helper()

	transport, err := rest.TransportFor(b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}

	target, err := url.Parse(b.cfg.Host)
	if err != nil {
		b.t.Fatal(err)
	}

	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = transport

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hides.Load() && r.URL.Path == path {
			http.Error(w, "hidden", http.StatusServiceUnavailable)

			return
		}

		forward.ServeHTTP(w, r)
	}))
	b.t.Cleanup(server.Close)

	b.write("proxy", "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n"+
		"clusters: [{name: c, cluster: {server: '"+server.URL+"'}}]\n")

	return "FOLDER/proxy"
}

// unhealthy: a node of which Kubernetes does not tell that it is ready stays cordoned until a later run finds it healthy.
func (b *busy) unhealthy() {
	b.t.Helper()
	b.configure("five")

	var hides atomic.Bool

	path := b.proxy(&hides, "/api/v1/nodes/w-1")
	out := &hook{call: func(text string) {
		if strings.HasPrefix(text, "w-1: applying") {
			hides.Store(true)
		}
	}}

	if !b.reboot(func() {
		err := b.follow(out, slices.Concat(applyWorker, force, []string{"--timeout", "25s", "--kubeconfig", path})...)
		if err == nil || !strings.Contains(err.Error(), "it has not become healthy with the new config: ") ||
			!strings.Contains(err.Error(), "the node stays cordoned until then") {
			b.t.Errorf("a Node that is not known to be ready: %v, %s", err, out)
		}
	}) {
		b.t.Error("w-1 was not rebooted")
	}

	if got := b.cordoned(); got != "cp-1= w-1=apply/prod" {
		b.t.Errorf("cordoned: %s", got)
	}

	if out := b.mustRun(applyWorker...); !strings.Contains(out, "0 nodes would change") ||
		!strings.Contains(out, "w-1: uncordoned.") || b.cordoned() != "cp-1=" {
		b.t.Errorf("the next run: %s, cordoned: %s", out, b.cordoned())
	}
}

// lostMeanwhile: etcd becomes unhealthy while the pods leave. The node is not changed.
func (b *busy) lostMeanwhile() {
	b.t.Helper()
	b.configure("six")

	out := &hook{call: func(text string) {
		if strings.HasPrefix(text, "w-1: drained") {
			b.nodes[2].Partition(true)
		}
	}}

	if b.reboot(func() {
		err := b.follow(out, slices.Concat(applyWorker, force, []string{"--timeout", "20s"})...)
		if err == nil || !strings.Contains(err.Error(), "it may not be changed now") ||
			!strings.Contains(err.Error(), "cp-3 is unreachable") || strings.Contains(err.Error(), "cp-1") {
			b.t.Errorf("etcd is degraded: %v, %s", err, out)
		}
	}) {
		b.t.Error("w-1 was rebooted")
	}

	if b.holds("six") > 0 {
		b.t.Error("w-1 was changed")
	}

	b.nodes[2].Partition(false)
}
