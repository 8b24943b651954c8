package talosmachine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/patchsource"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// loadPatches reads the patches that the objects take from ConfigMaps and Secrets. Nothing is compared or sent without
// them: a configuration without one of its patches would undo it.
func (r *Reconciler) loadPatches(ctx context.Context, s *scope) (res ctrl.Result, err error) {
	if s.answer != talos.StateMember && s.answer != talos.StateMaintenance {
		return res, nil
	}

	if s.patches, err = patchsource.For(ctx, r.Reader, s.controlPlane, s.worker, s.machine); err != nil {
		return res, r.lack(ctx, s, err)
	}

	return res, r.loadNeighbours(ctx, s)
}
