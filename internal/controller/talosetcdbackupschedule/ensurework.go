package talosetcdbackupschedule

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// ensureWork starts the due work on the store.
func (r *Reconciler) ensureWork(ctx context.Context, s *scope) error {
	key := client.ObjectKeyFromObject(s.schedule)
	s.tick() // what was handled in this reconciliation is no longer due

	if s.schedule.Spec.Verification != nil {
		s.wakeAt(s.verification.next)
	}

	stored := s.schedule.Status.Stored
	if stored != nil {
		s.wakeAt(stored.Time.Add(lookAgain))
	}

	if s.invalid != "" || s.hold.Any() || s.controlPlane == nil || r.Runner.Find(key, s.schedule.UID) != nil {
		return nil
	}

	order := r.due(s)
	if order == nil {
		return nil
	}

	if until, resting := r.Runner.restsUntil(key, order.kind, s.now); resting {
		s.wakeAt(until)

		return nil
	}

	// A restore may read the backup that would be deleted, and the backups may be all that it has.
	err := scheduled.Restoring(ctx, r.Reader, s.schedule.Namespace, s.controlPlane.Name, heldPoll)
	if failure.ClassOf(err) == failure.ClassWaiting && err != nil {
		s.waiting = err
		s.wakeAt(s.now.Add(heldPoll))

		return nil
	} else if err != nil {
		return err
	}

	started, err := r.Runner.start(*order)
	if !started {
		s.wakeAt(s.now.Add(placePoll))
	}

	return err
}

// due returns the work to do next; nil if there is none.
func (r *Reconciler) due(s *scope) *order {
	o := s.schedule.DeepCopy()

	if s.looks() {
		return &order{kind: retaining, schedule: o, slot: s.now, timeout: workTimeout, do: r.retain(o, s.now)}
	}

	if slot := s.verification.slot; o.Spec.Verification != nil && !slot.IsZero() {
		if o.Spec.Verification.Level == v1alpha1.VerificationNone {
			s.verificationHandled(slot)

			return nil
		}

		return &order{kind: verifying, schedule: o, slot: slot, timeout: timeout(o), do: r.verify(o, s.now)}
	}

	return nil
}

// looks reports whether the store has to be listed: after each good backup, once a day, and if the last listing seems
// to be in the future.
func (s *scope) looks() bool {
	stored, newest := s.schedule.Status.Stored, scheduled.Newest(s.backups, s.now)

	switch {
	case stored == nil:
		return newest != nil || s.schedule.Status.LastSuccessTime != nil
	case newest != nil && stored.Time.Before(newest.Status.CompletedAt) && !newest.Status.CompletedAt.After(s.now):
		return true
	}

	return scheduled.InFuture(&stored.Time, s.now) || !s.now.Before(stored.Time.Add(lookAgain))
}

func timeout(o *v1alpha1.TalosEtcdBackupSchedule) time.Duration {
	if t := o.Spec.BackupTemplate.Spec.Timeout; t != nil && t.Duration > 0 {
		return t.Duration
	}

	return workTimeout
}
