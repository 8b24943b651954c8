package metrics_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// TestSchedules: what is not known is absent, and a recovery point ages between two passes.
func TestSchedules(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	at := func(unix int64) *metav1.Time {
		out := metav1.NewTime(time.Unix(unix, 0))

		return &out
	}

	full := &v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "full"}}
	full.Spec.BackupTemplate.Spec.ControlPlaneRef.Name = "c"
	full.Spec.MaxAge = &metav1.Duration{Duration: time.Hour}
	full.Spec.Verification = &v1alpha1.ScheduledVerification{}
	full.Status = v1alpha1.TalosEtcdBackupScheduleStatus{
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionRecoveryPointMet, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionVerified, Status: metav1.ConditionTrue},
		},
		LastSuccessTime: at(1000), NextScheduleTime: at(5000),
		Stored:       &v1alpha1.StoredBackups{Count: 7, Size: resource.NewQuantity(900, resource.BinarySI)},
		Verification: &v1alpha1.VerificationStatus{Level: v1alpha1.VerificationDrill, Time: *at(1500)},
	}

	bare := &v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bare"}}
	bare.Spec.BackupTemplate.Spec.ControlPlaneRef.Name = "c"
	bare.Spec.Suspend = true

	young := &v1alpha1.TalosEtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "young", CreationTimestamp: *at(1990)}, Spec: *full.Spec.DeepCopy(),
	}
	young.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionRecoveryPointMet, Status: metav1.ConditionUnknown},
		{Type: v1alpha1.ConditionVerified, Status: metav1.ConditionUnknown},
	}
	clock := testclock.NewFakePassiveClock(time.Unix(2000, 0))
	s := metrics.Schedules{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(full, bare, young).Build(), Clock: clock,
	}

	want := []string{
		"talos_operator_backup_schedule_last_success_timestamp_seconds c ns full 1000",
		"talos_operator_backup_schedule_next_timestamp_seconds c ns full 5000",
		"talos_operator_backup_schedule_recovery_point_met c ns full 1",
		"talos_operator_backup_schedule_recovery_point_met c ns young -1",
		"talos_operator_backup_schedule_stored_backups c ns full 7",
		"talos_operator_backup_schedule_stored_bytes c ns full 900",
		"talos_operator_backup_schedule_suspended c ns bare 1",
		"talos_operator_backup_schedule_suspended c ns full 0",
		"talos_operator_backup_schedule_suspended c ns young 0",
		"talos_operator_backup_schedule_verification_timestamp_seconds c Drill ns full 1500",
		"talos_operator_backup_schedule_verified c ns full 1",
		"talos_operator_backup_schedule_verified c ns young -1",
	}
	if diff := cmp.Diff(want, series(t, s)); diff != "" {
		t.Error(diff)
	}

	clock.SetTime(time.Unix(4601, 0))

	want[2] = "talos_operator_backup_schedule_recovery_point_met c ns full 0"
	if diff := cmp.Diff(want, series(t, s)); diff != "" {
		t.Errorf("later: %s", diff)
	}

	// One without any backup has missed its recovery point after maxAge, also while nothing is reconciled.
	clock.SetTime(time.Unix(5591, 0))

	want[3] = "talos_operator_backup_schedule_recovery_point_met c ns young 0"
	if diff := cmp.Diff(want, series(t, s)); diff != "" {
		t.Errorf("after maxAge: %s", diff)
	}
}
