package talosworker

import (
	"context"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
)

func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) (err error) {
	s.base, err = frame.EnsureFinalizer(ctx, r.Client, s.worker, s.base, v1alpha1.Finalizer)

	return err
}
