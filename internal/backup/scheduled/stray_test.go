package scheduled_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestAnotherControlPlane: a schedule was deleted and recreated under its name for another control plane; backups
// have no owner and survive. A fresh backup of the former control plane must not permit a disruption of this one.
func TestAnotherControlPlane(t *testing.T) {
	theirs := newBackup("theirs", good(now), func(b *v1alpha1.TalosEtcdBackup) { b.Spec.ControlPlaneRef.Name = "former" })

	known, wanted, err := scheduled.Before(t.Context(), api(t, interceptor.Funcs{}, newSchedule(nightly), theirs), newControlPlane(), now)
	if err != nil || known.State == safety.BackupFresh || wanted == nil {
		t.Errorf("%+v, to create: %v, %v", known, wanted, err)
	}
}

// TestPausedBeforeVerified: a backup that was paused after it completed and before it was verified, as
// (*scope).completed and (*scope).idle of talosetcdbackup write it: Ready is True, Reconciling is removed.
func TestPausedBeforeVerified(t *testing.T) {
	b := newBackup("b", good(now), set(v1alpha1.ConditionVerified, metav1.ConditionFalse),
		set(v1alpha1.ConditionComplete, metav1.ConditionFalse), set(v1alpha1.ConditionPaused, metav1.ConditionTrue))

	if scheduled.Good(b) || !scheduled.Unverified(b) || !scheduled.Finished(b) {
		t.Errorf("good %v, unverified %v", scheduled.Good(b), scheduled.Unverified(b))
	}

	// It does not prevent another one.
	known, wanted, err := scheduled.Before(t.Context(), api(t, interceptor.Funcs{}, newSchedule(nightly), b), newControlPlane(), now)
	if err != nil || known.State == safety.BackupFresh || wanted == nil {
		t.Errorf("%+v, to create: %v, %v", known, wanted, err)
	}

	b.Name = wanted.Name

	known, wanted, err = scheduled.Before(t.Context(), api(t, interceptor.Funcs{}, newSchedule(nightly), b), newControlPlane(), now)
	if err != nil || known.State != safety.BackupRunning || known.Message != "it is paused" || wanted != nil {
		t.Errorf("%+v, to create: %v, %v", known, wanted, err)
	}
}

// TestBeingDeleted: the data of a backup with deletionPolicy Delete that is being deleted may be gone already.
func TestBeingDeleted(t *testing.T) {
	b := newBackup("b", good(now), deleted, func(b *v1alpha1.TalosEtcdBackup) { b.Spec.DeletionPolicy = v1alpha1.BackupDelete })

	known, _, err := scheduled.Before(t.Context(), api(t, interceptor.Funcs{}, newSchedule(nightly), b), newControlPlane(), now)
	if err != nil || known.State == safety.BackupFresh {
		t.Errorf("%+v, %v", known, err)
	}
}

// TestDotAtTheCut: a long name is cut after 191 characters; a dot there results in an invalid name.
func TestDotAtTheCut(t *testing.T) {
	name := strings.Repeat("a", 190) + "." + strings.Repeat("b", 20)
	if len(validation.IsDNS1123Subdomain(name)) != 0 {
		t.Fatal("the schedule itself has no valid name")
	}

	if faults := validation.IsDNS1123Subdomain(scheduled.Name(name, now)); len(faults) != 0 {
		t.Errorf("%s: %v", scheduled.Name(name, now), faults)
	}
}

// TestNameTaken: an object with the name, whose label was removed, is not listed. It is reported as a backup that was
// just created and runs, in each reconciliation.
func TestNameTaken(t *testing.T) {
	mine := nextName(t, newControlPlane(), newSchedule(nightly))
	c := api(t, interceptor.Funcs{}, newSchedule(nightly), newBackup(mine, failed, func(b *v1alpha1.TalosEtcdBackup) { b.Labels = nil }))

	verdict, made, err := scheduled.Permit(t.Context(), c, c, newControlPlane(), now, onlyBackup)
	if err == nil && made != nil {
		t.Errorf("reported as created: %s, %+v", made.Name, verdict)
	}
}

// TestAnotherPKI: a control plane was deleted and made anew under its name, and backups of the former one survive.
func TestAnotherPKI(t *testing.T) {
	cp := newControlPlane()
	cp.Status.BackupVerificationKey = "ours"

	for key, fresh := range map[string]bool{"ours": true, "theirs": false} {
		b := newBackup("b", good(now), func(b *v1alpha1.TalosEtcdBackup) { b.Status.VerificationKey = key })

		known, _, err := scheduled.Before(t.Context(), api(t, interceptor.Funcs{}, newSchedule(nightly), b), cp, now)
		if err != nil || (known.State == safety.BackupFresh) != fresh {
			t.Errorf("%s: %+v, %v", key, known, err)
		}
	}
}

// TestForeignNameTaken: an object with the name and the label, of another control plane, is no backup of this one.
func TestForeignNameTaken(t *testing.T) {
	mine := nextName(t, newControlPlane(), newSchedule(nightly))
	c := api(t, interceptor.Funcs{}, newSchedule(nightly), newBackup(mine, good(now), func(b *v1alpha1.TalosEtcdBackup) {
		b.Spec.ControlPlaneRef.Name = "former"
	}))

	var told string

	_, made, err := scheduled.Permit(t.Context(), c, c, newControlPlane(), now, func(b safety.Backup) safety.Verdict {
		told = b.Message

		return onlyBackup(b)
	})
	if err != nil || made != nil || !strings.Contains(told, "not one of the schedule") {
		t.Errorf("%q, %v, %v", told, made, err)
	}
}
