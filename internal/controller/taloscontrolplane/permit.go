package taloscontrolplane

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// permit consults the safety package about one disruption. If only a missing backup blocks it, the backup is created.
func (r *Reconciler) permit(ctx context.Context, s *scope, d safety.Disruption) (safety.Verdict, error) {
	permit := func(b safety.Backup) safety.Verdict {
		d.Backup = b

		return safety.Permit(s.nodes, "", d)
	}

	verdict, err := r.withBackup(ctx, s, s.cp, d.Machine+" goes away", permit)
	if err != nil {
		return safety.Verdict{}, err
	}

	if verdict.Action != safety.Proceed {
		return verdict, nil
	}

	if owner, err := r.ownerPermits(ctx, s); err != nil || owner.Action != safety.Proceed {
		return owner, err
	}

	return verdict, nil
}

// withBackup asks with the backup that cp demands, which is s.cp or has another maximum age. If only a missing one
// blocks the request, it is created. before says what it is for.
func (r *Reconciler) withBackup(
	ctx context.Context, s *scope, cp *v1alpha1.TalosControlPlane, before string,
	permit func(safety.Backup) safety.Verdict,
) (safety.Verdict, error) {
	verdict, made, err := scheduled.Permit(ctx, r.Client, r.Reader, cp, r.Clock.Now(), permit)
	if err != nil {
		return safety.Verdict{}, err
	}

	if made != nil {
		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeNormal, v1alpha1.ReasonWaitingForBackup, "Backup",
			"Taking TalosEtcdBackup %s before %s", made.Name, before)
	}

	if verdict.Reason == v1alpha1.ReasonWaitingForBackup || verdict.Reason == v1alpha1.ReasonBackupFailed {
		s.backup = &verdict
	}

	return verdict, nil
}

// permitUpgrade asks for the backup that is newer than the plan of an upgrade. If there is none, it is created.
func (r *Reconciler) permitUpgrade(
	ctx context.Context, s *scope, run *clusterstate.UpgradeRun,
) (safety.Verdict, error) {
	what, now := run.Component+" "+run.To, r.Clock.Now()
	permit := func(b safety.Backup) safety.Verdict { return safety.PermitUpgrade(what, b) }

	cp := s.cp.DeepCopy()
	cp.Spec.BackupBeforeDisruption = cmp.Or(cp.Spec.BackupBeforeDisruption, s.demand)

	verdict, err := r.withBackup(ctx, s, scheduled.Since(cp, run.PlannedAt, now), what+" begins", permit)
	if s.backup != nil && s.demand != nil {
		s.backup.Message += "; to begin without a backup, set upgrade.backup to None"
		verdict = *s.backup
	}

	return verdict, err
}
