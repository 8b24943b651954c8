package kubernetescluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// list reads the objects that the cluster controls.
func (r *Reconciler) list(ctx context.Context, s *scope) error {
	own := []client.ListOption{
		client.InNamespace(s.cluster.Namespace), kube.Controlled{Owner: s.cluster.UID}, kube.Shared,
	}

	machines := &vitistackv1alpha1.MachineList{}
	if err := r.Client.List(ctx, machines, own...); err != nil {
		return fmt.Errorf("listing Machines of %s: %w", s.cluster.Name, err)
	}

	groups := &v1alpha1.TalosWorkerList{}
	if err := r.Client.List(ctx, groups, own...); err != nil {
		return fmt.Errorf("listing TalosWorkers of %s: %w", s.cluster.Name, err)
	}

	planes := &v1alpha1.TalosControlPlaneList{}
	if err := r.Client.List(ctx, planes, own...); err != nil {
		return fmt.Errorf("listing TalosControlPlanes of %s: %w", s.cluster.Name, err)
	}

	if found := kube.ControlledBy(planes.Items, s.cluster); len(found) > 0 {
		s.cp = &found[len(found)-1]
	}

	s.groups = kube.ControlledBy(groups.Items, s.cluster)
	s.have = kube.ControlledBy(machines.Items, s.cluster)
	s.listed = true

	return r.chooseMembers(ctx, s)
}
