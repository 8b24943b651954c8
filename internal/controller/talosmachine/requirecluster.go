package talosmachine

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

func (r *Reconciler) requireCluster(_ context.Context, s *scope) (ctrl.Result, error) {
	if s.controlPlane == nil {
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonWaitingForControlPlane,
			fmt.Sprintf("waiting for TalosControlPlane %s, which does not exist", s.controlPlaneKey().Name), r.Resync)
	}

	if s.machine.Spec.WorkerRef != nil && s.worker == nil {
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonWaitingForControlPlane,
			fmt.Sprintf("waiting for TalosWorker %s, which does not exist", s.machine.Spec.WorkerRef.Name), r.Resync)
	}

	return ctrl.Result{}, nil
}
