package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/lab/kubernetes"
)

func TestMonitorMarksDeadNodes(t *testing.T) {
	t.Parallel()

	c := start(t)
	client := c.client()

	// Two, as on a cluster with several control-plane nodes.
	for range 2 {
		background(t, func(ctx context.Context) {
			kubernetes.RunNodeMonitor(ctx, client, kubernetes.MonitorOptions{Grace: 2 * time.Second})
		})
	}

	dying := c.kubelet(c.worker("w1"))
	c.kubelet(c.worker("w2"))

	// A node that is healthy is free of taints.
	for _, name := range []string{"w1", "w2"} {
		c.node(name, func(node *corev1.Node) error {
			if got := taints(node); len(got) > 0 {
				return fmt.Errorf("taints %v", got)
			}

			return ready(corev1.ConditionTrue)(node)
		})
	}

	dying.Stop()

	node := c.node("w1", func(node *corev1.Node) error {
		if got := strings.Join(taints(node), " "); got !=
			"node.kubernetes.io/unreachable=:NoExecute node.kubernetes.io/unreachable=:NoSchedule" {
			return errors.New(got)
		}

		return ready(corev1.ConditionUnknown)(node)
	})

	if got := conditions(node); !strings.Contains(got, "Ready=Unknown (NodeStatusUnknown)") {
		t.Error(got)
	}

	c.node("w2", ready(corev1.ConditionTrue))
	c.kubelet(c.worker("w1"))
	c.node("w1", func(node *corev1.Node) error {
		if got := taints(node); len(got) > 0 {
			return fmt.Errorf("taints %v", got)
		}

		return ready(corev1.ConditionTrue)(node)
	})
}

func TestMonitorCreatesServiceAccounts(t *testing.T) {
	t.Parallel()

	c := general.join(t)
	client := c.client()

	background(t, func(ctx context.Context) { kubernetes.RunNodeMonitor(ctx, client, kubernetes.MonitorOptions{}) })

	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	for _, ns := range []string{"default", "kube-system", "app"} {
		eventually(t, "service account of "+ns, func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})

			return err
		})
	}

	// With it a Pod can be created; without a scheduler it stays pending.
	pod, err := client.CoreV1().Pods("app").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "busybox"}}},
	}, metav1.CreateOptions{})
	if err != nil || pod.Spec.ServiceAccountName != "default" {
		t.Errorf("pod %v, error %v", pod, err)
	}
}
