package cli_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// kept is what a cluster has about its backups.
type kept struct {
	schedule *v1alpha1.TalosEtcdBackupSchedule
	backup   *v1alpha1.TalosEtcdBackup
	restore  *v1alpha1.TalosEtcdRestore
}

// keepBackups makes a schedule, a backup of it and a restore, with a Secret for each thing that they name.
func (e *fleet) keepBackups() kept {
	e.t.Helper()

	for _, name := range []string{"store", "authority", "readers", "reader", "bystander"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Data: map[string][]byte{"k": []byte(name)}}
		e.create(secret)
	}

	ref := v1alpha1.ObjectReference{Name: e.cp.Name}
	spec := v1alpha1.TalosEtcdBackupSpec{
		ControlPlaneRef: ref, DeletionPolicy: v1alpha1.BackupDelete,
		Storage: v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
			Bucket: "backups", CAFrom: &v1alpha1.SecretKeyReference{Name: "authority", Key: "k"},
			CredentialsRef: &v1alpha1.ObjectReference{Name: "store"},
		}},
		RecipientsFrom: []v1alpha1.SecretKeyReference{{Name: "readers", Key: "k"}},
	}

	k := kept{
		schedule: &v1alpha1.TalosEtcdBackupSchedule{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "nightly", Finalizers: []string{v1alpha1.Finalizer}},
			Spec: v1alpha1.TalosEtcdBackupScheduleSpec{
				Schedule: "@daily", BackupTemplate: v1alpha1.TalosEtcdBackupTemplate{Spec: spec},
			},
		},
		backup: &v1alpha1.TalosEtcdBackup{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "nightly-1", Finalizers: []string{v1alpha1.Finalizer}}, Spec: spec,
		},
		restore: &v1alpha1.TalosEtcdRestore{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "back"},
			Spec: v1alpha1.TalosEtcdRestoreSpec{
				ControlPlaneRef: ref, Source: v1alpha1.RestoreSource{BackupRef: &v1alpha1.ObjectReference{Name: "nightly-1"}},
				IdentitiesFrom: []v1alpha1.SecretKeyReference{{Name: "reader", Key: "k"}},
			},
		},
	}
	e.create(k.schedule)

	if err := controllerutil.SetControllerReference(k.schedule, k.backup, e.client.Scheme()); err != nil {
		e.t.Fatal(err)
	}

	e.create(k.backup)
	e.create(k.restore)

	return k
}

func (e *fleet) status(o client.Object) {
	e.t.Helper()

	if err := e.client.Status().Update(e.t.Context(), o); err != nil {
		e.t.Fatal(err)
	}
}

func (k kept) shows(kind, reason string, status metav1.ConditionStatus) {
	meta.SetStatusCondition(&k.backup.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
}

// movesBackups: a restore that works holds a move up, and so does a backup that is being taken; its schedule is paused
// meanwhile. Then all of it goes along, with the Secrets that it names, and nothing in the store is touched.
func movesBackups(t *testing.T) {
	e := newFleet(t, "safe")
	k := e.keepBackups()
	e.operate()

	k.restore.Status.Step = v1alpha1.RestoreUploading
	e.status(k.restore)

	if _, _, failed := e.move(); !strings.Contains(failed, "TalosEtcdRestore back is not complete") {
		t.Errorf("in the middle of a restore: %q", failed)
	}

	k.restore.Status.Step = v1alpha1.RestoreComplete
	e.status(k.restore)

	k.backup.Status.BackupID = "20261122"
	k.shows(v1alpha1.ConditionReconciling, v1alpha1.ReasonBackingUp, metav1.ConditionTrue)
	e.status(k.backup)

	if _, _, failed := e.move("--wait", "1s"); !strings.Contains(failed, "TalosEtcdBackup nightly-1 is not complete after 1s") {
		t.Errorf("in the middle of a backup: %q", failed)
	}

	schedule, cp := &v1alpha1.TalosEtcdBackupSchedule{}, &v1alpha1.TalosControlPlane{}
	if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(k.schedule), schedule); err != nil ||
		schedule.Annotations[v1alpha1.PausedAnnotation] != "moved" {
		t.Errorf("the schedule on the source: %v, %v", schedule.Annotations, err)
	}

	if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(e.cp), cp); err != nil || len(cp.Annotations) != 0 {
		t.Errorf("the cluster was paused while it was backed up: %v, %v", cp.Annotations, err)
	}

	k.shows(v1alpha1.ConditionReconciling, v1alpha1.ReasonReconciling, metav1.ConditionFalse)
	k.shows(v1alpha1.ConditionReady, v1alpha1.ReasonBackupComplete, metav1.ConditionTrue)
	e.status(k.backup)

	if _, _, failed := e.move(); failed != "" {
		t.Fatal(failed)
	}

	e.arrived()
	e.backupsArrived(k)

	if _, _, failed := e.move("--delete-source"); failed != "" {
		t.Fatal(failed)
	}

	for _, o := range []client.Object{k.schedule, k.backup, k.restore} {
		if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%s is still on the source: %v", o.GetName(), err)
		}
	}

	e.backupsArrived(k)
}

// backupsArrived checks the copies on the target.
func (e *fleet) backupsArrived(k kept) {
	e.t.Helper()

	schedule, backup, restore := &v1alpha1.TalosEtcdBackupSchedule{}, &v1alpha1.TalosEtcdBackup{}, &v1alpha1.TalosEtcdRestore{}
	if !e.there(schedule, "nightly") || !e.there(backup, "nightly-1") || !e.there(restore, "back") {
		e.t.Fatal("objects are missing")
	}

	for _, o := range []client.Object{schedule, backup, restore} {
		if v, paused := o.GetAnnotations()[v1alpha1.PausedAnnotation]; paused {
			e.t.Errorf("the copy of %s is paused: %s", o.GetName(), v)
		}
	}

	if !metav1.IsControlledBy(backup, schedule) || backup.Status.BackupID != k.backup.Status.BackupID ||
		!meta.IsStatusConditionTrue(backup.Status.Conditions, v1alpha1.ConditionReady) ||
		backup.Spec.DeletionPolicy != v1alpha1.BackupDelete || restore.Status.Step != v1alpha1.RestoreComplete {
		e.t.Errorf("%+v, %+v, %+v", backup.ObjectMeta, backup.Status, restore.Status)
	}

	for _, name := range []string{"store", "authority", "readers", "reader"} {
		if secret := (&corev1.Secret{}); !e.there(secret, name) || string(secret.Data["k"]) != name {
			e.t.Errorf("Secret %s did not go along", name)
		}
	}

	if e.there(&corev1.Secret{}, "bystander") {
		e.t.Error("a Secret that nobody names went along")
	}
}
