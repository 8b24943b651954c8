package talosmachine_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// demandsBackup makes the control plane demand a backup before a disruption, by a schedule that creates none by itself.
func (e *env) demandsBackup() {
	e.Helper()

	e.Create(&v1alpha1.TalosEtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "nightly"},
		Spec: v1alpha1.TalosEtcdBackupScheduleSpec{
			Schedule: "@daily", Suspend: true,
			BackupTemplate: v1alpha1.TalosEtcdBackupTemplate{Spec: v1alpha1.TalosEtcdBackupSpec{
				ControlPlaneRef:  v1alpha1.ObjectReference{Name: cluster},
				Storage:          v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}},
				AllowUnencrypted: true,
			}},
		},
	})

	cp := &v1alpha1.TalosControlPlane{}
	e.Get(cp, cluster)
	cp.Spec.BackupBeforeDisruption = &v1alpha1.BackupBeforeDisruption{ScheduleRef: v1alpha1.ObjectReference{Name: "nightly"}}
	e.Update(cp)
}

// completeBackups completes the running backups now, and returns all backups.
func (e *env) completeBackups() []v1alpha1.TalosEtcdBackup {
	e.Helper()

	list := &v1alpha1.TalosEtcdBackupList{}
	if err := e.Admin.List(e.Context(), list, client.InNamespace(e.Namespace)); err != nil {
		e.Fatal(err)
	}

	for i := range list.Items {
		b := &list.Items[i]
		if b.Status.CompletedAt != nil {
			continue
		}

		b.Status.CompletedAt = &metav1.Time{Time: e.Clock.Now()}
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackupComplete,
		})
		e.UpdateStatus(b)
	}

	return list.Items
}

// TestBackupAtTheAct: a grant of the control plane waits for hours until the backup is too old: another one is taken
// before the node is disrupted.
func TestBackupAtTheAct(t *testing.T) {
	e := found(t, 3, 0)
	e.demandsBackup()

	boot := e.boots("cp-1")

	e.patchAll(needsReboot)
	e.planned("cp-1")
	e.disrupt("cp-1")
	e.grant("cp-1", true)
	e.waits("cp-1", "is blocked until TalosEtcdBackup")

	if all := e.completeBackups(); len(all) != 1 {
		t.Fatalf("%d backups", len(all))
	}

	// The node comes back and gets its slot hours later.
	e.sleep(2 * time.Hour)
	e.waits("cp-1", "is blocked until TalosEtcdBackup")

	if e.boots("cp-1") != boot || e.nodes["cp-1"].Faults().Calls("Reboot") > 0 {
		t.Error("it has rebooted")
	}

	if all := e.completeBackups(); len(all) != 2 {
		t.Fatalf("%d backups", len(all))
	}

	e.until("cp-1", "it is changed", done)

	if e.boots("cp-1") == boot {
		t.Error("it has not rebooted")
	}
}
