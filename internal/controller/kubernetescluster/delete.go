package kubernetescluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// delete deletes the cluster in the documented order: first the objects that manage the nodes, then the Machines, then
// the files.
func (r *Reconciler) delete(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.cluster, vitistackv1alpha1.ClusterFinalizer) {
		return nil
	}

	if err := r.list(ctx, s); err != nil {
		return err
	}

	for i := range s.groups {
		if err := r.deleteObject(ctx, s, &s.groups[i], &s.groups[i].Spec.DeletionPolicy); err != nil {
			return err
		}
	}

	if len(s.groups) > 0 {
		return failure.Waiting(
			vitistackv1alpha1.ReasonDeleting,
			"waiting for the workers"+groupsWaitFor(s.groups),
			pollDelete,
		)
	}

	if s.cp != nil {
		if err := r.deleteObject(ctx, s, s.cp, &s.cp.Spec.DeletionPolicy); err != nil {
			return err
		}

		return failure.Waiting(vitistackv1alpha1.ReasonDeleting,
			"waiting for the control plane"+waitsFor(s.cp.Status.Conditions), pollDelete)
	}

	if err := r.deleteMachines(ctx, s); err != nil {
		return err
	}

	if err := r.Manifests.Remove(s.name, s.owner()); err != nil {
		return failure.Transient(vitistackv1alpha1.ReasonFileSystemError,
			filesMessage(r.Manifests.Folder(s.name), err), err)
	}

	s.released = true

	metrics.ForgetMachines(s.name)

	return frame.RemoveFinalizer(ctx, r.Client, s.cluster, s.base, vitistackv1alpha1.ClusterFinalizer)
}

func (r *Reconciler) deleteMachines(ctx context.Context, s *scope) error {
	for i := range s.have {
		m := &s.have[i]

		want := s.machine(m.Labels[vitistackv1alpha1.WorkerGroupLabel], "", 0, m.Spec)
		if m.Spec.ReclaimPolicy != want.Spec.ReclaimPolicy {
			base := m.DeepCopy()
			m.Spec.ReclaimPolicy = want.Spec.ReclaimPolicy

			if err := r.Client.Patch(ctx, m, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("passing the reclaim policy on to Machine %s: %w", m.Name, err)
			}
		}

		if m.DeletionTimestamp.IsZero() {
			if err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting Machine %s: %w", m.Name, err)
			}
		}
	}

	if len(s.have) > 0 {
		return failure.Waiting(vitistackv1alpha1.ReasonDeleting, "waiting for the Machines to go", pollDelete)
	}

	return nil
}

// deleteObject deletes a child object, with the current deletion policy of the cluster.
func (r *Reconciler) deleteObject(
	ctx context.Context,
	s *scope,
	o client.Object,
	policy *v1alpha1.DeletionPolicy,
) error {
	base, ok := o.DeepCopyObject().(client.Object)
	if ok && *policy != s.policy() {
		*policy = s.policy()

		if err := r.Client.Patch(ctx, o, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("passing the deletion policy on to %s: %w", o.GetName(), err)
		}
	}

	if !o.GetDeletionTimestamp().IsZero() {
		return nil
	}

	uid := o.GetUID()
	if err := r.Client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", o.GetName(), err)
	}

	return nil
}
