package failure

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// EndQuietly drops the errors of reconciliations that the end of the manager cut off: its context ended, and no call
// succeeds then. The next manager reconciles again; to log it would be an alarm at every stop.
func EndQuietly(next reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		res, err := next.Reconcile(ctx, req)
		if err != nil && ctx.Err() != nil {
			return ctrl.Result{}, nil
		}

		return res, err
	})
}
