package talosworker

import (
	"context"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// awaitOwner blocks the addition and removal of machines in a cluster that another control plane manages. Without a
// control plane, or before its PKI exists, there is no owner.
func (r *Reconciler) awaitOwner(ctx context.Context, s *scope) error {
	if s.controlPlane.UID == "" {
		return nil
	}

	held, err := r.States.Load(ctx, s.controlPlaneKey())

	switch {
	case clusterstate.IsUnusable(err):
		return nil
	case err != nil:
		return err
	}

	return held.CheckOwner(s.controlPlane)
}
