package talosworker

import (
	"context"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// sign returns a sign of life of one of the group's machines; empty if there is none.
func (r *Reconciler) sign(ctx context.Context, s *scope, m *v1alpha1.TalosMachine) (string, error) {
	key := s.controlPlaneKey()

	held, err := r.States.Require(ctx, key)
	if err != nil {
		return "", err
	}

	access, err := r.States.Access(key, held.State.Bundle)
	if err != nil {
		return "", err
	}

	life := evidence.Life{
		Source: evidence.Source{
			Nodes: r.Nodes, State: held.State,
			Credentials: talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key},
		},
		Cluster: func(ctx context.Context) (*workload.Cluster, error) {
			machines, err := machineset.ControlPlane(ctx, r.Client, key)
			if err != nil {
				return nil, err
			}

			return r.Workloads.Cluster(ctx, held.State.Bundle, evidence.Addresses(machines))
		},
	}

	return life.Sign(ctx, m)
}
