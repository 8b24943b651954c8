package talosmachine

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// refuseConflict prevents two objects from configuring the same node.
func (r *Reconciler) refuseConflict(ctx context.Context, s *scope) (ctrl.Result, error) {
	other, err := machineset.AddressConflict(ctx, r.Client, s.machine, s.address)
	if err != nil {
		return ctrl.Result{}, err
	}

	if other.Name == "" {
		return ctrl.Result{}, nil
	}

	// Who may read this object need not know what is in another namespace: only the log names that.
	what := "TalosMachine " + other.Name
	if other.Namespace != s.machine.Namespace {
		what = "a TalosMachine in another namespace"
	}

	return ctrl.Result{}, failure.Terminal(v1alpha1.ReasonAddressConflict, fmt.Sprintf("address %s is that of %s "+
		"already; nothing was sent: give one of them its own address", s.address, what),
		fmt.Errorf("it is TalosMachine %s", other))
}
