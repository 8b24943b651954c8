package talosmachine

import (
	"context"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// allLost tells whether a control-plane machine that is to be taken out has lost its disk together with all others. No
// etcd is left then that could let its member go, and no other one may begin before each machine that ever had a
// config has shown that it holds no data. One in maintenance mode shows nothing: it gets its config again, as those on
// the list do, and leaves once there is an etcd.
func (r *Reconciler) allLost(ctx context.Context, s *scope) (bool, error) {
	if s.answer != talos.StateMaintenance || s.machine.Spec.Role != v1alpha1.RoleControlPlane ||
		kube.AnnotationTrue(s.machine, v1alpha1.SkipResetAnnotation) {
		return false, nil
	}

	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return false, err
	}

	// A cluster of one is given up, not lost.
	return len(machines) > 1 && safety.AllLost(r.evidence(s).Collect(ctx, machines)), nil
}
