package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// sightings records orphaned members between two reconciliations. A restart loses them, and they have to be observed
// twice again, which only causes a delay.
type sightings struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]safety.Sightings
}

func (s *sightings) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.seen, key)
}

// remembered returns machines that were configured once and are not listed now, perhaps because a move transferred only
// some of the objects. Their members still belong to them. Workers are omitted because they have no members.
func (r *Reconciler) remembered(ctx context.Context, s *scope) ([]safety.Node, error) {
	var (
		out  []safety.Node
		list v1alpha1.TalosMachineList
	)

	err := r.Client.List(ctx, &list, client.InNamespace(s.cp.Namespace), client.MatchingLabels{
		v1alpha1.ControlPlaneLabel: s.cp.Name, v1alpha1.RoleLabel: string(v1alpha1.RoleWorker),
	}, kube.Shared)
	if err != nil {
		return nil, fmt.Errorf("listing the workers of %s: %w", s.cp.Name, err)
	}

	for name, m := range s.held.State.Runtime.Machines {
		// For records from before roles were recorded, the role is known only while the object exists.
		worker := m.Role == string(v1alpha1.RoleWorker) ||
			slices.ContainsFunc(list.Items, func(w v1alpha1.TalosMachine) bool { return w.Name == name })

		if !worker && s.machine(name) == nil {
			out = append(out, safety.Node{Name: name, Address: m.Address, EverConfigured: true})
		}
	}

	return out, nil
}
