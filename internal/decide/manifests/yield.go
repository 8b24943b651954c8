package manifests

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

const (
	// Manager is the field manager of the operator for bootstrap manifests.
	Manager = "talos-operator-manifests"
	// Talos is the field manager of nodes, and of talosctl since Talos 1.13.
	Talos = constants.KubernetesFieldManagerName
	// talosctl is that of talosctl upgrade-k8s of older Talos.
	talosctl = "talosctl"
)

// isOurs reports whether a field manager brings bootstrap manifests.
func isOurs(manager string) bool {
	return manager == Manager || manager == Talos || manager == talosctl
}

// Conflict is a field that another manager owns with another value.
type Conflict struct{ Manager, Path string }

// Yield removes from an object the fields that only others own: what Talos has not set, or what was changed since, is
// not ours to take. What remains may be forced. yielded are the fields that were removed, without values.
func Yield(
	o, live *unstructured.Unstructured, conflicts []Conflict,
) (out *unstructured.Unstructured, yielded []Left) {
	o = o.DeepCopy()
	left := foreign(conflicts)

	var paths []fieldpath.Path

	for _, e := range live.GetManagedFields() {
		owned := &fieldpath.Set{}
		if isOurs(e.Manager) || e.FieldsV1 == nil || owned.FromJSON(e.FieldsV1.GetRawReader()) != nil {
			continue
		}

		owned.Iterate(func(p fieldpath.Path) {
			if left[p.String()] {
				left[p.String()] = false

				paths = append(paths, p.Copy())
				yielded = append(yielded, Left{Key: KeyOf(o), Manager: e.Manager, Path: nameOf(p)})
			}
		})
	}

	// Items of a list that are named by their index are removed from the end.
	slices.SortFunc(paths, func(a, b fieldpath.Path) int { return b.Compare(a) })

	for _, p := range paths {
		o.Object, _ = without(o.Object, p).(map[string]any)
	}

	return o, yielded
}

// nameOf returns a path without values of the object: items of a set are named by their value.
func nameOf(p fieldpath.Path) string {
	var out strings.Builder

	for _, e := range p {
		if e.Value != nil {
			out.WriteString("[*]")
		} else {
			out.WriteString(e.String())
		}
	}

	return out.String()
}

// foreign returns the paths that only others own.
func foreign(conflicts []Conflict) map[string]bool {
	out := map[string]bool{}

	for _, c := range conflicts {
		if !slices.ContainsFunc(conflicts, func(other Conflict) bool {
			return other.Path == c.Path && isOurs(other.Manager)
		}) {
			out[c.Path] = true
		}
	}

	return out
}

// MayForce reports whether each field in conflict is one that Talos owns.
func MayForce(conflicts []Conflict) bool { return len(foreign(conflicts)) == 0 }

// without removes what is at a path.
func without(node any, path fieldpath.Path) any {
	at := path[0]

	switch node := node.(type) {
	case map[string]any:
		switch child, ok := node[fieldOf(at)]; {
		case at.FieldName == nil || !ok:
		case len(path) == 1:
			delete(node, *at.FieldName)
		default:
			node[*at.FieldName] = without(child, path[1:])
		}
	case []any:
		i := indexOf(node, at)

		switch {
		case i < 0:
		case len(path) == 1:
			return slices.Delete(node, i, i+1)
		default:
			node[i] = without(node[i], path[1:])
		}
	}

	return node
}

func fieldOf(e fieldpath.PathElement) string {
	if e.FieldName == nil {
		return ""
	}

	return *e.FieldName
}

// indexOf returns the item of a list that an element of a path names; -1 if there is none.
func indexOf(list []any, e fieldpath.PathElement) int {
	if e.Index != nil {
		if *e.Index < len(list) {
			return *e.Index
		}

		return -1
	}

	return slices.IndexFunc(list, func(item any) bool {
		return e.Key != nil && hasKey(item, *e.Key) ||
			e.Value != nil && value.Equals(*e.Value, value.NewValueInterface(item))
	})
}

// hasKey reports whether an item of a list has a key. A field of the key that the item lacks has its default, which
// only the API server knows.
func hasKey(item any, key value.FieldList) bool {
	fields, ok := item.(map[string]any)
	if !ok {
		return false
	}

	found := false

	for _, f := range key {
		have, ok := fields[f.Name]
		if ok && !value.Equals(f.Value, value.NewValueInterface(have)) {
			return false
		}

		found = found || ok
	}

	return found
}

// Applied reports whether an object has fields that a manager has applied, and not only updated.
func Applied(live *unstructured.Unstructured, manager string) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
}

// Identity returns an object with nothing but its identity: applied, it gives up the fields of its manager.
func Identity(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(o.GroupVersionKind())
	out.SetNamespace(o.GetNamespace())
	out.SetName(o.GetName())

	return out
}
