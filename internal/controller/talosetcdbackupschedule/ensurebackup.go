package talosetcdbackupschedule

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// ensureBackup creates the backup that is due. Its name is derived from the scheduled time, so a crash between creating
// and recording it does not result in a second one.
func (r *Reconciler) ensureBackup(ctx context.Context, s *scope) error {
	slot := s.timing.slot
	s.wakeAt(s.timing.next)

	switch {
	case s.invalid != "" || slot.IsZero() || s.hold.Any() || s.schedule.Spec.Suspend:
		return nil
	case s.timing.late:
		r.tell(s, corev1.EventTypeWarning, v1alpha1.ReasonBackupMissed,
			"The backup of %s could not start before its deadline", slot)
		s.handled(slot)

		return nil
	}

	wait, err := r.mayBegin(ctx, s)
	if wait != nil || err != nil {
		s.waiting = wait

		return err
	}

	name := scheduled.Name(s.schedule.Name, slot)

	free, err := r.makeRoom(ctx, s, name)
	if !free || err != nil {
		return err
	}

	if err := r.create(ctx, s, name); err != nil {
		return err
	}

	s.handled(slot)

	return nil
}

func (r *Reconciler) tell(s *scope, kind, reason, format string, slot time.Time, args ...any) {
	args = append([]any{slot.Format(time.RFC3339)}, args...)
	r.Recorder.Eventf(s.schedule, nil, kind, reason, "Backup", format, args...)
}

// mayBegin returns what a backup has to wait for.
func (r *Reconciler) mayBegin(ctx context.Context, s *scope) (wait, err error) {
	if s.orphaned() {
		return s.missing(), nil
	}

	err = scheduled.Restoring(ctx, r.Reader, s.schedule.Namespace, s.controlPlane.Name, heldPoll)
	if failure.ClassOf(err) == failure.ClassWaiting {
		s.wakeAt(s.now.Add(heldPoll))

		return err, nil
	}

	return nil, err
}

// makeRoom ensures that no other backup of the schedule is running. It returns false if the new one has to wait, or is
// skipped. Running backups are read live.
func (r *Reconciler) makeRoom(ctx context.Context, s *scope, name string) (bool, error) {
	backups, err := scheduled.List(ctx, r.Reader, s.schedule)
	if err != nil {
		return false, err
	}

	for i := range backups {
		b := &backups[i]

		switch {
		case b.Name == name || scheduled.Finished(b) && b.DeletionTimestamp.IsZero():
		case scheduled.Finished(b):
			// The backup is being deleted and no longer reads from the nodes.
		case s.schedule.Spec.ConcurrencyPolicy != v1alpha1.ConcurrencyReplace:
			r.tell(s, corev1.EventTypeWarning, v1alpha1.ReasonBackupSkipped,
				"The backup of %s is skipped: TalosEtcdBackup %s still runs", s.timing.slot, b.Name)
			s.handled(s.timing.slot)

			return false, nil
		default:
			return false, r.replace(ctx, s, b)
		}
	}

	return true, nil
}

// replace cancels a running backup. The new one is created once it is gone.
func (r *Reconciler) replace(ctx context.Context, s *scope, b *v1alpha1.TalosEtcdBackup) error {
	s.waiting = failure.Waiting(v1alpha1.ReasonBackupReplaced,
		fmt.Sprintf("waiting until TalosEtcdBackup %s has ended", b.Name), heldPoll)
	s.wakeAt(s.now.Add(heldPoll))

	if !b.DeletionTimestamp.IsZero() {
		return nil
	}

	r.tell(s, corev1.EventTypeWarning, v1alpha1.ReasonBackupReplaced,
		"The backup of %s is due: ending TalosEtcdBackup %s", s.timing.slot, b.Name)

	return r.remove(ctx, b)
}

// create creates the backup. An existing backup of this schedule with the same name was created before a crash and not
// recorded.
func (r *Reconciler) create(ctx context.Context, s *scope, name string) error {
	b := scheduled.New(s.schedule, name)

	err := r.Client.Create(ctx, b, kube.FieldOwner)

	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Made a backup", "backup", name)
		s.backups = append(s.backups, *b)

		return nil
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating TalosEtcdBackup %s: %w", name, err)
	}

	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
		return fmt.Errorf("reading TalosEtcdBackup %s: %w", name, err)
	}

	if !scheduled.IsOf(b, s.schedule) {
		return failure.Waiting(v1alpha1.ReasonNameConflict,
			fmt.Sprintf("TalosEtcdBackup %s exists and is not of this schedule; delete or rename it", name), heldPoll)
	}

	return nil
}
