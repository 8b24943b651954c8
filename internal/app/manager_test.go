package app_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/plane"
	"github.com/talos-operator/talos-operator/test/wait"
)

var api *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &api) }

// running is a manager with all controllers, in the process of the test, which can have one. Its resync is longer than
// any test: only events wake it.
type running struct {
	*testing.T

	// certificates of the metrics server at the address.
	certificates, address string

	admin client.Client
	logs  *harness.Log
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, namespaces ...string) *running {
	t.Helper()

	options, err := app.Defaults()
	if err != nil {
		t.Fatal(err)
	}

	options.Namespaces, options.ReconcileInterval, options.ResultsPath = namespaces, time.Hour, t.TempDir()
	options.LeaderElect, options.HealthProbeBindAddress = false, "0"

	if err := options.AllowedEndpoints.Set("127.0.0.0/8"); err != nil {
		t.Fatal(err)
	}

	m := &running{
		T: t, admin: api.Admin(t), logs: &harness.Log{}, ended: make(chan error, 1),
		certificates: t.TempDir(), address: net.JoinHostPort(loopback.Address(t), "8443"),
	}
	options.MetricsBindAddress, options.MetricsCertDir = m.address, m.certificates
	m.certify()

	log, err := app.NewLogger(m.logs, "info")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	m.stop = cancel

	go func() { m.ended <- app.Run(ctx, api.ManagerAccess(t), options, log) }()

	return m
}

// TestManager is one life of a manager: one process can have one.
func TestManager(t *testing.T) {
	names, silent, told := api.Namespace(t), api.Namespace(t), api.Namespace(t)
	m := start(t, names, silent, told)

	t.Run("names", func(t *testing.T) { m.names(t, names) })
	t.Run("metrics", func(t *testing.T) { m.metrics(t, names) })
	t.Run("notifications", func(t *testing.T) { m.notifications(t, told) })
	t.Run("stop", func(t *testing.T) { m.cleanStop(t, silent) })
}

const cluster = "taken"

// names: a cluster whose names are taken is refused, and goes on when they are released.
func (m *running) names(t *testing.T, ns string) {
	theirs := &vitistackv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster + "-cp-0"}}
	if err := m.admin.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}

	c := &vitistackv1alpha1.KubernetesCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster},
		Spec: vitistackv1alpha1.KubernetesClusterSpec{
			KubernetesVersion: harness.KubernetesVersion, TalosVersion: harness.TalosVersion,
			ClusterEndpoint: "https://10.0.0.1:6443", ControlPlane: vitistackv1alpha1.ControlPlaneTopology{Replicas: 1},
		},
	}
	if err := m.admin.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}

	stalled := func() bool { return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionStalled) }
	m.becomes(t, c, "it is refused", stalled)

	if err := m.admin.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}

	m.becomes(t, c, "it goes on", func() bool { return !stalled() })

	// The documented name of the controller, and the cluster, on the line of a controller other than its own.
	wait.For(t, "the log names controller and cluster", func(context.Context) error {
		for line := range strings.Lines(m.logs.String()) {
			if strings.Contains(line, `"controller":"KubernetesCluster","namespace":"`+ns+`","name":"`+cluster+
				`","cluster":"`+cluster+`"`) {
				return nil
			}
		}

		return errNotYet
	})
}

// notifications: the record of an upgrade is told to the webhook in the spec of its control plane, and the log says
// nothing of an address, whether something listens there or not.
func (m *running) notifications(t *testing.T, ns string) {
	const path = "/T0p53cr3t"

	got, closed := make(chan string, 10), "http://"+net.JoinHostPort(loopback.Address(t), "1")+path
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- r.URL.Path + " " + r.Header.Get("Idempotency-Key")
	}))
	t.Cleanup(hook.Close)

	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c"},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: harness.TalosVersion, KubernetesVersion: harness.KubernetesVersion,
			Endpoint: "https://10.0.0.1:6443", Machines: []v1alpha1.MachineEntry{{Name: "m", Address: loopback.Address(t)}},
			Upgrade: &v1alpha1.UpgradeOptions{Notifications: []v1alpha1.UpgradeNotification{
				{Type: v1alpha1.NotificationGeneric, SecretRef: v1alpha1.SecretKeyReference{Name: "hooks", Key: "url"}},
				{Type: v1alpha1.NotificationSlack, SecretRef: v1alpha1.SecretKeyReference{Name: "hooks", Key: "closed"}},
			}},
		},
	}
	u := &v1alpha1.TalosUpgrade{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "c-talos-1", Labels: map[string]string{v1alpha1.ControlPlaneLabel: "c"},
		},
		Spec: v1alpha1.UpgradeRunSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}, From: "v1.12.4", To: harness.TalosVersion,
		},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "hooks"},
		StringData: map[string]string{"url": hook.URL + path, "closed": closed},
	}

	for _, o := range []client.Object{secret, cp, u} {
		if o == u {
			if err := controllerutil.SetControllerReference(cp, u, m.admin.Scheme()); err != nil {
				t.Fatal(err)
			}
		}

		if err := m.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	// The controller of records ends it: the control plane plans nothing.
	for _, want := range []string{"-1", "-2"} {
		if text := wait.Done(t, "the notification"+want, got); text != path+" "+string(u.UID)+want {
			t.Errorf("%s", text)
		}
	}

	wait.For(t, "the log says why the other one gets nothing", func(context.Context) error {
		if !strings.Contains(m.logs.String(), "the receiver refused the connection") {
			return errors.New("it does not")
		}

		return nil
	})

	for _, part := range []string{path, strings.TrimPrefix(hook.URL, "http://")} {
		if strings.Contains(m.logs.String(), part) {
			t.Errorf("the log has %s", part)
		}
	}
}

// cleanStop: a manager that is stopped in the middle of its work says nothing of errors.
func (m *running) cleanStop(t *testing.T, ns string) {
	address := loopback.Address(t)

	// It takes connections and never says anything.
	l, err := net.Listen("tcp", net.JoinHostPort(address, "50000"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c"},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: harness.TalosVersion, KubernetesVersion: harness.KubernetesVersion,
			Endpoint: "https://" + address + ":6443", Machines: []v1alpha1.MachineEntry{{Name: "mute", Address: address}},
		},
	}
	if err := m.admin.Create(t.Context(), cp); err != nil {
		t.Fatal(err)
	}

	// A user talks to the machine now, and gets no response.
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	before := len(m.errors())

	m.stop()

	if err := wait.Done(t, "the manager ends", m.ended); err != nil {
		t.Errorf("it ended with %v", err)
	}

	if after := m.errors(); len(after) > before {
		t.Errorf("errors of a clean stop:\n%s", strings.Join(after[before:], "\n"))
	}
}

func (m *running) errors() []string {
	var out []string

	for line := range strings.Lines(m.logs.String()) {
		if strings.Contains(line, `"level":"error"`) {
			out = append(out, line)
		}
	}

	return out
}

// becomes waits until an object is as desired.
func (m *running) becomes(t *testing.T, o client.Object, what string, is func() bool) {
	t.Helper()
	wait.For(t, o.GetName()+": "+what, func(ctx context.Context) error {
		if err := m.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}

		if !is() {
			return fmt.Errorf("%s: %w", harness.Show(o), errNotYet)
		}

		return nil
	})
}

var errNotYet = errors.New("not yet")
