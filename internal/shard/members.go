package shard

import (
	"cmp"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// Lists returns an empty list of each kind that carries the label.
func Lists() []client.ObjectList {
	out := make([]client.ObjectList, 0, len(kinds))
	for _, k := range kinds {
		out = append(out, k.list())
	}

	return out
}

// Kind returns the kind of an object that carries the label; empty for another one.
func Kind(o client.Object) string { return named(o) }

// Members returns the objects of a cluster, of which root is the KubernetesCluster, or the TalosControlPlane without
// one: each before what it belongs to, and the root last. all are the objects of its namespace.
func Members(all []client.Object, root client.Object) []client.Object {
	t := tree{by: map[ref]client.Object{}, users: map[string]ref{}}
	for _, o := range all {
		t.add(o)
	}

	depths, top := map[client.Object]int{}, ref{named(root), root.GetName()}

	for self, o := range t.by {
		if depth, ok := t.depth(self, top); ok {
			depths[o] = depth
		}
	}

	out := make([]client.Object, 0, len(depths))
	for o := range depths {
		out = append(out, o)
	}

	slices.SortFunc(out, func(a, b client.Object) int {
		return cmp.Or(depths[b]-depths[a], cmp.Compare(named(a), named(b)), cmp.Compare(a.GetName(), b.GetName()))
	})

	return out
}

// tree knows what objects of a namespace belong to.
type tree struct {
	by map[ref]client.Object
	// users are the control planes and groups that list Machines, by the name of the Machine.
	users map[string]ref
}

func (t tree) add(o client.Object) {
	self := ref{named(o), o.GetName()}
	t.by[self] = o

	var entries []v1alpha1.MachineEntry

	switch o := o.(type) {
	case *v1alpha1.TalosControlPlane:
		entries = slices.Concat(o.Spec.Machines, o.Spec.Spares)
	case *v1alpha1.TalosWorker:
		entries = slices.Concat(o.Spec.Machines, o.Spec.Spares)
	}

	for _, e := range entries {
		if e.MachineRef != nil {
			t.users[e.MachineRef.Name] = self
		}
	}
}

// depth is how many objects are between one and the top that it belongs to; false if it belongs to another one.
func (t tree) depth(self, top ref) (int, bool) {
	for depth := range deepest + 1 {
		if self == top {
			return depth, true
		}

		up, ok := t.above(self)
		if !ok {
			break
		}

		self = up
	}

	return 0, false
}

// above is what an object belongs to; false if that does not exist.
func (t tree) above(self ref) (ref, bool) {
	o := t.by[self]
	if o == nil {
		return ref{}, false
	}

	if up, ok := parent(o); ok && t.by[up] != nil {
		return up, true
	}

	if _, ok := o.(*vitistackv1alpha1.Machine); ok {
		up, listed := t.users[self.name]

		return up, listed
	}

	return ref{}, false
}
