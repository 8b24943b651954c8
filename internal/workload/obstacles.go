package workload

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// Obstacles returns what the drains of the cluster's nodes may meet.
func (c *Cluster) Obstacles(ctx context.Context) (upgrade.Obstacles, error) {
	var out upgrade.Obstacles

	nodes := lists{what: "listing the nodes", size: pageSize, most: maxNodes}

	err := nodes.each(ctx, func(ctx context.Context, page metav1.ListOptions) (string, error) {
		list, err := c.client.CoreV1().Nodes().List(ctx, page)
		if err != nil {
			return "", err
		}

		for i := range list.Items {
			n := &list.Items[i]
			mark := n.Annotations[v1alpha1.CordonedAnnotation]
			if n.Spec.Unschedulable && (mark == "" || strings.HasPrefix(mark, ApplyMark)) && len(n.Name) <= maxName {
				out.Cordoned = append(out.Cordoned, n.Name)
			}
		}

		return list.Continue, nil
	})
	if err != nil {
		return upgrade.Obstacles{}, err
	}

	budgets := lists{what: "listing the PodDisruptionBudgets", size: pageSize, most: maxNamespaces}

	err = budgets.each(ctx, func(ctx context.Context, page metav1.ListOptions) (string, error) {
		list, err := c.client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, page)
		if err != nil {
			return "", err
		}

		for i := range list.Items {
			b := &list.Items[i]
			if upgrade.NeverAllows(b) && len(b.Namespace)+len(b.Name) <= maxName {
				out.Budgets = append(out.Budgets, b.Namespace+"/"+b.Name)
			}
		}

		return list.Continue, nil
	})
	if err != nil {
		return upgrade.Obstacles{}, err
	}

	return out, nil
}
