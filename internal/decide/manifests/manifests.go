// Package manifests decides what becomes of the bootstrap manifests of Talos in a cluster after an upgrade of
// Kubernetes: which ones are evidence, what is applied in which order, which fields are left to others, and what may be
// deleted. It is pure: what a node serves and what a cluster has in, what is done out.
package manifests

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// Key identifies an object, whichever version of its kind it has.
type Key struct{ Group, Kind, Namespace, Name string }

// KeyOf returns the key of an object.
func KeyOf(o *unstructured.Unstructured) Key {
	gvk := o.GroupVersionKind()

	return Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// String returns the kind, the namespace and the name.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + "/" + k.Name
	}

	return k.Kind + "/" + k.Namespace + "/" + k.Name
}

// GroupKind returns the kind with its group.
func (k Key) GroupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Kind} }

// Served is what one control-plane node says about the bootstrap manifests.
type Served struct {
	Machine string
	// Items are the objects as the node serves them, in its order.
	Items []map[string]any
	// Proxy is the image of kube-proxy that the node is configured with; empty where kube-proxy is disabled.
	Proxy string
	// Images are those of all parts that the node is configured to deploy, by name.
	Images map[string]string
	// Missing are the extra and inline manifests of its configuration that the node does not serve.
	Missing []string
}

// Refuse says why manifests are no evidence of what a cluster with a version of Kubernetes should have; empty if they
// are. A node renders its manifests some time after its configuration, and downloads some of them: what it does not
// serve yet would be deleted, and what is old would be applied.
func (s Served) Refuse(version string) string {
	if len(s.Items) == 0 {
		return s.Machine + " serves no bootstrap manifests yet"
	}

	if len(s.Missing) > 0 {
		return fmt.Sprintf("%s has not loaded the manifests %s", s.Machine,
			change.List(slices.Sorted(slices.Values(s.Missing))))
	}

	if tag := machineconfig.TagOf(s.Proxy); tag != "" && upgrade.VersionOf(tag) != version {
		return fmt.Sprintf("%s serves the bootstrap manifests of kube-proxy %s", s.Machine, tag)
	}

	deployed := map[string]bool{}
	for _, item := range s.Items {
		noteImages(item, deployed)
	}

	for _, part := range slices.Sorted(maps.Keys(s.Images)) {
		if image := s.Images[part]; image != "" && !deployed[image] {
			return fmt.Sprintf("the bootstrap manifests of %s do not have %s as its configuration names it", s.Machine, part)
		}
	}

	return ""
}

// noteImages collects the images of containers, wherever they are in an object.
func noteImages(node any, into map[string]bool) {
	switch node := node.(type) {
	case map[string]any:
		if image, ok := node["image"].(string); ok {
			into[image] = true
		}

		for _, child := range node {
			noteImages(child, into)
		}
	case []any:
		for _, child := range node {
			noteImages(child, into)
		}
	}
}

// Objects returns the objects to apply: namespaces, then kinds, then everything else. Of objects with the same key the
// last one counts.
func (s Served) Objects() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured

	for i, item := range s.Items {
		o, err := prepare(item)
		if err != nil {
			return nil, fmt.Errorf("reading bootstrap manifest %d of %s: %w", i, s.Machine, err)
		}

		key := KeyOf(o)
		out = slices.DeleteFunc(out, func(other *unstructured.Unstructured) bool { return KeyOf(other) == key })
		out = append(out, o)
	}

	slices.SortStableFunc(out, func(a, b *unstructured.Unstructured) int { return cmp.Compare(rank(a), rank(b)) })

	return out, nil
}

func rank(o *unstructured.Unstructured) int {
	switch KeyOf(o).GroupKind() {
	case schema.GroupKind{Kind: "Namespace"}:
		return 0
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return 1
	}

	return 2
}

// prepare returns an object as it is applied. What only an API server sets is left out, and texts of Secrets are
// written as data: a Secret that was read never has them, so that each comparison would find a difference.
func prepare(item map[string]any) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(item)
	if err != nil {
		return nil, err
	}

	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(raw); err != nil {
		return nil, err
	}

	for _, path := range [][]string{
		{"status"},
		{"metadata", "managedFields"},
		{"metadata", "resourceVersion"},
		{"metadata", "uid"},
		{"metadata", "generation"},
		{"metadata", "creationTimestamp"},
	} {
		unstructured.RemoveNestedField(o.Object, path...)
	}

	texts, found, err := unstructured.NestedStringMap(o.Object, "stringData")
	if !found || err != nil || !isSecret(o) {
		return o, err
	}

	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return nil, err
	}

	if data == nil {
		data = map[string]string{}
	}

	for name, text := range texts {
		data[name] = base64.StdEncoding.EncodeToString([]byte(text))
	}

	unstructured.RemoveNestedField(o.Object, "stringData")

	return o, unstructured.SetNestedStringMap(o.Object, data, "data")
}

func isSecret(o *unstructured.Unstructured) bool {
	return KeyOf(o).GroupKind() == schema.GroupKind{Kind: "Secret"}
}

// Defines reports whether a definition among objects defines a kind.
func Defines(objects []*unstructured.Unstructured, kind schema.GroupKind) bool {
	return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		name, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")

		return rank(o) == 1 && group == kind.Group && name == kind.Kind
	})
}

// Same reports whether two states of an object have the same content.
func Same(a, b *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(content(a).Object, content(b).Object)
}

// content returns an object without what an API server keeps about it.
func content(o *unstructured.Unstructured) *unstructured.Unstructured {
	if o == nil {
		return &unstructured.Unstructured{}
	}

	o = o.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}

	unstructured.RemoveNestedField(o.Object, "status")

	return o
}

// Action is what makes an object equal to the manifests.
type Action string

// Actions.
const (
	Create Action = "create"
	Change Action = "change"
	Delete Action = "delete"
)

// Difference is an object that differs from the manifests.
type Difference struct {
	Key    Key
	Action Action
	// Live is the object as it is; nil if it does not exist. Want is what it becomes; nil if it is deleted.
	Live, Want *unstructured.Unstructured
}

// Refusal is an object that the API server refuses.
type Refusal struct {
	Key Key
	// Reason in one word, such as Invalid: it tells nothing of the content.
	Reason string
	// Message of the API server, which may quote the object.
	Message string
}

// Shown returns why an object is refused, for users of a terminal. The message about a Secret may quote its values.
func (r Refusal) Shown() string {
	if r.Message == "" || r.Key.Kind == "Secret" {
		return r.Reason
	}

	return r.Message
}

// Outcome is what was found, and done if that was asked for.
type Outcome struct {
	Differences []Difference
	Refused     []Refusal
	// Kept are objects that the manifests no longer have, and that are not deleted.
	Kept []Key
}

// Names returns the objects that differ, and those that were refused, sorted and at most a number of them.
func (o Outcome) Names(most int) []string {
	var out []string

	for _, d := range o.Differences {
		out = append(out, d.Key.String())
	}

	for _, r := range o.Refused {
		out = append(out, r.Key.String())
	}

	slices.Sort(out)
	out = slices.Compact(out)

	return out[:min(len(out), most)]
}

// Count returns how many objects differ or were refused.
func (o Outcome) Count() int { return len(o.Names(len(o.Differences) + len(o.Refused))) }

func (o Outcome) refuses(key Key) bool {
	return slices.ContainsFunc(o.Refused, func(r Refusal) bool { return r.Key == key })
}

// Refusals names what was refused and why, without any content.
func (o Outcome) Refusals() string {
	out := make([]string, 0, len(o.Refused))
	for _, r := range o.Refused {
		out = append(out, fmt.Sprintf("%s (%s)", r.Key, r.Reason))
	}

	slices.Sort(out)

	return change.List(out)
}

// Report says for users how many objects differ; empty if none does.
func (o Outcome) Report(version string) string {
	n := o.Count()
	if n == 0 {
		return ""
	}

	objects := "objects differ"
	if n == 1 {
		objects = "object differs"
	}

	return fmt.Sprintf("%d %s from the bootstrap manifests of Kubernetes %s: %s; set upgrade.manifests to Apply, or see "+
		"talos-operator upgrade manifests", n, objects, version, change.List(o.Names(n)))
}

// Waits says for users what an upgrade that applies the manifests waits for.
func (o Outcome) Waits(version string) string {
	if len(o.Refused) == 0 {
		return ""
	}

	return fmt.Sprintf("the API server refuses bootstrap manifests of Kubernetes %s, which are retried: %s; see "+
		"talos-operator upgrade manifests, or set upgrade.manifests to Report", version, o.Refusals())
}
