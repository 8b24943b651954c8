package machineset

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// Grant allows a machine to begin its change.
func Grant(ctx context.Context, c client.Client, m *v1alpha1.TalosMachine, by rollout.Candidate) error {
	base := m.DeepCopy()
	m.Spec.Change = &v1alpha1.ChangeGrant{ID: by.Change.ID, Reboot: by.Reboot}

	if err := c.Patch(ctx, m, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("starting the change of %s: %w", m.Name, err)
	}

	return nil
}

// EndApproval removes the approval of a completed plan from its object, because the same differences may occur again
// later, when they need a new approval. It runs before the status update that drops the plan, so that a crash leaves a
// plan that asks for approval again. The reconciliation continues with the updated object and its base.
func EndApproval(ctx context.Context, c client.Client, o, base client.Object, before, now *v1alpha1.PlanStatus) error {
	if before == nil || !rollout.Moved(before, now) || o.GetAnnotations()[v1alpha1.ApprovedAnnotation] != before.ID {
		return nil
	}

	if err := kube.TakeAnnotation(ctx, c, o, base, v1alpha1.ApprovedAnnotation); err != nil {
		return fmt.Errorf("removing the approval of plan %s, which has ended: %w", before.ID, err)
	}

	return nil
}
