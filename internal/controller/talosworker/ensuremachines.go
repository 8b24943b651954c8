package talosworker

import (
	"context"

	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
)

func (r *Reconciler) ensureMachines(ctx context.Context, s *scope) (err error) {
	s.machines, s.extra, err = group.Sync(ctx, r.Client, machineset.Group{
		Owner:          s.worker,
		ControlPlane:   s.worker.Spec.ControlPlaneRef.Name,
		Worker:         s.worker.Name,
		DeletionPolicy: s.worker.Spec.DeletionPolicy,
		Entries:        r.group(s).Entries(),
	}, s.machines)

	return err
}
