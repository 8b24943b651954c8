package taloscontrolplane

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
)

func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) (res ctrl.Result, err error) {
	s.base, err = frame.EnsureFinalizer(ctx, r.Client, s.cp, s.base, v1alpha1.Finalizer)

	return res, err
}
