package taloscontrolplane

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/scheduled"
	"github.com/talos-operator/talos-operator/internal/plan"
)

// permit asks the safety kernel about one disruption. Where nothing but a missing backup holds it, that is made.
func (r *Reconciler) permit(ctx context.Context, s *scope, d plan.Disruption) (plan.Verdict, error) {
	known, wanted, err := scheduled.Before(ctx, r.Reader, s.cp, r.Clock.Now())
	if err != nil {
		return plan.Verdict{}, err
	}

	d.Backup = known
	verdict := plan.Permit(s.nodes, "", d)

	if verdict.Reason == v1alpha1.ReasonWaitingForBackup && wanted != nil {
		if err := scheduled.Make(ctx, r.Client, wanted); err != nil {
			return plan.Verdict{}, err
		}

		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeNormal, v1alpha1.ReasonWaitingForBackup, "Backup",
			"Taking TalosEtcdBackup %s before %s goes away", wanted.Name, d.Machine)

		d.Backup.State, d.Backup.Name, d.Backup.Message = plan.BackupRunning, wanted.Name, ""
		verdict = plan.Permit(s.nodes, "", d)
	}

	if verdict.Reason == v1alpha1.ReasonWaitingForBackup || verdict.Reason == v1alpha1.ReasonBackupFailed {
		s.backup = &verdict
	}

	if verdict.Action != plan.Proceed {
		return verdict, nil
	}

	if owner, err := r.ownerPermits(ctx, s); err != nil || owner.Action != plan.Proceed {
		return owner, err
	}

	return verdict, nil
}
