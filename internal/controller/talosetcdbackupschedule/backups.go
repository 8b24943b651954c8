package talosetcdbackupschedule

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	// defaultSuccessful and defaultFailed are the history limits if the spec sets none.
	defaultSuccessful = 5
	defaultFailed     = 3
)

// handled records that nothing more has to be done for a slot.
func (s *scope) handled(slot time.Time) {
	at := metav1.NewTime(slot)
	s.schedule.Status.LastScheduleTime = &at
}

// orphaned reports whether the control plane to back up does not exist.
func (s *scope) orphaned() bool {
	return s.controlPlane == nil || !s.controlPlane.DeletionTimestamp.IsZero()
}

// missing returns what an orphaned schedule waits for.
func (s *scope) missing() error {
	return failure.Waiting(v1alpha1.ReasonWaitingForControlPlane,
		fmt.Sprintf("TalosControlPlane %s does not exist, or is being deleted",
			s.schedule.Spec.BackupTemplate.Spec.ControlPlaneRef.Name), heldPoll)
}

func orDefault(n *int32, otherwise int) int {
	if n == nil {
		return otherwise
	}

	return int(*n)
}

// older compares by age; two backups that were created in the same second are compared by name.
func older(a, b *v1alpha1.TalosEtcdBackup) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// remove deletes the object of a backup, and keeps a complete backup in the store. An incomplete one is deleted with
// its object.
func (r *Reconciler) remove(ctx context.Context, b *v1alpha1.TalosEtcdBackup) error {
	if b.Spec.DeletionPolicy == v1alpha1.BackupDelete {
		base := b.DeepCopy()
		b.Spec.DeletionPolicy = v1alpha1.BackupRetain

		err := r.Client.Patch(ctx, b, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("keeping the data of TalosEtcdBackup %s: %w", b.Name, err)
		}
	}

	err := r.Client.Delete(ctx, b, client.Preconditions{UID: &b.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting TalosEtcdBackup %s: %w", b.Name, err)
	}

	return nil
}
