package talosworker

import (
	"context"
	"sync"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// signs returns a function that looks for signs of life of the machines of the group in this pass. They share one
// connection to their cluster and one list of its Nodes.
func (r *Reconciler) signs(ctx context.Context, s *scope) func(*v1alpha1.TalosMachine) (string, error) {
	life := sync.OnceValues(func() (evidence.Life, error) { return r.life(ctx, s) })

	return func(m *v1alpha1.TalosMachine) (string, error) {
		l, err := life()
		if err != nil {
			return "", err
		}

		return l.Sign(ctx, m)
	}
}

func (r *Reconciler) life(ctx context.Context, s *scope) (evidence.Life, error) {
	key := s.controlPlaneKey()

	held, err := r.States.Require(ctx, key)
	if err != nil {
		return evidence.Life{}, err
	}

	access, err := r.States.Access(key, held.State.Bundle)
	if err != nil {
		return evidence.Life{}, err
	}

	return evidence.Life{
		Source: evidence.Source{
			Nodes: r.Nodes, State: held.State,
			Credentials: talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key},
		},
		Nodes: evidence.NodesOnce(func(ctx context.Context) (*workload.Cluster, error) {
			machines, err := machineset.ControlPlane(ctx, r.Client, key)
			if err != nil {
				return nil, err
			}

			return r.Workloads.Cluster(ctx, held.State.Bundle, evidence.Addresses(machines))
		}),
	}, nil
}
