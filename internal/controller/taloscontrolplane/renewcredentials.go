package taloscontrolplane

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
)

// renewCredentials renews the credentials of an established cluster. It runs before all phases that may stall for
// months, for example because of a rejected spec or a lost node. Its errors are reported by the later phases that write
// the Secrets.
func (r *Reconciler) renewCredentials(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.seeAuthorities(r.Clock.Now())

	if b := s.held.State.Runtime.Bootstrap; b == nil || b.EstablishedAt == nil {
		return ctrl.Result{}, nil
	}

	machines, err := machineset.List(ctx, r.Client, s.cp)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.machines = machines

	for _, keep := range []frame.Phase[*scope]{r.ensureTalosconfig, r.ensureKubeconfig} {
		if _, err := keep(ctx, s); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Keeping credentials failed")
		}
	}

	return ctrl.Result{}, nil
}
