package workload_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/workload"
)

const gone = "podschedulingcontexts.v1alpha3.resource.k8s.io"

// removing are the minors between which that resource was removed.
var removing = []string{"1.31", "1.32"}

func sameRemovals(t *testing.T, what string, got []upgrade.Removed, err error, want ...upgrade.Removed) {
	t.Helper()
	slices.SortFunc(got, func(a, b upgrade.Removed) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })

	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
	}
}

// notServed: a resource that an API server does not serve has no objects. Kubernetes brings no removed one back.
func notServed(t *testing.T, cluster *workload.Cluster) {
	t.Helper()

	got, err := cluster.Removed(t.Context(), nil, removing)
	sameRemovals(t, "the resource is not served", got, err)
}

// TestRemovedResources: objects of a resource that a minor removes are found, whatever their number and before the minor
// only. An API server that does not list them is no evidence that there are none.
func TestRemovedResources(t *testing.T) {
	const found, denied = http.StatusOK, http.StatusForbidden

	for name, c := range map[string]struct {
		objects, status int
		minors          []string
		want            int
		fails           string
	}{
		"none":                          {status: found, minors: removing},
		"one":                           {objects: 1, status: found, minors: removing, want: 1},
		"one, further on":               {objects: 1, status: found, minors: []string{"1.30", "1.31", "1.32", "1.33"}, want: 1},
		"many":                          {objects: 1000, status: found, minors: removing, want: upgrade.ManyObjects},
		"before":                        {objects: 1, status: found, minors: []string{"1.30", "1.31"}},
		"the minor stays":               {objects: 1, status: found, minors: []string{"1.31"}},
		"nothing is known of the minor": {minors: []string{"1.90", "1.91"}, fails: "this version of the operator does not know what Kubernetes 1.91 removes"},
		"denied":                        {status: denied, minors: removing, fails: "the objects of the APIs that Kubernetes 1.32 removes cannot be listed"},
		"broken":                        {status: http.StatusInternalServerError, minors: removing, fails: "cannot be listed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/apis/resource.k8s.io/v1alpha3/podschedulingcontexts" {
					w.WriteHeader(http.StatusNotFound)

					return
				}

				limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
				if err != nil {
					limit = c.objects
				}

				item := `{"apiVersion":"resource.k8s.io/v1alpha3","kind":"PodSchedulingContext","metadata":{"name":"p"}}`
				items := strings.Join(slices.Repeat([]string{item}, min(limit, c.objects)), ",")

				w.WriteHeader(c.status)
				say(w, `{"apiVersion":"resource.k8s.io/v1alpha3","kind":"PodSchedulingContextList","metadata":{},"items":[`+items+`]}`)
			})

			var want []upgrade.Removed
			if c.want > 0 {
				want = []upgrade.Removed{{Kind: upgrade.RemovedResource, Name: gone, Objects: c.want}}
			}

			got, err := s.cluster(t).Removed(t.Context(), nil, c.minors)
			if c.fails != "" {
				if !strings.Contains(failure.Message(err), c.fails) {
					t.Errorf("%+v, %v", got, err)
				}

				return
			}

			sameRemovals(t, name, got, err, want...)
		})
	}
}

// TestRemovedArguments: arguments that a minor removes are found for each component, and wherever they are repeated.
func TestRemovedArguments(t *testing.T) {
	s := newAPIServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	flags := []upgrade.Flags{
		{Machine: "cp", Pods: map[string][]string{
			"kube-apiserver":          {"kube-apiserver", "--enable-admission-plugins=A", "--enable-admission-plugins=SecurityContextDeny"},
			"kube-controller-manager": {"--feature-gates=A=true", "--feature-gates=B=true,RemoveSelfLink=false", "--volume-host-cidr-denylist=10.0.0.0/8"},
			"kube-scheduler":          {"--feature-gates=Kept=true", "--iptables-drop-bit=4"},
		}},
		{Machine: "w", Kubelet: []string{"--iptables-drop-bit=4", "--feature-gates=Kept=true", "--feature-gates=KubeletPodResources=true"}},
	}

	got, err := s.cluster(t).Removed(t.Context(), flags, []string{"1.29", "1.30", "1.31"})
	sameRemovals(t, "removed", got, err,
		upgrade.Removed{Kind: upgrade.RemovedAdmissionPlugin, Name: "SecurityContextDeny", Component: "kube-apiserver", Machine: "cp"},
		upgrade.Removed{Kind: upgrade.RemovedFeatureGate, Name: "KubeletPodResources", Component: "kubelet", Machine: "w"},
		upgrade.Removed{Kind: upgrade.RemovedFeatureGate, Name: "RemoveSelfLink", Component: "kube-controller-manager", Machine: "cp"},
		upgrade.Removed{Kind: upgrade.RemovedFlag, Name: "iptables-drop-bit", Component: "kubelet", Machine: "w"},
		upgrade.Removed{Kind: upgrade.RemovedFlag, Name: "volume-host-cidr-denylist", Component: "kube-controller-manager", Machine: "cp"},
	)

	got, err = s.cluster(t).Removed(t.Context(), flags, []string{"1.35", "1.36"})
	sameRemovals(t, "kept", got, err)
}

// obstacles: Nodes that the operator has cordoned are none, and neither are budgets that allow evictions.
func obstacles(t *testing.T, c clientset.Interface, cluster *workload.Cluster) {
	t.Helper()

	for name, annotations := range map[string]map[string]string{
		"by-hand": nil, "ours": {"talos-operator.io/cordoned": "true"}, "by-apply": {"talos-operator.io/cordoned": "apply/prod"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: corev1.NodeSpec{Unschedulable: true}}
		if _, err := c.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	for name, most := range map[string]int32{"never": 0, "one": 1} {
		limit := intstr.FromInt32(most)
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
		b.Spec.MaxUnavailable = &limit

		made, err := c.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), b, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		made.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 3, DesiredHealthy: 3}
		if _, err := c.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	got, err := cluster.Obstacles(t.Context())
	if err != nil || !slices.Equal(got.Cordoned, []string{"by-apply", "by-hand"}) || !slices.Equal(got.Budgets, []string{"default/never"}) {
		t.Errorf("%+v, %v", got, err)
	}
}
