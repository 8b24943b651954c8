package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// Kinds of the objects of a cluster.
var (
	KindCluster      = vitistackv1alpha1.GroupVersion.WithKind("KubernetesCluster")
	KindMachine      = vitistackv1alpha1.GroupVersion.WithKind("Machine")
	KindControlPlane = v1alpha1.GroupVersion.WithKind("TalosControlPlane")
	KindWorker       = v1alpha1.GroupVersion.WithKind("TalosWorker")
	KindTalosMachine = v1alpha1.GroupVersion.WithKind("TalosMachine")
)

// Cluster contains all objects of one cluster.
type Cluster struct {
	// Top is nil for a cluster whose TalosControlPlane was created manually.
	Top          *vitistackv1alpha1.KubernetesCluster
	ControlPlane *v1alpha1.TalosControlPlane
	Workers      []v1alpha1.TalosWorker
	Machines     []vitistackv1alpha1.Machine
	Nodes        []v1alpha1.TalosMachine
}

// Name returns the name of the Talos cluster, which its credentials contain.
func (c *Cluster) Name() string {
	if n := c.ControlPlane.Spec.ClusterName; n != "" {
		return n
	}

	return c.ControlPlane.Name
}

// ErrNoCluster says that a name is that of no cluster.
var ErrNoCluster = errors.New("no KubernetesCluster or TalosControlPlane")

// FindCluster finds a cluster by the name of its KubernetesCluster or TalosControlPlane.
func FindCluster(ctx context.Context, p *Plane, name string) (*Cluster, error) {
	c, err := FindTop(ctx, p, name)
	if err != nil {
		return nil, err
	}

	return c, c.Load(ctx, p)
}

// FindTop finds the KubernetesCluster and the TalosControlPlane of a cluster, and reads no other objects.
func FindTop(ctx context.Context, p *Plane, name string) (*Cluster, error) {
	key := client.ObjectKey{Namespace: p.Namespace, Name: name}
	top, cp := &vitistackv1alpha1.KubernetesCluster{}, &v1alpha1.TalosControlPlane{}

	topErr, cpErr := p.Get(ctx, key, top), p.Get(ctx, key, cp)
	for _, err := range []error{topErr, cpErr} {
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, Explain(fmt.Sprintf("looking for cluster %s", name), err)
		}
	}

	switch {
	case topErr == nil && cpErr == nil && !metav1.IsControlledBy(cp, top):
		return nil, fmt.Errorf("%s names a KubernetesCluster and a TalosControlPlane that do not belong together", name)
	case topErr == nil && cpErr == nil:
		return &Cluster{Top: top, ControlPlane: cp}, nil
	case topErr == nil:
		return below(ctx, p, top)
	case cpErr == nil:
		return above(ctx, p, cp)
	}

	return nil, fmt.Errorf("%w %s in namespace %s", ErrNoCluster, name, p.Namespace)
}

// below finds the control plane of a KubernetesCluster.
func below(ctx context.Context, p *Plane, top *vitistackv1alpha1.KubernetesCluster) (*Cluster, error) {
	list := &v1alpha1.TalosControlPlaneList{}
	if err := p.List(ctx, list, client.InNamespace(top.Namespace)); err != nil {
		return nil, Explain("listing TalosControlPlanes", err)
	}

	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], top) {
			return &Cluster{Top: top, ControlPlane: &list.Items[i]}, nil
		}
	}

	return nil, fmt.Errorf("KubernetesCluster %s has no control plane yet", top.Name)
}

// above finds the KubernetesCluster of a control plane, if it has one.
func above(ctx context.Context, p *Plane, cp *v1alpha1.TalosControlPlane) (*Cluster, error) {
	owner := metav1.GetControllerOf(cp)
	if owner == nil || owner.Kind != "KubernetesCluster" {
		return &Cluster{ControlPlane: cp}, nil
	}

	top := &vitistackv1alpha1.KubernetesCluster{}

	err := p.Get(ctx, client.ObjectKey{Namespace: cp.Namespace, Name: owner.Name}, top)
	if err != nil {
		return nil, Explain(fmt.Sprintf("reading KubernetesCluster %s, which controls %s", owner.Name, cp.Name), err)
	}

	return &Cluster{Top: top, ControlPlane: cp}, nil
}

// Load reads all other objects of the cluster, sorted by name.
func (c *Cluster) Load(ctx context.Context, p *Plane) error {
	in := client.InNamespace(c.ControlPlane.Namespace)

	workers, nodes := &v1alpha1.TalosWorkerList{}, &v1alpha1.TalosMachineList{}
	machines := &vitistackv1alpha1.MachineList{}

	for _, list := range []client.ObjectList{workers, nodes, machines} {
		if err := p.List(ctx, list, in); err != nil {
			return Explain("listing the objects of "+c.ControlPlane.Name, err)
		}
	}

	c.Workers = Keep(workers.Items, func(w *v1alpha1.TalosWorker) bool {
		return w.Spec.ControlPlaneRef.Name == c.ControlPlane.Name
	})
	c.Nodes = Keep(nodes.Items, func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.ControlPlaneRef.Name == c.ControlPlane.Name
	})
	c.Machines = Keep(machines.Items, c.uses)

	return nil
}

// uses reports whether a Machine belongs to this cluster: created by its KubernetesCluster, or named by one of its
// machine lists.
func (c *Cluster) uses(m *vitistackv1alpha1.Machine) bool {
	if c.Top != nil && metav1.IsControlledBy(m, c.Top) {
		return true
	}

	lists := [][]v1alpha1.MachineEntry{c.ControlPlane.Spec.Machines, c.ControlPlane.Spec.Spares}
	for i := range c.Workers {
		lists = append(lists, c.Workers[i].Spec.Machines, c.Workers[i].Spec.Spares)
	}

	return slices.ContainsFunc(slices.Concat(lists...), func(e v1alpha1.MachineEntry) bool {
		return e.MachineRef != nil && e.MachineRef.Name == m.Name
	})
}

// Worker returns the worker group of a name, nil if there is none.
func (c *Cluster) Worker(name string) *v1alpha1.TalosWorker {
	for i := range c.Workers {
		if c.Workers[i].Name == name {
			return &c.Workers[i]
		}
	}

	return nil
}

// Keep filters and sorts by name.
func Keep[T any, P interface {
	*T
	client.Object
}](items []T, wanted func(P) bool) []T {
	out := slices.DeleteFunc(items, func(o T) bool { return !wanted(&o) })
	slices.SortFunc(out, func(a, b T) int { return strings.Compare(P(&a).GetName(), P(&b).GetName()) })

	return out
}

// Explain adds what users can do about an unspecific error.
func Explain(doing string, err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%s: the management cluster does not have the CRDs of talos-operator", doing)
	}

	return fmt.Errorf("%s: %w", doing, err)
}

// ExplainNil is Explain for an error that may be nil.
func ExplainNil(doing string, err error) error {
	if err == nil {
		return nil
	}

	return Explain(doing, err)
}

// FindMachine opens the management cluster and reads a TalosMachine, by its name or that of its Machine.
func (s *Session) FindMachine(ctx context.Context, name string) (*Plane, *v1alpha1.TalosMachine, error) {
	p, err := s.Open()
	if err != nil {
		return nil, nil, err
	}

	m := &v1alpha1.TalosMachine{}
	if err := p.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, m); err != nil {
		return p, nil, Explain(fmt.Sprintf("reading TalosMachine %s in namespace %s", name, p.Namespace), err)
	}

	return p, m, nil
}
