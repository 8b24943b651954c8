package talosetcdbackup

import (
	"context"
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/work"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// delete cancels the work, removes the data that the spec demands to be removed, and releases the object. Setting the
// policy to Retain releases an object whose data cannot be deleted.
func (r *Reconciler) delete(ctx context.Context, s *scope, j *job) (ctrl.Result, error) {
	b := s.backup

	if !controllerutil.ContainsFinalizer(b, v1alpha1.Finalizer) {
		s.gone = true

		return ctrl.Result{}, nil
	}

	if j != nil && !j.Ended() {
		// Work in progress is obsolete, unless it is a removal that is still desired. The data of an attempt that never
		// completed is removed in any case.
		if j.About.kind != removing || retains(b) && b.Status.CompletedAt != nil {
			j.Cancel()
		}

		return ctrl.Result{RequeueAfter: progressPause}, nil
	}

	if j != nil {
		r.Runner.Drop(keyOf(b))
	}

	return r.afterWork(ctx, s, j)
}

// afterWork continues a deletion once no work is in progress; j is the completed work, if there is any.
func (r *Reconciler) afterWork(ctx context.Context, s *scope, j *job) (ctrl.Result, error) {
	b := s.backup

	var (
		removed bool
		err     error
	)

	if j != nil {
		_, err = j.Result()
		removed = j.About.kind == removing
	}

	if !removed && b.Status.CompletedAt != nil {
		if err := scheduled.WorksFrom(ctx, r.Reader, b, heldPoll); err != nil {
			return ctrl.Result{}, err
		}
	}

	switch {
	case b.Status.BackupID == "" || b.Status.CompletedAt != nil && retains(b), removed && err == nil:
		return ctrl.Result{}, r.release(ctx, s)
	case removed && retains(b):
		// The remains of an incomplete backup are removed by retention later; they must not block the object.
		ctrl.LoggerFrom(ctx).Error(err, "Removing what is left of an incomplete backup failed", "backup", b.Name)

		return ctrl.Result{}, r.release(ctx, s)
	case s.hold.Any():
		return ctrl.Result{RequeueAfter: heldPoll}, nil
	case removed:
		return ctrl.Result{}, refused(err)
	}

	_, err = r.Runner.start(order{
		kind: removing, backup: b.DeepCopy(), text: "deleting the backup", timeout: removeTimeout,
		do: r.remove(b.DeepCopy()),
	})

	return ctrl.Result{RequeueAfter: progressPause}, err
}

func retains(b *v1alpha1.TalosEtcdBackup) bool { return b.Spec.DeletionPolicy != v1alpha1.BackupDelete }

// refused says what blocks the deletion of the object, and how to release it without deleting its data.
func refused(err error) error {
	var told *failure.Error
	if !errors.As(err, &told) {
		return err
	}

	next := *told
	next.Message += "; set deletionPolicy to Retain to let the object go without its data"
	next.Err = err

	// No event reports that a bucket is available again, so it is retried, at long intervals.
	if next.Class == failure.ClassTerminal {
		next.Class, next.After = failure.ClassWaiting, refusedRetry
	}

	return &next
}

// refusedRetry is how soon a store that cannot delete is tried again.
const refusedRetry = 10 * time.Minute

// remove deletes the files of a backup: all of them or, if its data is retained, only those of an incomplete backup.
func (r *Reconciler) remove(b *v1alpha1.TalosEtcdBackup) func(context.Context, *work.Line) (outcome, error) {
	return func(ctx context.Context, _ *work.Line) (outcome, error) {
		s, err := r.Stores.WithStall(stall(b)).Open(ctx, b.Namespace, &b.Spec.Storage)
		if err != nil {
			return outcome{}, err
		}
		defer s.Close()

		if retains(b) {
			_, err := resolve(ctx, s, b, nil, r.Clock.Now())

			return outcome{}, err
		}

		set, err := recorded(ctx, s, b)
		if err != nil {
			return outcome{}, err
		}

		if set != nil {
			if err := backup.Delete(ctx, s, *set, r.Clock.Now()); err != nil {
				return outcome{}, err
			}
		}

		return outcome{}, backup.Sweep(ctx, s, filesOf(b))
	}
}

// release removes the finalizer.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	s.gone = true

	return frame.RemoveFinalizer(ctx, r.Client, s.backup, s.base, v1alpha1.Finalizer)
}
