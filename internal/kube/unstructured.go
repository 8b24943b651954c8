package kube

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func toUnstructured(content map[string]any) *unstructured.Unstructured {
	if m, ok := content["metadata"].(map[string]any); ok {
		delete(m, "creationTimestamp")
	}

	return &unstructured.Unstructured{Object: content}
}
