package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// cluster contains all objects of one cluster.
type cluster struct {
	// top is nil for a cluster whose TalosControlPlane was created manually.
	top          *vitistackv1alpha1.KubernetesCluster
	controlPlane *v1alpha1.TalosControlPlane
	workers      []v1alpha1.TalosWorker
	machines     []vitistackv1alpha1.Machine
	nodes        []v1alpha1.TalosMachine
}

// name returns the name of the Talos cluster, which its credentials contain.
func (c *cluster) name() string {
	if n := c.controlPlane.Spec.ClusterName; n != "" {
		return n
	}

	return c.controlPlane.Name
}

var errNoCluster = errors.New("no KubernetesCluster or TalosControlPlane")

// findCluster finds a cluster by the name of its KubernetesCluster or TalosControlPlane.
func findCluster(ctx context.Context, p *plane, name string) (*cluster, error) {
	c, err := findTop(ctx, p, name)
	if err != nil {
		return nil, err
	}

	return c, c.load(ctx, p)
}

func findTop(ctx context.Context, p *plane, name string) (*cluster, error) {
	key := client.ObjectKey{Namespace: p.namespace, Name: name}
	top, cp := &vitistackv1alpha1.KubernetesCluster{}, &v1alpha1.TalosControlPlane{}

	topErr, cpErr := p.Get(ctx, key, top), p.Get(ctx, key, cp)
	for _, err := range []error{topErr, cpErr} {
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, explain(fmt.Sprintf("looking for cluster %s", name), err)
		}
	}

	switch {
	case topErr == nil && cpErr == nil && !metav1.IsControlledBy(cp, top):
		return nil, fmt.Errorf("%s names a KubernetesCluster and a TalosControlPlane that do not belong together", name)
	case topErr == nil && cpErr == nil:
		return &cluster{top: top, controlPlane: cp}, nil
	case topErr == nil:
		return below(ctx, p, top)
	case cpErr == nil:
		return above(ctx, p, cp)
	}

	return nil, fmt.Errorf("%w %s in namespace %s", errNoCluster, name, p.namespace)
}

// below finds the control plane of a KubernetesCluster.
func below(ctx context.Context, p *plane, top *vitistackv1alpha1.KubernetesCluster) (*cluster, error) {
	list := &v1alpha1.TalosControlPlaneList{}
	if err := p.List(ctx, list, client.InNamespace(top.Namespace)); err != nil {
		return nil, explain("listing TalosControlPlanes", err)
	}

	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], top) {
			return &cluster{top: top, controlPlane: &list.Items[i]}, nil
		}
	}

	return nil, fmt.Errorf("KubernetesCluster %s has no control plane yet", top.Name)
}

// above finds the KubernetesCluster of a control plane, if it has one.
func above(ctx context.Context, p *plane, cp *v1alpha1.TalosControlPlane) (*cluster, error) {
	owner := metav1.GetControllerOf(cp)
	if owner == nil || owner.Kind != "KubernetesCluster" {
		return &cluster{controlPlane: cp}, nil
	}

	top := &vitistackv1alpha1.KubernetesCluster{}

	err := p.Get(ctx, client.ObjectKey{Namespace: cp.Namespace, Name: owner.Name}, top)
	if err != nil {
		return nil, explain(fmt.Sprintf("reading KubernetesCluster %s, which controls %s", owner.Name, cp.Name), err)
	}

	return &cluster{top: top, controlPlane: cp}, nil
}

// load reads all other objects of the cluster, sorted by name.
func (c *cluster) load(ctx context.Context, p *plane) error {
	in := client.InNamespace(c.controlPlane.Namespace)

	workers, nodes := &v1alpha1.TalosWorkerList{}, &v1alpha1.TalosMachineList{}
	machines := &vitistackv1alpha1.MachineList{}

	for _, list := range []client.ObjectList{workers, nodes, machines} {
		if err := p.List(ctx, list, in); err != nil {
			return explain("listing the objects of "+c.controlPlane.Name, err)
		}
	}

	c.workers = keep(workers.Items, func(w *v1alpha1.TalosWorker) bool {
		return w.Spec.ControlPlaneRef.Name == c.controlPlane.Name
	})
	c.nodes = keep(nodes.Items, func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.ControlPlaneRef.Name == c.controlPlane.Name
	})
	c.machines = keep(machines.Items, c.uses)

	return nil
}

// uses reports whether a Machine belongs to this cluster: created by its KubernetesCluster, or named by one of its
// machine lists.
func (c *cluster) uses(m *vitistackv1alpha1.Machine) bool {
	if c.top != nil && metav1.IsControlledBy(m, c.top) {
		return true
	}

	lists := [][]v1alpha1.MachineEntry{c.controlPlane.Spec.Machines, c.controlPlane.Spec.Spares}
	for i := range c.workers {
		lists = append(lists, c.workers[i].Spec.Machines, c.workers[i].Spec.Spares)
	}

	return slices.ContainsFunc(slices.Concat(lists...), func(e v1alpha1.MachineEntry) bool {
		return e.MachineRef != nil && e.MachineRef.Name == m.Name
	})
}

func (c *cluster) worker(name string) *v1alpha1.TalosWorker {
	for i := range c.workers {
		if c.workers[i].Name == name {
			return &c.workers[i]
		}
	}

	return nil
}

// keep filters and sorts by name.
func keep[T any, P interface {
	*T
	client.Object
}](items []T, wanted func(P) bool) []T {
	out := slices.DeleteFunc(items, func(o T) bool { return !wanted(&o) })
	slices.SortFunc(out, func(a, b T) int { return strings.Compare(P(&a).GetName(), P(&b).GetName()) })

	return out
}

// explain adds what users can do about an unspecific error.
func explain(doing string, err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%s: the management cluster does not have the CRDs of talos-operator", doing)
	}

	return fmt.Errorf("%s: %w", doing, err)
}

// completeTimeout ends a completion: a hanging shell is worse than a missing completion.
const completeTimeout = 3 * time.Second

// completeCluster completes the only argument of a command with the names of clusters.
func (s *session) completeCluster(cmd *cobra.Command, args []string, start string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	p, err := s.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()

	var out []cobra.Completion

	for _, list := range []client.ObjectList{
		&vitistackv1alpha1.KubernetesClusterList{}, &v1alpha1.TalosControlPlaneList{},
	} {
		if err := p.List(ctx, list, client.InNamespace(p.namespace)); err != nil {
			continue
		}

		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if named, err := meta.Accessor(o); err == nil && strings.HasPrefix(named.GetName(), start) {
				out = append(out, named.GetName())
			}

			return nil
		})
	}

	slices.Sort(out)

	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}
