package metrics_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
)

// fleet has an object for each metric.
func fleet(t *testing.T) client.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, vitistackv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}

	meta := metav1.ObjectMeta{Namespace: "ns", Name: "c"}
	run := meta
	run.OwnerReferences = []metav1.OwnerReference{{UID: "", Controller: new(true)}}
	at := metav1.NewTime(time.Unix(200, 0))
	ready := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}

	schedule := &v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: meta, Status: v1alpha1.TalosEtcdBackupScheduleStatus{
		LastSuccessTime: &at, NextScheduleTime: &at,
		Verification: &v1alpha1.VerificationStatus{Level: v1alpha1.VerificationDrill, Time: at},
		Stored:       &v1alpha1.StoredBackups{Count: 1, Size: resource.NewQuantity(1, resource.BinarySI)},
	}}
	schedule.Spec.MaxAge = &metav1.Duration{Duration: time.Hour}
	schedule.Spec.Verification = &v1alpha1.ScheduledVerification{}

	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&vitistackv1alpha1.KubernetesCluster{ObjectMeta: meta, Status: vitistackv1alpha1.KubernetesClusterStatus{
			Phase: vitistackv1alpha1.PhaseRunning,
		}},
		&v1alpha1.TalosControlPlane{ObjectMeta: meta, Status: v1alpha1.TalosControlPlaneStatus{
			Upgrade: &v1alpha1.UpgradeStatus{StepsLeft: 1}, Conditions: ready,
			Plan: &v1alpha1.PlanStatus{Phase: v1alpha1.PlanRollingOut},
		}},
		&v1alpha1.TalosMachine{ObjectMeta: meta, Status: v1alpha1.TalosMachineStatus{
			Change: &v1alpha1.MachineChange{Phase: v1alpha1.ChangePending}, Conditions: ready,
		}},
		&v1alpha1.TalosUpgrade{
			ObjectMeta: run, Spec: v1alpha1.UpgradeRunSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}},
			Status: v1alpha1.UpgradeRunStatus{Phase: v1alpha1.UpgradeRunRunning},
		},
		backupObject("b", "c", 200, v1alpha1.VerificationDrill), schedule,
	).Build()
}

// registered are the metrics of the program: those of the fleet, and those that packages register by themselves.
func registered(t *testing.T, c client.Client, elected <-chan struct{}) (*prometheus.Registry, *metrics.Backups) {
	t.Helper()

	own := prometheus.NewPedanticRegistry()

	backups, err := metrics.Register(own, metrics.Sources{
		Client: c, Clock: testclock.NewFakePassiveClock(time.Unix(1000, 0)), Elected: elected,
		Streams: func() map[nodewatch.Mode]nodewatch.Streams {
			return map[nodewatch.Mode]nodewatch.Streams{nodewatch.Secure: {Open: 5, Closed: 1, Lost: 7}}
		},
		Latency: func(machine string) (time.Duration, bool) { return 20 * time.Millisecond, machine != "ns/silent" },
	})
	if err != nil {
		t.Fatal(err)
	}

	return own, backups
}

// TestTable: the page of metrics tells of each metric with its type and its labels, and of no other.
func TestTable(t *testing.T) {
	elected := make(chan struct{})
	close(elected)

	own, backups := registered(t, fleet(t), elected)
	backups.Failed("ns", "c", "StoreForbidden")

	pass(t, "talosmachine", "c")
	observeMember()

	// A vector without a series is not gathered.
	metrics.Certificate(t, "ns", "c", "ca-etcd", time.Unix(1, 0))
	metrics.Machines.WithLabelValues("c", "worker")
	metrics.Duration.WithLabelValues("machine")
	metrics.Errors.WithLabelValues("machine", "Unexpected")
	metrics.CountFile("create", "success")
	metrics.NodeCall("EtcdStatus", codes.OK, time.Second)
	metrics.NotificationsSent.WithLabelValues("Slack")
	metrics.NotificationsFailed.WithLabelValues("Slack")
	metrics.ShardHeld.WithLabelValues("0")

	found := map[string]string{}

	for _, g := range []prometheus.Gatherer{own, ctrlmetrics.Registry} {
		families, err := g.Gather()
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "talos_operator_") {
				found[f.GetName()] = describe(f)
			}
		}
	}

	if diff := cmp.Diff(table(t), found); diff != "" || len(found) < 20 {
		t.Errorf("docs/metrics.md (-) and the program (+) differ:\n%s", diff)
	}
}

// observeMember tells of the member of the fleet's machine.
func observeMember() {
	metrics.ObserveEtcd("ns", "c", []safety.Node{{Name: "c", Members: []safety.Member{{ID: 1}}}})
	metrics.ObserveQuota("ns", "c", 1)
}

// pass reconciles an object.
func pass(t *testing.T, controller, name string) {
	t.Helper()

	r := metrics.Observe(controller, reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	}))

	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}})
	if err != nil {
		t.Fatal(err)
	}
}

func describe(f *dto.MetricFamily) string {
	var labels []string

	for _, l := range f.GetMetric()[0].GetLabel() {
		labels = append(labels, l.GetName())
	}

	slices.Sort(labels)

	return strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, " ")
}

var (
	row  = regexp.MustCompile("(?m)^\\| `(talos_operator_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|[^|]*\\| [^|]+ \\|$")
	code = regexp.MustCompile("`([a-z_]+)`")
)

// table is what the page says: type and labels by name.
func table(t *testing.T) map[string]string {
	t.Helper()

	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]string{}

	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		var labels []string
		for _, l := range code.FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}

		slices.Sort(labels)

		if out[m[1]] != "" {
			t.Errorf("the page has %s twice", m[1])
		}

		out[m[1]] = m[2] + " " + strings.Join(labels, " ")
	}

	return out
}

// TestStandby: a replica that does not lead tells nothing of the fleet, and begins to when it is elected.
func TestStandby(t *testing.T) {
	elected := make(chan struct{})
	own, _ := registered(t, fleet(t), elected)

	observeMember()

	if families, err := own.Gather(); err != nil || len(families) > 0 {
		t.Errorf("a standby tells %d metrics, %v", len(families), err)
	}

	close(elected)

	if families, err := own.Gather(); err != nil || len(families) == 0 {
		t.Errorf("the leader tells nothing: %v", err)
	}
}

// TestGone: no series is left whose labels name objects, once these are gone.
func TestGone(t *testing.T) {
	elected := make(chan struct{})
	close(elected)

	c := fleet(t)
	own, backups := registered(t, c, elected)
	backups.Failed("ns", "c", "StoreForbidden")
	pass(t, "talosmachine", "c")
	observeMember()

	named := func() (out []string) {
		families, err := own.Gather()
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range families {
			if strings.Contains(describe(f), "namespace") {
				out = append(out, f.GetName())
			}
		}

		return out
	}

	if before := named(); len(before) < 10 {
		t.Errorf("of a fleet: %v", before)
	}

	for _, o := range []client.Object{
		&vitistackv1alpha1.KubernetesCluster{}, &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosMachine{},
		&v1alpha1.TalosEtcdBackup{}, &v1alpha1.TalosEtcdBackupSchedule{}, &v1alpha1.TalosUpgrade{},
	} {
		if err := c.DeleteAllOf(t.Context(), o, client.InNamespace("ns")); err != nil {
			t.Fatal(err)
		}
	}

	if after := named(); len(after) > 0 {
		t.Errorf("of a fleet that is gone: %v", after)
	}
}
