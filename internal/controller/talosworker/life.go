package talosworker

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/evidence"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// sign looks for a sign of life of one of the group's machines; empty when there is none.
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
		Cluster: func(ctx context.Context) (*workload.Cluster, error) { return r.cluster(ctx, s, held.State.Bundle) },
	}

	return life.Sign(ctx, m)
}

// cluster is the Kubernetes API of the group's cluster, at any of its control-plane nodes.
func (r *Reconciler) cluster(ctx context.Context, s *scope, b *clusterstate.Bundle) (*workload.Cluster, error) {
	list := &v1alpha1.TalosMachineList{}

	err := r.Client.List(ctx, list, client.InNamespace(s.worker.Namespace), client.MatchingLabels{
		v1alpha1.ControlPlaneLabel: s.controlPlaneKey().Name, v1alpha1.RoleLabel: string(v1alpha1.RoleControlPlane),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the control-plane machines of %s: %w", s.controlPlaneKey().Name, err)
	}

	var addresses []string

	for i := range list.Items {
		if a := evidence.Address(&list.Items[i]); a != "" {
			addresses = append(addresses, a)
		}
	}

	return r.Workloads.Cluster(ctx, b, addresses)
}

// machine is one of the group's machines; nil when there is none of the name.
func (s *scope) machine(name string) *v1alpha1.TalosMachine {
	for i := range s.machines {
		if s.machines[i].Name == name {
			return &s.machines[i]
		}
	}

	return nil
}
