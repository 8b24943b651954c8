package talosmachine

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// isReleased reports whether the machine of a cluster that is deleted, and whose nodes continue to run, is let go
// without a state: an unusable state Secret would keep its object for ever, and with it that of the control plane and
// the Secret.
func (s *scope) isReleased(err error) bool {
	return failure.Reason(err) == v1alpha1.ReasonStateSecretInvalid && s.parentDeleting() &&
		s.machine.Spec.DeletionPolicy != v1alpha1.DeletionReset
}

// loadState reads the PKI, which the TalosControlPlane creates; until then the machine waits.
func (r *Reconciler) loadState(ctx context.Context, s *scope) (ctrl.Result, error) {
	held, err := r.States.Require(ctx, s.controlPlaneKey())
	if err != nil {
		if deleting(s.machine) && (failure.Reason(err) == v1alpha1.ReasonWaitingForControlPlane || s.isReleased(err)) {
			return ctrl.Result{}, nil
		}

		return ctrl.Result{}, err
	}

	access, err := r.States.Access(s.controlPlaneKey(), held.State.Bundle)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("opening the PKI of %s: %w", s.controlPlaneKey().Name, err)
	}

	s.held = held
	s.creds = talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key}

	return ctrl.Result{}, nil
}
