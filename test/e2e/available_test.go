package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// balance runs a load balancer in front of the API servers of some machines, and returns its host. Its port is 6443.
func (w *world) balance(machines ...int) string {
	w.t.Helper()

	var nodes []*node.Node
	for _, i := range machines {
		nodes = append(nodes, w.nodes[w.address(i)])
	}

	const last = 241

	end, err := lab.Balance(netip.AddrPortFrom(netip.MustParseAddr(w.address(last)), 6443), nodes...)
	if err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(end)

	return w.address(last)
}

// deploy makes a Deployment with a PodDisruptionBudget, and waits until all of its pods are ready.
func (w *world) deploy(cluster string, replicas, least int32) {
	w.t.Helper()

	c := w.kubernetes(cluster)
	labels := map[string]string{"app": "web"}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}

	_, err := c.AppsV1().Deployments("default").Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	_, err = c.PolicyV1().PodDisruptionBudgets("default").Create(w.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: meta,
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(least)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	w.eventually("the pods are ready", func(ctx context.Context) error {
		ready, err := readyPods(ctx, c)
		if err == nil && ready != int(replicas) {
			err = fmt.Errorf("%d of %d", ready, replicas)
		}

		return err
	})
}

// readyPods counts those that work and are not asked to end.
func readyPods(ctx context.Context, c kubernetes.Interface) (int, error) {
	list, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}

	count := 0

	for i := range list.Items {
		p := &list.Items[i]
		if p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			count++
		}
	}

	return count, nil
}

// availability is what users have of a cluster meanwhile.
type availability struct {
	kubernetes kubernetes.Interface

	mu sync.Mutex
	// counts is how often the ready pods were counted, fewest the lowest count.
	counts, fewest int
	// responses of the API, and the longest row of attempts without one.
	answers, row, longest int
	last                  error
	// left are pods on machines that were told to reboot.
	left []string
}

// attemptTimeout is far more than an API server needs: one that leaves a request open is as bad as one that is gone.
const attemptTimeout = 20 * time.Second

// watchAvailability watches from now on that at least so many pods are ready, that no pod is on a machine when that is
// told to reboot, and that the API answers at its endpoint. The returned function ends that, and fails the test for
// what was observed.
//
// The bound for the API counts attempts: the load balancer takes members in turn, and a member that goes down cuts its
// connections and refuses further ones. While one of three is away, one attempt may be cut, and the next one is
// answered by another member. Each attempt has a connection of its own, so that each member is asked again and again.
func (w *world) watchAvailability(cluster string, least int, machines ...int) (check func()) {
	w.t.Helper()

	cfg := w.kubeconfig(cluster)
	cfg.QPS = -1 // pods are counted as fast as it goes

	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		w.t.Fatal(err)
	}

	a := &availability{kubernetes: c, fewest: least}

	for _, i := range machines {
		n := w.nodes[w.address(i)]
		w.t.Cleanup(n.Faults().Subscribe(func(c apid.Call) {
			if takesAway(c) {
				a.leaves(n.Status().Hostname)
			}
		}))
	}

	ctx, cancel := context.WithCancel(w.t.Context())

	var work sync.WaitGroup

	probe := prober(w, cluster)

	work.Go(func() { wait.Every(ctx, 50*time.Millisecond, a.count) })
	work.Go(func() {
		wait.Every(ctx, 100*time.Millisecond, func(ctx context.Context) { a.note(ctx, probe(ctx)) })
	})

	return func() {
		w.t.Helper()
		cancel()
		work.Wait()
		a.judge(w, least)
	}
}

// takesAway: the machine reboots for the call.
func takesAway(c apid.Call) bool {
	return strings.HasSuffix(c.Method, "MachineService/Reboot") || strings.HasSuffix(c.Method, "MachineService/Upgrade")
}

// prober returns an attempt to have an answer of the API at its endpoint.
func prober(w *world, cluster string) func(context.Context) error {
	w.t.Helper()

	cfg := w.kubeconfig(cluster)

	secrets, err := rest.TLSConfigFor(cfg)
	if err != nil {
		w.t.Fatal(err)
	}

	c := &http.Client{
		Transport: &http.Transport{TLSClientConfig: secrets, DisableKeepAlives: true}, Timeout: attemptTimeout,
	}

	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/readyz", http.NoBody)
		if err != nil {
			return err
		}

		resp, err := c.Do(req)
		if err != nil {
			return err
		}

		defer resp.Body.Close()

		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %q", resp.Status, text)
		}

		return err
	}
}

func (a *availability) count(ctx context.Context) {
	ready, err := readyPods(ctx, a.kubernetes)

	a.mu.Lock()
	defer a.mu.Unlock()

	if err == nil { // the API is probed by itself
		a.counts++
		a.fewest = min(a.fewest, ready)
	}
}

func (a *availability) note(ctx context.Context, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	switch {
	case ctx.Err() != nil:
	case err == nil:
		a.answers, a.row = a.answers+1, 0
	default:
		a.row++
		a.longest, a.last = max(a.longest, a.row), err
	}
}

// leaves notes the pods on a node that is about to reboot.
func (a *availability) leaves(node string) {
	list, err := a.kubernetes.CoreV1().Pods("default").List(context.Background(),
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})

	a.mu.Lock()
	defer a.mu.Unlock()

	if err != nil {
		a.left = append(a.left, err.Error())

		return
	}

	for i := range list.Items {
		a.left = append(a.left, list.Items[i].Name+" on "+node)
	}
}

func (a *availability) judge(w *world, least int) {
	w.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()

	w.t.Logf("counted the ready pods %d times; the API answered %d times", a.counts, a.answers)

	if a.counts == 0 || a.fewest < least {
		w.t.Errorf("of %d counts the lowest was %d ready pods, with a minimum of %d", a.counts, a.fewest, least)
	}

	if a.answers == 0 || a.longest > 1 {
		w.t.Errorf("the API answered %d times, and not %d times in a row, last: %v", a.answers, a.longest, a.last)
	}

	for _, what := range a.left {
		w.t.Errorf("a reboot met the pod %s", what)
	}
}
