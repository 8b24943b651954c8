package machineset

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Decommission deletes one machine of a group that continues without it: its node is removed from the cluster.
func Decommission(ctx context.Context, c client.Client, m *v1alpha1.TalosMachine) error {
	if m.Spec.Decommission == nil || !*m.Spec.Decommission {
		base, yes := m.DeepCopy(), true
		m.Spec.Decommission = &yes

		if err := c.Patch(ctx, m, client.MergeFrom(base)); err != nil {
			return client.IgnoreNotFound(fmt.Errorf("marking TalosMachine %s: %w", m.Name, err))
		}
	}

	return Delete(ctx, c, m, m.Spec.DeletionPolicy)
}

// GiveUp declares that a machine will not come back, as a user does with the annotation.
func GiveUp(ctx context.Context, c client.Client, m *v1alpha1.TalosMachine) error {
	base := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.SkipResetAnnotation, "true")

	if err := c.Patch(ctx, m, client.MergeFrom(base)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("abandoning TalosMachine %s: %w", m.Name, err))
	}

	return nil
}
