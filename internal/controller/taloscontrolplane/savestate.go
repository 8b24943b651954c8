package taloscontrolplane

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
)

// saveState writes the state that later reconciliations, or another management plane, start from. It writes nothing if
// nothing changed.
func (r *Reconciler) saveState(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.held.State.ObservedKubeVersion = s.version
	s.held.State.BundleConfig.TalosVersion = s.cp.Spec.TalosVersion
	s.held.State.BundleConfig.KubernetesVersion = s.cp.Spec.KubernetesVersion
	s.held.State.BundleConfig.CertSANs = s.cp.Spec.CertSANs

	if err := r.States.Update(ctx, s.held); err != nil {
		return ctrl.Result{}, err
	}

	return ctrl.Result{}, nil
}
