package talosmachine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
)

// awaitOwner prevents writes to a node of a cluster that another control plane manages. Objects that are deleted
// without a reset write nothing anyway.
func (r *Reconciler) awaitOwner(_ context.Context, s *scope) (ctrl.Result, error) {
	if s.held == nil || s.controlPlane == nil || deleting(s.machine) && !s.decommissions() && !r.mustReset(s) {
		return ctrl.Result{}, nil
	}

	return ctrl.Result{}, s.held.CheckOwner(s.controlPlane)
}
