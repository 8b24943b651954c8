package talosetcdrestore

import (
	"context"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// recall reads from the state whether the restore has run before. Its object may be recreated without a status, or with
// an old one, by Kubernetes backup tools, GitOps, or copies of manifests. The nodes have no record of a restore.
func (r *Reconciler) recall(ctx context.Context, s *scope) error {
	held, err := r.States.Load(ctx, s.controlPlaneKey())
	if clusterstate.IsUnusable(err) {
		return nil // its errors are reported later, and it may come from the backup
	}

	if err != nil {
		return err
	}

	if run := s.run(held.State); run != nil && run.UID == string(s.restore.UID) && run.EndedAt != nil && !s.mayRunAgain() {
		return r.conclude(ctx, s, run)
	}

	return s.refuseAgain(held.State)
}

// conclude writes to the status how the restore ended: the operator stopped before it could, or the status is an old
// one.
func (r *Reconciler) conclude(ctx context.Context, s *scope, run *clusterstate.RestoreRun) error {
	if run.Step == string(v1alpha1.RestoreComplete) {
		return r.succeed(ctx, s, "etcd runs from backup "+run.Backup)
	}

	return r.end(ctx, s, v1alpha1.ReasonRestoreFailed, "the restore was stopped, as the state Secret records; create "+
		"another one")
}
