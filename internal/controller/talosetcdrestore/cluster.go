package talosetcdrestore

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// loadControlPlane reads the control plane. It may be created after the restore: until then the restore waits, and
// prevents it from creating a PKI of its own.
func (r *Reconciler) loadControlPlane(ctx context.Context, s *scope) error {
	cp := &v1alpha1.TalosControlPlane{}

	err := r.Reader.Get(ctx, s.controlPlaneKey(), cp)
	if apierrors.IsNotFound(err) {
		return failure.Waiting(v1alpha1.ReasonWaitingForControlPlane,
			fmt.Sprintf("waiting for TalosControlPlane %s, which does not exist", s.controlPlaneKey().Name), pollSlow)
	}

	if err != nil {
		return fmt.Errorf("reading TalosControlPlane %s: %w", s.controlPlaneKey().Name, err)
	}

	s.cp = cp

	if deleting(cp) {
		return failure.Waiting(v1alpha1.ReasonWaitingForControlPlane,
			fmt.Sprintf("TalosControlPlane %s is being deleted", cp.Name), pollSlow)
	}

	return nil
}

func unreadable(err *clusterstate.CorruptError) error {
	return failure.Terminal(v1alpha1.ReasonStateSecretInvalid, err.Error()+"; it was not changed: restore it from a "+
		"copy, or move it away to use the one in the backup", err)
}

func ours(s *scope, held *clusterstate.Held) bool {
	rec := held.State.Runtime.Restore

	return rec != nil && rec.UID == string(s.restore.UID)
}

// release releases the cluster to the other controllers.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	held, err := r.States.Load(ctx, s.controlPlaneKey())
	if clusterstate.IsUnusable(err) {
		return nil
	}

	if err != nil {
		return err
	}

	if !ours(s, held) {
		return nil
	}

	held.State.Runtime.Restore = nil

	if err := r.States.Update(ctx, held); err != nil {
		return fmt.Errorf("giving the cluster %s back: %w", s.controlPlaneKey().Name, err)
	}

	return nil
}
