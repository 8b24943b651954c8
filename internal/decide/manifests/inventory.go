package manifests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// The inventory is that of Talos: the keys of a ConfigMap, which nodes and talosctl upgrade-k8s read and write, too.
// A node applies what is missing from it, so what is deleted has to leave it, and what is applied has to enter it.
const (
	InventoryNamespace = constants.KubernetesInventoryNamespace
	InventoryName      = constants.KubernetesBootstrapManifestsInventoryName
	// inventoryAnnotation names the inventory that an object belongs to.
	inventoryAnnotation = "config.k8s.io/owning-inventory"
)

// colon stands for a colon in the key of an inventory, which has none.
const colon = "__"

// Entry returns the key of a ConfigMap that stands for an object: namespace_name_group_kind.
func (k Key) Entry() string {
	return strings.Join([]string{k.Namespace, strings.ReplaceAll(k.Name, ":", colon), k.Group, k.Kind}, "_")
}

// ParseEntry returns the object that the key of a ConfigMap stands for. It is read from both ends: an empty group
// leaves two separators side by side, which would read like a colon.
func ParseEntry(entry string) (Key, bool) {
	namespace, rest, ok := strings.Cut(entry, "_")
	kind := strings.LastIndexByte(rest, '_')

	if !ok || kind < 0 {
		return Key{}, false
	}

	group := strings.LastIndexByte(rest[:kind], '_')
	if group < 0 {
		return Key{}, false
	}

	out := Key{
		Namespace: namespace, Name: strings.ReplaceAll(rest[:group], colon, ":"), Group: rest[group+1 : kind],
		Kind: rest[kind+1:],
	}

	return out, out.Name != "" && out.Kind != "" && !strings.Contains(out.Name, "_")
}

// Gone returns the entries of an inventory whose objects manifests no longer have, sorted. inventory has the object
// that each entry stands for: Talos 1.13 has written the namespaces that manifests name for objects of cluster-wide
// kinds. stale are such entries of objects that are not gone, or have an entry of their own.
func Gone(inventory map[Key]Key, wanted []Key) (gone, stale []Key) {
	for entry, k := range inventory {
		_, twice := inventory[k]

		switch {
		// The namespace of an object of a cluster-wide kind means nothing.
		case !slices.ContainsFunc(wanted, func(w Key) bool {
			return w == k || k.Namespace == "" && w.GroupKind() == k.GroupKind() && w.Name == k.Name
		}) && (entry == k || !twice):
			gone = append(gone, entry)
		case entry != k:
			stale = append(stale, entry)
		}
	}

	for _, keys := range [][]Key{gone, stale} {
		slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	}

	return gone, stale
}

// deletable are the kinds whose objects may be deleted: those that hold nothing that the manifests do not bring back.
// Namespaces, definitions and volumes take data with them, and what a custom resource stands for is unknown.
var deletable = map[string][]string{
	"":                          {"ConfigMap", "Secret", "Service", "ServiceAccount"},
	"apps":                      {"DaemonSet", "Deployment"},
	"networking.k8s.io":         {"NetworkPolicy"},
	"policy":                    {"PodDisruptionBudget"},
	"rbac.authorization.k8s.io": {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
}

// Keeps says why an object stays although the manifests no longer have it; empty if it may be deleted. Only what Talos
// or this operator brought is deleted: an object of the same name may be someone else's by now.
func Keeps(live *unstructured.Unstructured) string {
	key := KeyOf(live)
	keep, marked := live.GetAnnotations()[v1alpha1.KeepAnnotation]

	switch {
	case !slices.Contains(deletable[key.Group], key.Kind):
		return "objects of this kind are never deleted"
	case marked && keep != "false":
		return "it has the annotation " + v1alpha1.KeepAnnotation
	case Foreign(live) != "":
		return "it belongs to the inventory " + Foreign(live)
	case !slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return isOurs(e.Manager)
	}):
		return "neither Talos nor the operator has written it"
	}

	return taken(live)
}

// toolMarks are the labels and annotations of tools that manage objects.
var toolMarks = []string{
	"app.kubernetes.io/managed-by", "meta.helm.sh/release-name", "kustomize.toolkit.fluxcd.io/name",
	"helm.toolkit.fluxcd.io/name", "argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id",
}

// taken says which other owner an object has by now; empty if none.
func taken(live *unstructured.Unstructured) string {
	for _, mark := range toolMarks {
		if live.GetLabels()[mark] != "" {
			return "it has the label " + mark
		}

		if live.GetAnnotations()[mark] != "" {
			return "it has the annotation " + mark
		}
	}

	for _, owner := range live.GetOwnerReferences() {
		return fmt.Sprintf("it is owned by %s/%s", owner.Kind, owner.Name)
	}

	for _, e := range live.GetManagedFields() {
		if !isOurs(e.Manager) && e.Subresource != "status" && ownsContent(e) {
			return "fields of it are owned by " + e.Manager
		}
	}

	return ""
}

// ownsContent reports whether an entry has fields that make up an object. What cannot be read counts.
func ownsContent(e metav1.ManagedFieldsEntry) bool {
	if e.FieldsV1 == nil {
		return false
	}

	owned := &fieldpath.Set{}
	if owned.FromJSON(e.FieldsV1.GetRawReader()) != nil {
		return true
	}

	found := false

	owned.Iterate(func(p fieldpath.Path) {
		switch fieldOf(p[0]) {
		case "spec", "data", "binaryData", "rules", "aggregationRule", "subjects", "roleRef":
			found = true
		}
	})

	return found
}

// Foreign returns the inventory that an object belongs to, if it is another one.
func Foreign(live *unstructured.Unstructured) string {
	if of := live.GetAnnotations()[inventoryAnnotation]; of != InventoryName {
		return of
	}

	return ""
}

// Adopt marks an object as part of the inventory, if it is new or has the mark already: a mark is not worth a change of
// its own to objects of clusters that had no inventory.
func Adopt(o, live *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()

	if live == nil || live.GetAnnotations()[inventoryAnnotation] != "" {
		marks := o.GetAnnotations()
		if marks == nil {
			marks = map[string]string{}
		}

		marks[inventoryAnnotation] = InventoryName
		o.SetAnnotations(marks)
	}

	return o
}
