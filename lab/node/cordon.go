package node

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
)

// annotationCordoned marks Kubernetes nodes that a Talos node has cordoned itself, which it undoes at its next boot.
const annotationCordoned = "talos.dev/cordoned"

// cordon marks the Kubernetes node as unschedulable. That it cannot keeps nothing from going on.
func (s *session) cordon(ctx context.Context) {
	if s.n.opts.modelsKubernetes() {
		return
	}

	s.patchNode(ctx, "cordoning", `{"metadata":{"annotations":{"`+annotationCordoned+`":"true"}},`+
		`"spec":{"unschedulable":true}}`)
}

// uncordon undoes a cordon of this node's own; that of a person stays.
func (s *session) uncordon(ctx context.Context) {
	client, err := s.kubeClient()
	if err != nil {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()

	node, err := client.CoreV1().Nodes().Get(ctx, s.nodeName(), metav1.GetOptions{})
	if err != nil || node.Annotations[annotationCordoned] == "" {
		return
	}

	s.patchNode(ctx, "uncordoning", `{"metadata":{"annotations":{"`+annotationCordoned+`":null}},`+
		`"spec":{"unschedulable":null}}`)
}

func (s *session) patchNode(ctx context.Context, doing, patch string) {
	client, err := s.kubeClient()
	if err != nil {
		s.logf("%s the node: %v", doing, err)

		return
	}

	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()

	if _, err := client.CoreV1().Nodes().Patch(
		ctx, s.nodeName(), k8stypes.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{},
	); err != nil {
		s.logf("%s the node: %v", doing, err)
	}
}
