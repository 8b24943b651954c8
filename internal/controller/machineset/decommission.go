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
	return deleteAs(ctx, c, m, v1alpha1.OnDeleteDecommission)
}

// Release deletes the object of a machine whose node continues under another name. Nothing is sent to the node.
func Release(ctx context.Context, c client.Client, m *v1alpha1.TalosMachine) error {
	return deleteAs(ctx, c, m, v1alpha1.OnDeleteRelease)
}

// deleteAs deletes a machine once its object says what that does to the node.
func deleteAs(ctx context.Context, c client.Client, m *v1alpha1.TalosMachine, effect v1alpha1.OnDelete) error {
	if m.Spec.OnDelete != effect {
		base := m.DeepCopy()
		m.Spec.OnDelete = effect

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
