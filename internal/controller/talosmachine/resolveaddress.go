package talosmachine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// resolveAddress determines the address of the machine: its own, or that of its Machine.
func (r *Reconciler) resolveAddress(ctx context.Context, s *scope) (ctrl.Result, error) {
	ref := s.machine.Spec.MachineRef
	if ref == nil {
		s.address = s.machine.Spec.Address

		return ctrl.Result{}, nil
	}

	infra := &vitistackv1alpha1.Machine{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: ref.Name}, infra); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("reading Machine %s: %w", ref.Name, err)
		}
	}

	if err := r.nameNode(ctx, s, infra); err != nil {
		return ctrl.Result{}, err
	}

	s.address = infra.Address()
	if s.address == "" && deleting(s.machine) {
		s.address = s.machine.Status.Address
	}

	if s.address == "" && !deleting(s.machine) {
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonWaitingForAddress,
			fmt.Sprintf("waiting for a provider to give Machine %s an address", ref.Name), r.Resync)
	}

	return ctrl.Result{}, nil
}

// nameNode records on a Machine which TalosMachine runs on it: the only field of its status that the operator owns.
func (r *Reconciler) nameNode(ctx context.Context, s *scope, infra *vitistackv1alpha1.Machine) error {
	if infra.UID == "" || deleting(s.machine) || s.paused ||
		infra.Status.ConsumerRef != nil && infra.Status.ConsumerRef.Name == s.machine.Name {
		return nil
	}

	base := infra.DeepCopy()
	infra.Status.ConsumerRef = &v1alpha1.ObjectReference{Name: s.machine.Name}

	if err := r.Client.Status().Patch(ctx, infra, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("naming TalosMachine %s in the status of Machine %s: %w", s.machine.Name, infra.Name, err)
	}

	return nil
}
