package talosmachine

import (
	"context"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// allLost reports whether a control-plane machine that is being removed has lost its disk together with all others.
// Then no etcd is left that could remove its member, and no new etcd may be bootstrapped before every machine that was
// ever configured has proven that it has no data. A machine in maintenance mode proves nothing: it is configured again,
// like the listed machines, and leaves once there is an etcd.
func (r *Reconciler) allLost(ctx context.Context, s *scope) (bool, error) {
	if s.answer != talos.StateMaintenance || s.machine.Spec.Role != v1alpha1.RoleControlPlane ||
		kube.AnnotationTrue(s.machine, v1alpha1.SkipResetAnnotation) {
		return false, nil
	}

	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return false, err
	}

	// The only machine of a cluster is abandoned, not lost.
	return len(machines) > 1 && safety.AllLost(r.evidence(s).Collect(ctx, machines)), nil
}
