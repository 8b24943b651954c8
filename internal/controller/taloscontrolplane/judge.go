package taloscontrolplane

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// judge reports what would be decided, and whether the Kubernetes API responds.
func (r *Reconciler) judge(ctx context.Context, s *scope) (ctrl.Result, error) {
	d, err := r.decideBootstrap(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.bootstrap = &d

	if d.Action != safety.BootstrapDone {
		return ctrl.Result{}, nil
	}

	r.askVersion(ctx, s)

	return ctrl.Result{}, nil
}
