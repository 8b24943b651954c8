package taloscontrolplane

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
)

func (r *Reconciler) ensureMachines(ctx context.Context, s *scope) (res ctrl.Result, err error) {
	if s.machines, err = machineset.List(ctx, r.Client, s.cp); err != nil {
		return res, err
	}

	s.machines, s.extra, err = group.Sync(ctx, r.Client, machineset.Group{
		Owner:          s.cp,
		ControlPlane:   s.cp.Name,
		DeletionPolicy: s.cp.Spec.DeletionPolicy,
		Entries:        r.group(s).Entries(),
	}, s.machines)
	if err != nil {
		s.scaling = "no machine was removed in the last reconciliation"
	}

	return res, err
}
