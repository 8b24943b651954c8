package machineset

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Delete deletes one machine of a group that is itself being deleted, with the current policy of its owner.
func Delete(ctx context.Context, c client.Client, m *v1alpha1.TalosMachine, policy v1alpha1.DeletionPolicy) error {
	if m.Spec.DeletionPolicy != policy {
		base := m.DeepCopy()
		m.Spec.DeletionPolicy = policy

		if err := c.Patch(ctx, m, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("passing the deletion policy on to TalosMachine %s: %w", m.Name, err)
		}
	}

	if !m.DeletionTimestamp.IsZero() {
		return nil
	}

	err := c.Delete(
		ctx,
		m,
		client.Preconditions{UID: &m.UID},
		client.PropagationPolicy(metav1.DeletePropagationBackground),
	)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting TalosMachine %s: %w", m.Name, err)
	}

	return nil
}

// DeletingMessage says what the deletion of a machine waits for, in parentheses; empty if nothing is known.
func DeletingMessage(m *v1alpha1.TalosMachine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionDeleting); c != nil {
		return " (" + c.Message + ")"
	}

	return ""
}
