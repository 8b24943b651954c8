package taloscontrolplane_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/test/harness"
)

// serveAPI has the API server of the tests answer at the first machine, as that of its cluster.
func (e *env) serveAPI() clientset.Interface {
	e.Helper()

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(e.state().Bundle.Secrets().Certs.K8s)
	if err != nil {
		e.Fatal(err)
	}

	pair, err := x509.NewKeyPair(ca, x509.IPAddresses([]net.IP{net.ParseIP(e.address(0))}))
	if err != nil {
		e.Fatal(err)
	}

	cfg := api.Config()

	transport, err := rest.TransportFor(cfg)
	if err != nil {
		e.Fatal(err)
	}

	target, err := url.Parse(cfg.Host)
	if err != nil {
		e.Fatal(err)
	}

	l, err := net.Listen("tcp", e.address(0)+":6443")
	if err != nil {
		e.Fatal(err)
	}

	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)

		if r.Out.Method == http.MethodPatch {
			e.makePlainer(r.Out)
		}
	}}
	server := &httptest.Server{
		Listener: l, Config: &http.Server{Handler: proxy}, EnableHTTP2: true,
		TLS: &tls.Config{Certificates: []tls.Certificate{*pair.Certificate}},
	}
	server.StartTLS()
	e.Cleanup(server.Close)

	c, err := clientset.NewForConfig(cfg)
	if err != nil {
		e.Fatal(err)
	}

	return c
}

// plainer takes out of manifests what this API server refuses to any cluster: addresses that are not its own, and
// privileges.
var plainer = strings.NewReplacer(`"clusterIP":"10.96.0.10",`, "", `"clusterIPs":["10.96.0.10"],`, "",
	`"privileged":true`, `"privileged":false`)

func (e *env) makePlainer(r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		e.Error(err)
	}

	text := plainer.Replace(string(data))
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}

// oldProxy brings kube-proxy of an older version, as Talos did. Another run of the test may have left a newer one.
func (e *env) oldProxy(c clientset.Interface, marks map[string]string) {
	e.Helper()

	sets, labels := c.AppsV1().DaemonSets("kube-system"), map[string]string{"k8s-app": "kube-proxy", "tier": "node"}

	if err := sets.Delete(e.Context(), "kube-proxy", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		e.Fatal(err)
	}

	_, err := sets.Create(e.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Annotations: marks},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-proxy", Image: "registry.k8s.io/kube-proxy:v1.35.1"}}},
			},
		},
	}, metav1.CreateOptions{FieldManager: "talos"})
	if err != nil {
		e.Fatal(err)
	}
}

// TestBootstrapManifests: an upgrade of Kubernetes ends with the bootstrap manifests, where the spec says so: what is
// refused is named, stops nothing else, and is retried, by another replica, too. Otherwise they are only compared.
func TestBootstrapManifests(t *testing.T) {
	const older, set = "v1.35.1", "DaemonSet/kube-system/kube-proxy"

	e := newEnv(t)
	cp, nodes := e.found(1, harness.RealEtcd)
	e.establish(cp)

	c := e.serveAPI()
	config := c.CoreV1().ConfigMaps("kube-system")
	forget := func() {
		for _, name := range []string{manifests.InventoryName, workload.OwnerConfigMap} {
			if err := config.Delete(context.WithoutCancel(e.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				e.Error(err)
			}
		}
	}

	forget()
	e.Cleanup(forget)

	runs := func(kubelet string) {
		e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
			m.Status.TalosVersion, m.Status.KubeletVersion = harness.TalosVersion, kubelet
			m.Status.ComponentVersions = &v1alpha1.ComponentVersions{APIServer: kubernetes, ControllerManager: kubernetes, Scheduler: kubernetes, Proxy: kubernetes}
		})
	}
	pass := func() {
		t.Helper()

		e.Clock.SetTime(e.Clock.Now().Add(2 * time.Minute))

		if _, err := e.pass(cp); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(policy v1alpha1.ManifestPolicy) {
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{
			PrePull:    v1alpha1.PrePullNever,
			Kubernetes: v1alpha1.UpgradeAutomatic, RemovedAPIs: v1alpha1.RemovedAPIsIgnore, Manifests: policy,
		}
		e.Update(cp)
	}
	image := func() string {
		t.Helper()

		d, err := c.AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		_, tag, _ := strings.Cut(d.Spec.Template.Spec.Containers[0].Image, ":")

		return tag
	}

	e.oldProxy(c, map[string]string{"config.k8s.io/owning-inventory": "theirs"})
	ask(v1alpha1.ManifestsApply)
	runs(older)
	pass()

	if u, m := cp.Status.Upgrade, cp.Status.Manifests; u == nil || len(u.Machines) != 1 || m == nil || m.KubernetesVersion != kubernetes || m.Differing != 0 {
		t.Fatalf("a kubelet is older: %+v, %+v", u, m)
	}

	runs(kubernetes)
	pass()

	u, m := cp.Status.Upgrade, cp.Status.Manifests
	if u == nil || u.KubernetesVersion != kubernetes || len(u.Machines) != 0 || !strings.Contains(u.Message, set+" (OtherInventory)") ||
		m == nil || !slices.Contains(m.Objects, set) || image() != older {
		t.Fatalf("one is refused: %+v, %+v", u, m)
	}

	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonManifestsRefused, "which are retried: "+set)

	if _, err := c.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{}); err != nil {
		t.Errorf("the others are applied: %v", err)
	}

	e.restart()

	_, err := c.AppsV1().DaemonSets("kube-system").Patch(t.Context(), "kube-proxy", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"config.k8s.io/owning-inventory":null}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}

	pass()

	if cp.Status.Upgrade != nil || cp.Status.Manifests != nil || image() != kubernetes {
		t.Fatalf("everything is applied: %+v, %+v, %s", cp.Status.Upgrade, cp.Status.Manifests, image())
	}

	have, err := config.Get(t.Context(), manifests.InventoryName, metav1.GetOptions{})
	if _, ok := have.Data["kube-system_kube-proxy_apps_DaemonSet"]; err != nil || !ok {
		t.Errorf("the inventory: %v, %v", have.Data, err)
	}

	// The next time they are only compared, once in a while.
	e.oldProxy(c, nil)
	ask(v1alpha1.ManifestsReport)
	runs(older)
	pass()
	runs(kubernetes)
	pass()

	if m := cp.Status.Manifests; cp.Status.Upgrade != nil || m == nil || m.Differing != 1 || !slices.Equal(m.Objects, []string{set}) || image() != older ||
		!strings.HasPrefix(m.Message, "1 object differs from the bootstrap manifests of Kubernetes "+kubernetes+": "+set) {
		t.Fatalf("reported: %+v, %+v, %s", cp.Status.Upgrade, m, image())
	}

	reads := harness.Calls("List", nodes[0])
	pass()

	if more := harness.Calls("List", nodes[0]) - reads; more > 0 {
		t.Errorf("%d lists soon again", more)
	}

	e.Clock.SetTime(e.Clock.Now().Add(10 * time.Minute))
	pass()

	if harness.Calls("List", nodes[0]) == reads {
		t.Error("they are not compared again")
	}

	ask(v1alpha1.ManifestsApply)
	runs(kubernetes)
	pass()

	if cp.Status.Upgrade != nil || cp.Status.Manifests != nil || image() != kubernetes {
		t.Fatalf("applied after all: %+v, %+v, %s", cp.Status.Upgrade, cp.Status.Manifests, image())
	}
}
