package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// runPods does for ordinary pods of this node what shows in the API: those that were bound to it run at once, and those
// that are to end are gone at once.
func (k *Kubelet) runPods(ctx context.Context, client clientset.Interface) error {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", k.opts.NodeName).String(), ResourceVersion: "0",
	})
	if err != nil {
		return fmt.Errorf("listing the pods of %s: %w", k.opts.NodeName, err)
	}

	for i := range list.Items {
		pod := &list.Items[i]
		if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			continue
		}

		if err := runPod(ctx, client, pod); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("running pod %s: %w", pod.Name, err)
		}
	}

	return nil
}

func runPod(ctx context.Context, client clientset.Interface, pod *corev1.Pod) error {
	pods := client.CoreV1().Pods(pod.Namespace)

	if pod.DeletionTimestamp != nil {
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	}

	if pod.Status.Phase != corev1.PodPending {
		return nil
	}

	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
	})

	_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})

	return err
}
