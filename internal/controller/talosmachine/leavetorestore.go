package talosmachine

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// pollRestore is how often a machine that is blocked by a restore checks whether it still is.
const pollRestore = 5 * time.Second

// leaveToRestore blocks changes to a node while a restore is working on its cluster. A machine that is not configured
// yet is still configured: a restore to new machines needs that.
func (r *Reconciler) leaveToRestore(_ context.Context, s *scope) (ctrl.Result, error) {
	if s.held == nil || s.held.State.Runtime.Restore == nil {
		return ctrl.Result{}, nil
	}

	if !deleting(s.machine) && s.machine.Status.Change == nil {
		return ctrl.Result{}, nil
	}

	r.Installs.Drop(s.key())

	return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonRestoring, fmt.Sprintf("TalosEtcdRestore %s is restoring the "+
		"cluster",
		s.held.State.Runtime.Restore.Name), pollRestore)
}
