package talosworker

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// checked returns the picked machines that may begin by the checks of the cluster. was is the plan of before.
func (r *Reconciler) checked(
	ctx context.Context, s *scope, cp *v1alpha1.TalosControlPlane, was *v1alpha1.PlanStatus, out *rollout.Output,
	picked []rollout.Candidate,
) []rollout.Candidate {
	upgrades := group.Upgrades{
		Of: client.ObjectKeyFromObject(s.worker), ControlPlane: cp, Clock: r.Clock, Verdicts: &r.checks,
		Connect: func(ctx context.Context) (*workload.Cluster, error) { return r.cluster(ctx, s) },
	}

	if was != nil {
		upgrades.Was = was.Check
	}

	return upgrades.Hold(ctx, picked, out)
}

// cluster connects to the Kubernetes API of the cluster.
func (r *Reconciler) cluster(ctx context.Context, s *scope) (*workload.Cluster, error) {
	held, err := r.States.Require(ctx, s.controlPlaneKey())
	if err != nil {
		return nil, err
	}

	machines, err := machineset.ControlPlane(ctx, r.Client, s.controlPlaneKey())
	if err != nil {
		return nil, err
	}

	return r.Workloads.Cluster(ctx, held.State.Bundle, evidence.Addresses(machines))
}
