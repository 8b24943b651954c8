package talosetcdbackup_test

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/harness"
)

func deletes(b *v1alpha1.TalosEtcdBackup) { b.Spec.DeletionPolicy = v1alpha1.BackupDelete }

// gone drives it until the object does not exist.
func (e *env) gone(b *v1alpha1.TalosEtcdBackup) {
	e.Helper()
	e.until(b, "it is gone", func() bool { return e.Gone(b) })
}

// TestDeletion: the data goes with the object only where the spec says so.
func TestDeletion(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	stays, goes := e.done(e.backup("stays")), e.done(e.backup("goes", deletes))

	e.Delete(stays)
	e.gone(stays)

	if got := e.inBucket(); len(got) != 8 {
		t.Errorf("after the deletion of an object that retains its data: %v", got)
	}

	e.Delete(goes)
	e.gone(goes)
	e.once(stays)
}

// TestDeletionIsRefused: a locked backup stays, and so does its object, which says why and how to let it go.
func TestDeletionIsRefused(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	e.bucket += "-locked"

	if err := e.s3.CreateBucket(t.Context(), e.bucket, true); err != nil {
		t.Fatal(err)
	}

	b := e.done(e.backup("b", deletes, func(b *v1alpha1.TalosEtcdBackup) {
		b.Spec.Storage.S3.ObjectLock = &v1alpha1.ObjectLock{
			Mode: "Governance", Duration: metav1.Duration{Duration: time.Hour},
		}
	}))

	e.Delete(b)
	e.until(b, "the deletion is refused", func() bool {
		for _, c := range b.Status.Conditions {
			if c.Type == v1alpha1.ConditionDeleting && c.Reason == backup.ReasonLocked {
				return true
			}
		}

		return false
	})
	e.Condition(b, v1alpha1.ConditionDeleting, metav1.ConditionTrue, backup.ReasonLocked, "set deletionPolicy to Retain")

	harness.Change(e.Env, b, func(b *v1alpha1.TalosEtcdBackup) { b.Spec.DeletionPolicy = v1alpha1.BackupRetain })
	e.gone(b)
	e.once(b)
}

// TestDeletionWithoutTheStore: the object waits for a store that is gone, and can be released.
func TestDeletionWithoutTheStore(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	b := e.done(e.backup("b", deletes))

	e.proxy.Set(func(*http.Request) s3.Fault { return s3.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"} })
	e.Delete(b)
	e.until(b, "the deletion waits", func() bool {
		for _, c := range b.Status.Conditions {
			if c.Type == v1alpha1.ConditionDeleting && c.Reason == store.ReasonUnavailable {
				return true
			}
		}

		return false
	})

	e.proxy.Set(nil)
	e.gone(b)
	e.empty("after the deletion")
}

// TestDeletionInTheMiddle: a backup that is being taken ends, and nothing of it stays.
func TestDeletionInTheMiddle(t *testing.T) {
	e := newEnv(t, must(t, threesome))
	b := e.backup("b")

	hit := make(chan struct{})
	e.atFirstPart(b, func(string) { close(hit) })
	e.until(b, "the upload has begun", func() bool {
		select {
		case <-hit:
			return true
		default:
			return false
		}
	})

	e.Delete(b)
	e.gone(b)

	// It was complete before it was deleted, or nothing of it is there.
	if got := e.inBucket(); len(got) != 0 && b.Status.CompletedAt == nil {
		t.Errorf("after the deletion: %v", got)
	}
}

// TestDeletionDuringARestore: what a restore works from stays until the restore has ended, and so does the object that
// it names, even where the data would stay.
func TestDeletionDuringARestore(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	named, chosen := e.done(e.backup("named")), e.done(e.backup("chosen", deletes))

	byName, byID := e.restoreFrom("by-name", "named"), e.restoreFrom("by-id", "another")
	byID.Status.Backup = &v1alpha1.RestoredBackup{ID: chosen.Status.BackupID}
	e.restoreAt(byID, v1alpha1.RestoreWiping)
	e.restoreAt(byName, v1alpha1.RestorePreflight)

	for r, b := range map[*v1alpha1.TalosEtcdRestore]*v1alpha1.TalosEtcdBackup{byName: named, byID: chosen} {
		e.Delete(b)

		for range 5 {
			e.Clock.Sleep(time.Minute)

			if _, err := e.pass(b); err != nil {
				t.Fatal(err)
			}
		}

		e.Condition(b, v1alpha1.ConditionDeleting, metav1.ConditionTrue, v1alpha1.ReasonRestoreInProgress, r.Name)
	}

	if got := e.inBucket(); len(got) != 8 {
		t.Errorf("during the restores: %v", got)
	}

	e.restoreAt(byID, v1alpha1.RestoreComplete)
	e.gone(chosen)
	e.restoreAt(byName, v1alpha1.RestoreStopped)
	e.gone(named)
	e.once(named)
}

// restoreFrom makes a restore that no controller works on.
func (e *env) restoreFrom(name, backup string) *v1alpha1.TalosEtcdRestore {
	e.Helper()

	r := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
			Source:          v1alpha1.RestoreSource{BackupRef: &v1alpha1.ObjectReference{Name: backup}},
		},
	}
	e.Create(r)

	return r
}
