package kube

import "sigs.k8s.io/controller-runtime/pkg/client"

// KindOf returns the kind of an object, or "object" if the scheme of the client does not know it.
func KindOf(c client.Client, o client.Object) string {
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return "object"
	}

	return gvk.Kind
}
