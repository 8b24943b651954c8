package kube

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KindOf is the kind of an object, as people write it; "object" where the scheme of the client does not know it.
func KindOf(c client.Client, o client.Object) string {
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return "object"
	}

	return gvk.Kind
}

func toUnstructured(content map[string]any) *unstructured.Unstructured {
	if m, ok := content["metadata"].(map[string]any); ok {
		delete(m, "creationTimestamp")
	}

	return &unstructured.Unstructured{Object: content}
}
