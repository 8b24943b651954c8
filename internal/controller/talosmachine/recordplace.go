package talosmachine

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// recordPlace records the address and the identity of the machine.
func (r *Reconciler) recordPlace(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.answer != talos.StateMember || s.facts == nil || !s.everConfigured() {
		return ctrl.Result{}, nil
	}

	have := s.held.State.Runtime.Machines[s.machine.Name]
	if have.Address == s.address && (s.facts.UUID == "" || have.UUID == s.facts.UUID) {
		return ctrl.Result{}, nil
	}

	err := r.States.Record(ctx, s.controlPlaneKey(), func(state *clusterstate.State) { r.markConfigured(s, state) })
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("recording where %s is: %w", s.machine.Name, err)
	}

	if have.Address != "" && have.Address != s.address {
		r.event(s, v1alpha1.ReasonReachable, "Move", "Found %s at %s instead of %s", s.machine.Name, s.address, have.Address)
	}

	return ctrl.Result{}, nil
}
