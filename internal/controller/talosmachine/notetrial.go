package talosmachine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// noteTrial records that the operator has observed a node while a change is on trial.
func (r *Reconciler) noteTrial(_ context.Context, s *scope) (ctrl.Result, error) {
	if i := s.machine.Status.Intent; i != nil {
		i.Checked = i.Checked || change.Checked(i, s.rollout().TryTimeout, r.Clock.Now())
	}

	return ctrl.Result{}, nil
}
