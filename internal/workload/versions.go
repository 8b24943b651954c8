package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Images are what the components of Kubernetes on one node should run.
type Images struct {
	// Pods are the static pods.
	Pods []PodImage
	// Kubelet is its version; empty if it does not matter.
	Kubelet string
}

// PodImage is the image of a static pod, which is named without its node.
type PodImage struct{ Pod, Image string }

// Lags says what on a node does not run yet, or is not ready; empty if everything is as it should be. A kubelet
// replaces the mirror of a static pod together with the pod, so the image of the mirror is what runs.
func (c *Cluster) Lags(ctx context.Context, ref NodeRef, want Images) (string, error) {
	n, err := c.node(ctx, ref)
	if err != nil {
		return "", err
	}

	if n == nil {
		return "its Node to be registered", nil
	}

	if lag := kubeletLags(n, want.Kubelet); lag != "" {
		return lag, nil
	}

	pods := slices.Clone(want.Pods)
	slices.SortFunc(pods, func(a, b PodImage) int { return strings.Compare(a.Pod, b.Pod) })

	for _, p := range pods {
		pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, p.Pod+"-"+n.Name, metav1.GetOptions{})

		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("%s to run %s", p.Pod, p.Image), nil
		case err != nil:
			return "", fmt.Errorf("reading the pod of %s on node %s: %w", p.Pod, n.Name, err)
		case !runsImage(pod, p.Image):
			return fmt.Sprintf("%s to run %s", p.Pod, p.Image), nil
		case !podReady(pod):
			return fmt.Sprintf("%s to be ready with %s", p.Pod, p.Image), nil
		}
	}

	return "", nil
}

// BootLag says what the Node of a machine that has booted waits for; empty for nothing, or if it has none. A Node stays
// Ready for the node-monitor-grace-period of its cluster, 40 seconds and more, after its kubelet has ended, so what it
// says before its kubelet has reported anew is of the boot before. Talos reports the same Node as its nodeReady.
func (c *Cluster) BootLag(ctx context.Context, ref NodeRef) (string, error) {
	n, err := c.node(ctx, ref)

	switch {
	case err != nil || n == nil || ref.BootID == "":
		return "", err
	case !ref.is(n):
		return "its kubelet to report since the boot", nil
	case !clusterNode(n).Ready:
		return "its Node to be ready", nil
	}

	return "", nil
}

// kubeletLags compares the version that a kubelet reports. Its build may have a name, such as v1.36.2-acme.
func kubeletLags(n *corev1.Node, version string) string {
	runs := n.Status.NodeInfo.KubeletVersion

	switch {
	case version == "":
	case runs != version && !strings.HasPrefix(runs, version+"-") && !strings.HasPrefix(runs, version+"+"):
		return fmt.Sprintf("the kubelet to run %s; it runs %.64s", version, runs)
	case !clusterNode(n).Ready:
		return fmt.Sprintf("the Node to be ready with the kubelet %s", version)
	}

	return ""
}

func runsImage(pod *corev1.Pod, image string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image == image })
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
