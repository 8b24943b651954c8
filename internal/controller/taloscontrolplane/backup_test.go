package taloscontrolplane_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/harness"
)

// demandsBackup makes the control plane demand a backup of a schedule, which it creates.
func (e *env) demandsBackup(cp *v1alpha1.TalosControlPlane) *v1alpha1.TalosEtcdBackupSchedule {
	e.Helper()

	o := &v1alpha1.TalosEtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "nightly"},
		Spec: v1alpha1.TalosEtcdBackupScheduleSpec{
			Schedule: "@daily", Suspend: true,
			BackupTemplate: v1alpha1.TalosEtcdBackupTemplate{Spec: v1alpha1.TalosEtcdBackupSpec{
				ControlPlaneRef:  v1alpha1.ObjectReference{Name: cp.Name},
				Storage:          v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}},
				AllowUnencrypted: true,
			}},
		},
	}

	e.Get(cp, cp.Name)
	cp.Spec.BackupBeforeDisruption = &v1alpha1.BackupBeforeDisruption{ScheduleRef: v1alpha1.ObjectReference{Name: o.Name}}

	e.Update(cp)

	return o
}

func (e *env) etcdBackups() []v1alpha1.TalosEtcdBackup {
	e.Helper()

	list := &v1alpha1.TalosEtcdBackupList{}
	if err := e.Admin.List(e.Context(), list, client.InNamespace(e.Namespace)); err != nil {
		e.Fatal(err)
	}

	return list.Items
}

// oneBackup returns the backup, and fails if there is more than one.
func (e *env) oneBackup(when string) *v1alpha1.TalosEtcdBackup {
	e.Helper()

	backups := e.etcdBackups()
	if len(backups) != 1 {
		e.Fatalf("%s: %d backups", when, len(backups))
	}

	return &backups[0]
}

// concludes does what the backup controller does at the end: the backup is good or failed.
func (e *env) concludes(b *v1alpha1.TalosEtcdBackup, good bool, at time.Time) {
	e.Helper()

	c := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "StoreFull", Message: "the store is full"}

	if good {
		c = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackupComplete}
		b.Status.CompletedAt = &metav1.Time{Time: at}
	}

	meta.SetStatusCondition(&b.Status.Conditions, c)

	e.UpdateStatus(b)
}

// TestBackupBeforeReboot: without a fresh backup no node is disrupted, one backup is created, and a failed one blocks
// the disruption without another attempt.
func TestBackupBeforeReboot(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)
	o := e.demandsBackup(cp)

	for i := range 3 {
		e.show(cp, i, pending)
	}

	e.step(cp)
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonWaitingForBackup, "nightly does not exist")

	if n := len(e.etcdBackups()); n != 0 || e.granted(3) != "" {
		t.Fatalf("%d backups, granted %q", n, e.granted(3))
	}

	e.Create(o)

	for range 3 {
		e.restart()
		e.step(cp)
	}

	b := e.oneBackup("waiting")
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonWaitingForBackup, b.Name)

	if b.Annotations[v1alpha1.BeforeDisruptionAnnotation] != cp.Name || b.Labels[v1alpha1.ScheduleLabel] != o.Name ||
		!b.Spec.AllowUnencrypted || e.granted(3) != "" {
		t.Fatalf("granted %q, backup %+v", e.granted(3), b)
	}

	e.concludes(b, false, time.Time{})

	for range 3 {
		e.step(cp)
	}

	e.oneBackup("failed")
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonBackupFailed, "the store is full")

	if g := e.granted(3); g != "" {
		t.Fatalf("granted %q", g)
	}

	// A user deletes it: the backup is tried again, and the rollout continues once it is good.
	e.Delete(b)

	e.step(cp)
	e.concludes(e.oneBackup("tried again"), true, e.Clock.Now())
	e.step(cp)

	if g := e.granted(3); g != "cp-1" || e.disruption().Machine != "cp-1" {
		t.Errorf("granted %q", g)
	}

	e.oneBackup("the next ones go with the same")
}

// TestBackupTooOld: a backup that is older than the spec demands does not count, and the new one is another object.
func TestBackupTooOld(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(1)

	e.Create(e.demandsBackup(cp))

	e.show(cp, 0, pending)
	e.step(cp)
	old := e.oneBackup("the first")
	e.concludes(old, true, e.Clock.Now().Add(-61*time.Minute))
	e.step(cp)

	backups := e.etcdBackups()
	if len(backups) != 2 || e.granted(1) != "" {
		t.Fatalf("%d backups, granted %q", len(backups), e.granted(1))
	}

	for i := range backups {
		if backups[i].Name != old.Name {
			e.concludes(&backups[i], true, e.Clock.Now())
		}
	}

	e.step(cp)

	if g := e.granted(1); g != "cp-0" {
		t.Errorf("granted %q", g)
	}
}

// TestBackupBeforeRemoval: the removal of a machine waits for the backup, too.
func TestBackupBeforeRemoval(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)

	e.Create(e.demandsBackup(cp))

	e.Get(cp, cp.Name)
	cp.Spec.Machines = cp.Spec.Machines[:1]

	e.Update(cp)

	for range 3 {
		e.step(cp)
	}

	b := e.oneBackup("waiting")
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonWaitingForBackup, b.Name)

	if d := e.disruption(); d.Machine != "" {
		t.Fatalf("%+v", d)
	}

	e.concludes(b, true, e.Clock.Now())
	e.step(cp)

	if d := e.disruption(); !strings.HasPrefix(d.Machine, "cp-") {
		t.Errorf("%+v", d)
	}
}

// TestBackupByDefault: without a demand in the spec, the first machine of a version waits for a backup of the only
// schedule, and for none where there is no such schedule, which an event tells, or where the spec wants none.
func TestBackupByDefault(t *testing.T) {
	const to = "v1.13.10"

	e := newEnv(t)
	cp, _ := e.established(1)
	e.until(cp, "the version of the API servers is known", func() bool { return cp.Status.ObservedKubeVersion != "" })

	o := e.demandsBackup(cp)
	e.Create(o)

	cp.Spec.BackupBeforeDisruption = nil
	cp.Spec.TalosVersion = to
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, PrePull: v1alpha1.PrePullNever}
	e.Update(cp)

	runs := func(change func(*v1alpha1.TalosMachine)) {
		e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
			m.Status.TalosVersion, m.Status.KubeletVersion = harness.TalosVersion, harness.KubernetesVersion
			change(m)
		})
	}

	runs(func(*v1alpha1.TalosMachine) {})
	e.step(cp)

	const without = "no backup before this upgrade: TalosEtcdBackupSchedule nightly is suspended"
	if u := cp.Status.Upgrade; u == nil || u.TalosVersion != to || u.Obstacles != without {
		t.Fatalf("suspended: %+v", u)
	}

	o.Spec.Suspend = false
	e.Update(o)
	e.step(cp)
	runs(func(m *v1alpha1.TalosMachine) {
		pending(m)
		m.Status.Change.Kind = v1alpha1.ChangeTalos
	})

	for range 2 {
		e.step(cp)
	}

	b := e.oneBackup("waiting")
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonWaitingForBackup,
		"Talos v1.13.10 is blocked until TalosEtcdBackup "+b.Name)
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonWaitingForBackup,
		"to begin without a backup, set upgrade.backup to None")

	if u := cp.Status.Upgrade; e.granted(1) != "" || u.Obstacles != "" {
		t.Fatalf("granted %q, %+v", e.granted(1), u)
	}

	// A backup that was complete before the plan does not count, and one after it does.
	plannedAt := e.state().Runtime.Upgrade.PlannedAt
	e.concludes(b, true, plannedAt.Add(-time.Minute))
	e.step(cp)

	if n := len(e.etcdBackups()); n != 2 || e.granted(1) != "" {
		t.Fatalf("%d backups, granted %q", n, e.granted(1))
	}

	cp.Spec.Upgrade.Backup = v1alpha1.UpgradeBackupNone
	e.Update(cp)
	e.step(cp)
	runs(func(*v1alpha1.TalosMachine) {})
	e.step(cp)

	if g, n := e.granted(1), len(e.etcdBackups()); g != "cp-0" || n != 2 || cp.Status.Upgrade.Obstacles != "" {
		t.Errorf("without: granted %q, %d backups, %+v", g, n, cp.Status.Upgrade)
	}
}
