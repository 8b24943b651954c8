package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

func backupObject(name, controlPlane string, completed int64, level v1alpha1.VerificationLevel) *v1alpha1.TalosEtcdBackup {
	b := &v1alpha1.TalosEtcdBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	b.Spec.ControlPlaneRef.Name = controlPlane

	if completed > 0 {
		at, start := metav1.NewTime(time.Unix(completed, 0)), metav1.NewTime(time.Unix(completed-7, 0))
		b.Status.CompletedAt, b.Status.StartedAt = &at, &start
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackupComplete,
		})
		b.Status.Size, b.Status.StoredSize = resource.NewQuantity(1000, resource.BinarySI), resource.NewQuantity(completed, resource.BinarySI)
	}

	if level != "" {
		b.Status.Verification = &v1alpha1.VerificationStatus{Level: level}
	}

	return b
}

// TestBackups: the newest good backup counts, not one that was found damaged or that claims to be of the future; and what
// was told of a control plane ends with it.
func TestBackups(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	damaged := backupObject("damaged", "c", 300, v1alpha1.VerificationDrill)
	meta.SetStatusCondition(&damaged.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: verify.ReasonDatabase,
	})

	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cp,
		backupObject("old", "c", 100, v1alpha1.VerificationDrill), backupObject("new", "c", 200, v1alpha1.VerificationDatabase),
		damaged, backupObject("future", "c", 5000, ""), backupObject("running", "c", 0, ""), backupObject("other", "gone", 300, ""),
	).Build()

	b := &metrics.Backups{Client: c, Clock: testclock.NewFakePassiveClock(time.Unix(1000, 0))}
	b.Failed("ns", "c", "StoreForbidden")
	b.Failed("ns", "c", "StoreForbidden")
	b.Failed("ns", "gone", "StoreForbidden")

	want := []string{
		"talos_operator_backup_duration_seconds c ns 7",
		"talos_operator_backup_failures_total c ns StoreForbidden 2",
		"talos_operator_backup_last_success_timestamp_seconds c ns 200",
		"talos_operator_backup_size_bytes c ns 1000",
		"talos_operator_backup_stored_bytes c ns 200",
		"talos_operator_backup_verified c Checksum ns 1",
		"talos_operator_backup_verified c Database ns 1",
		"talos_operator_backup_verified c Drill ns 0",
	}
	if diff := cmp.Diff(want, series(t, b)); diff != "" {
		t.Error(diff)
	}

	if err := c.Delete(t.Context(), client.Object(cp)); err != nil {
		t.Fatal(err)
	}

	if left := series(t, b); len(left) != 0 {
		t.Errorf("of a control plane that is gone: %v", left)
	}
}

// series are name, values of the labels in the order of their names, and value.
func series(t *testing.T, c prometheus.Collector) []string {
	t.Helper()

	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)

	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}

	var out []string

	for _, f := range families {
		for _, m := range f.GetMetric() {
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}

			out = append(out, fmt.Sprintf("%s %v", line, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}

	return out
}
