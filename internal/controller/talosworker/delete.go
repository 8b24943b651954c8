package talosworker

import (
	"context"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// pollDelete is how often a deletion is reconciled; deleted child objects trigger it as well.
const pollDelete = 5 * time.Second

// delete deletes the group, all machines at once: workers are not part of a quorum.
func (r *Reconciler) delete(ctx context.Context, s *scope) error {
	var waiting []string

	for i := range s.machines {
		if err := machineset.Delete(ctx, r.Client, &s.machines[i], s.worker.Spec.DeletionPolicy); err != nil {
			return err
		}

		waiting = append(waiting, s.machines[i].Name+machineset.DeletingMessage(&s.machines[i]))
	}

	if len(waiting) > 0 {
		return failure.Waiting(v1alpha1.ReasonDeleting, "waiting for "+strings.Join(waiting, "; "), pollDelete)
	}

	s.released = true

	return frame.RemoveFinalizer(ctx, r.Client, s.worker, s.base, v1alpha1.Finalizer)
}
