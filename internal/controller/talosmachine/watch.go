package talosmachine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
)

// watch starts watching the node in the way that its state allows.
func (r *Reconciler) watch(ctx context.Context, s *scope) (ctrl.Result, error) {
	// Without the PKI, a machine can only be let go.
	if s.address == "" || s.held == nil {
		return ctrl.Result{}, nil
	}

	mode := nodewatch.Maintenance

	// A machine that is recorded as configured and is in maintenance mode is watched there until it leaves it. Each change
	// of the watch mode triggers a reconciliation, so changing it in each reconciliation would never end.
	if s.everConfigured() && !r.Watcher.Bare(s.key().String(), s.address) {
		mode = nodewatch.Secure

		// Connect before starting the stream, which shares the connection: otherwise a connection with new credentials would
		// count as late.
		if _, err := r.node(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}

	r.setTarget(s, mode)

	return ctrl.Result{}, nil
}
