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
	// Settled is true if the node has applied exactly the manifests that it serves. It renders them one after the other
	// with each boot, and applies them afterwards.
	Settled bool
	// Problem is why the node says nothing; then the rest is empty.
	Problem string
}

// Refuse says why manifests are no evidence of what a cluster with a version of Kubernetes should have; empty if they
// are. A node renders its manifests some time after its configuration, and downloads some of them: what it does not
// serve yet would be deleted, and what is old would be applied.
func (s Served) Refuse(version string) string {
	if s.Problem != "" {
		return s.Machine + ": " + s.Problem
	}

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
// last one counts. One that cannot be read stops no other one, and is refused without a word of its content.
func (s Served) Objects() (out []*unstructured.Unstructured, refused []Refusal) {
	for i, item := range s.Items {
		o, reason := prepare(item)
		if reason != "" {
			refused = append(refused, Refusal{Key: keyOfItem(item, i), Reason: reason})

			continue
		}

		key := KeyOf(o)
		out = slices.DeleteFunc(out, func(other *unstructured.Unstructured) bool { return KeyOf(other) == key })
		out = append(out, o)
	}

	slices.SortStableFunc(out, func(a, b *unstructured.Unstructured) int { return cmp.Compare(rank(a), rank(b)) })

	return out, refused
}

// keyOfItem names an object that may lack a kind or a name.
func keyOfItem(item map[string]any, i int) Key {
	o := &unstructured.Unstructured{Object: item}
	key := KeyOf(o)
	key.Kind, key.Name = cmp.Or(key.Kind, "Unknown"), cmp.Or(key.Name, fmt.Sprintf("manifest-%d", i))

	return key
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
// written as data: a Secret that was read never has them, so that each comparison would find a difference. The errors
// of the parsers quote values, so that only a word remains of them.
func prepare(item map[string]any) (o *unstructured.Unstructured, refusal string) {
	raw, err := json.Marshal(item)
	if err != nil {
		return nil, ReasonUnreadable
	}

	o = &unstructured.Unstructured{}
	if o.UnmarshalJSON(raw) != nil {
		return nil, ReasonUnreadable
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

	if isSecret(o) && !encodeTexts(o) {
		return nil, ReasonInvalidSecret
	}

	return o, ""
}

// encodeTexts moves the texts of a Secret to its data. It is false if some are no texts.
func encodeTexts(o *unstructured.Unstructured) bool {
	texts, found, err := unstructured.NestedStringMap(o.Object, "stringData")
	if !found || err != nil {
		return err == nil
	}

	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return false
	}

	if data == nil {
		data = map[string]string{}
	}

	for name, text := range texts {
		data[name] = base64.StdEncoding.EncodeToString([]byte(text))
	}

	unstructured.RemoveNestedField(o.Object, "stringData")

	return unstructured.SetNestedStringMap(o.Object, data, "data") == nil
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
