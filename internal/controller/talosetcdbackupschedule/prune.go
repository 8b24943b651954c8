package talosetcdbackupschedule

import (
	"context"
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
)

// prune deletes the objects of old backups. Their data is kept by retention, regardless of their deletion policy.
func (r *Reconciler) prune(ctx context.Context, s *scope) error {
	if s.hold.Any() {
		return nil
	}

	newest := scheduled.Newest(s.backups, s.now)

	var good, failed []*v1alpha1.TalosEtcdBackup

	for i := range s.backups {
		b := &s.backups[i]

		switch {
		case !scheduled.Finished(b), scheduled.Unverified(b), !b.DeletionTimestamp.IsZero(),
			newest != nil && b.Name == newest.Name, scheduled.Holds(b, newest):
		case scheduled.Good(b):
			good = append(good, b)
		default:
			failed = append(failed, b)
		}
	}

	successful := orDefault(s.schedule.Spec.SuccessfulHistory, defaultSuccessful)
	if newest != nil {
		successful--
	}

	old := append(beyond(good, successful), beyond(failed, orDefault(s.schedule.Spec.FailedHistory, defaultFailed))...)
	for _, b := range old {
		if err := r.remove(ctx, b); err != nil {
			return err
		}
	}

	return nil
}

// beyond returns all but the newest backups.
func beyond(backups []*v1alpha1.TalosEtcdBackup, keep int) []*v1alpha1.TalosEtcdBackup {
	slices.SortFunc(backups, func(a, b *v1alpha1.TalosEtcdBackup) int { return older(b, a) })

	return backups[min(max(keep, 0), len(backups)):]
}
