package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	hashLength   = 32
	hashKey      = "kubernetes.io/config.hash"
	clusterClass = "system-cluster-critical"
)

// pass is what one pass over the static pods works with.
type pass struct {
	client clientset.Interface
	cfg    config.Config
	node   *corev1.Node
	ready  bool
}

// syncPods keeps the mirror pods of the static pods. Only the API server is real; the other two follow it.
func (k *Kubelet) syncPods(ctx context.Context, p pass) error {
	for _, static := range staticPods(p.cfg) {
		each := p
		each.ready = p.ready && k.runs(static.image)

		if err := k.syncPod(ctx, each, k.mirrorPod(p.node, static.name, static.image)); err != nil {
			return fmt.Errorf("mirroring the static pod %s: %w", static.name, err)
		}
	}

	return nil
}

type staticPod struct{ name, image string }

// staticPods are those of a control-plane node.
func staticPods(cfg config.Config) []staticPod {
	return []staticPod{
		{"kube-apiserver", cfg.Cluster().APIServer().Image()},
		{"kube-controller-manager", cfg.Cluster().ControllerManager().Image()},
		{"kube-scheduler", cfg.Cluster().Scheduler().Image()},
	}
}

// runs reports whether a static pod runs from an image.
func (k *Kubelet) runs(image string) bool { return k.opts.Run == nil || k.opts.Run(image) == nil }

// syncPod creates the pod, replaces one of an older config, and posts its status.
func (k *Kubelet) syncPod(ctx context.Context, p pass, want *corev1.Pod) error {
	pods := p.client.CoreV1().Pods(want.Namespace)

	pod, err := pods.Get(ctx, want.Name, metav1.GetOptions{})
	if err == nil && pod.Annotations[hashKey] != want.Annotations[hashKey] {
		// What a mirror pod runs cannot be changed, only what is mirrored.
		if err = pods.Delete(ctx, want.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err == nil {
			pod, err = pods.Create(ctx, want, metav1.CreateOptions{})
		}
	} else if apierrors.IsNotFound(err) {
		pod, err = pods.Create(ctx, want, metav1.CreateOptions{})
	}

	if err != nil {
		return err
	}

	if podReady(pod) == p.ready && pod.Status.PodIP == k.opts.Address {
		return nil
	}

	k.postPodStatus(pod, p.ready)
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})

	return err
}

// mirrorPod is the Pod object of one static pod, with what people and tools read.
func (k *Kubelet) mirrorPod(node *corev1.Node, name, image string) *corev1.Pod {
	sum := sha256.Sum256([]byte(name + " " + image + " " + k.opts.BootID + " " + string(node.UID)))
	hash := hex.EncodeToString(sum[:])[:hashLength]
	version := strings.TrimPrefix(versionOf(image), "v")

	owner := nodeReference(node)
	owner.Controller = ptr.To(true)

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-" + k.opts.NodeName, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{
				"app.kubernetes.io/component": "control-plane", "app.kubernetes.io/managed-by": "Talos",
				"app.kubernetes.io/name": name, "app.kubernetes.io/version": version,
				"component": name, "k8s-app": name, "tier": "control-plane",
			},
			Annotations: map[string]string{
				hashKey: hash, corev1.MirrorPodAnnotationKey: hash, "kubernetes.io/config.source": "file",
			},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: corev1.PodSpec{
			NodeName: k.opts.NodeName, HostNetwork: true, PriorityClassName: clusterClass,
			EnableServiceLinks: ptr.To(false),
			Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			Containers:         []corev1.Container{{Name: name, Image: image, Command: []string{"/usr/local/bin/" + name}}},
		},
	}
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// postPodStatus says that the pod runs and whether it is ready.
func (k *Kubelet) postPodStatus(pod *corev1.Pod, ready bool) {
	now := metav1.Now()
	status := corev1.ConditionFalse

	if ready {
		status = corev1.ConditionTrue
	}

	started := pod.Status.StartTime
	if started == nil {
		started = &now
	}

	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: started, QOSClass: corev1.PodQOSBestEffort,
		HostIP: k.opts.Address, HostIPs: []corev1.HostIP{{IP: k.opts.Address}},
		PodIP: k.opts.Address, PodIPs: []corev1.PodIP{{IP: k.opts.Address}},
	}

	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
		if kind == corev1.ContainersReady || kind == corev1.PodReady {
			c.Status = status
		}

		pod.Status.Conditions = append(pod.Status.Conditions, c)
	}

	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: ready, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *started}},
		})
	}
}
