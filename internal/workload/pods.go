package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// maxShown is the maximum number of budgets that are named for one pod.
	maxShown = 8
	// maxShownUUID is the maximum length of what a Node reports as a UUID in a message.
	maxShownUUID = 64
	// maxLabels is the maximum number of stored labels of a pod, to find its budgets, and maxLabel the maximum length of
	// their values.
	maxLabels, maxLabel = 64, 63
)

// podsOn lists the pods of a node, with the fields that a drain needs.
func (c *Cluster) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var out []corev1.Pod

	all := lists{what: "listing the pods of node " + node, size: podPage, most: maxPods}
	selector := fields.SelectorFromSet(fields.Set{"spec.nodeName": node}).String()

	err := all.each(ctx, func(ctx context.Context, page metav1.ListOptions) (string, error) {
		page.FieldSelector = selector

		list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, page)
		if err != nil {
			return "", err
		}

		next := make([]corev1.Pod, len(list.Items))

		for i := range list.Items {
			p := &list.Items[i]

			owner := metav1.GetControllerOf(p)
			if owner == nil {
				owner = &metav1.OwnerReference{}
			}

			for _, name := range []string{p.Name, p.Namespace, owner.APIVersion, owner.Kind, owner.Name} {
				if len(name) > maxName {
					return "", fmt.Errorf("%w: a pod with a name of more than %d characters", ErrTooMuch, maxName)
				}
			}

			next[i] = essence(p)
		}

		out = append(out, next...)

		return list.Continue, nil
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// essence returns the fields of a pod that the filters of a drain read, and its labels. Volumes are not included: a
// drain of a machine that is removed deletes those of emptyDir.
func essence(p *corev1.Pod) corev1.Pod {
	out := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, DeletionTimestamp: p.DeletionTimestamp, Labels: map[string]string{},
		},
	}

	if ended := p.Status.Phase; ended == corev1.PodSucceeded || ended == corev1.PodFailed {
		out.Status.Phase = ended
	}

	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		out.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
	}

	if owner := metav1.GetControllerOf(p); owner != nil {
		owner.UID = "" // not needed here
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}

	for key, value := range p.Labels {
		if len(out.Labels) < maxLabels && len(key) <= maxName+1+maxLabel && len(value) <= maxLabel {
			out.Labels[key] = value
		}
	}

	return out
}

// listed is a client with an existing list of pods.
type listed struct {
	kubernetes.Interface

	pods []corev1.Pod
}

// CoreV1 implements kubernetes.Interface.
func (l listed) CoreV1() typedcorev1.CoreV1Interface {
	return listedCore{CoreV1Interface: l.Interface.CoreV1(), pods: l.pods}
}

type listedCore struct {
	typedcorev1.CoreV1Interface

	pods []corev1.Pod
}

// Pods implements typedcorev1.PodsGetter.
func (l listedCore) Pods(namespace string) typedcorev1.PodInterface {
	return listedPods{PodInterface: l.CoreV1Interface.Pods(namespace), pods: l.pods}
}

type listedPods struct {
	typedcorev1.PodInterface

	pods []corev1.Pod
}

// List implements typedcorev1.PodInterface. It returns the pods of the node, regardless of the options.
func (l listedPods) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	return &corev1.PodList{Items: l.pods}, nil
}
