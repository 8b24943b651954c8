package taloscontrolplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// keepState blocks the deletion of a control plane while its state Secret would be deleted too, alone or with the
// namespace, and machines run under the PKI in it: the Secret is the only copy. The condition Deleting reports what the
// deletion waits for.
func (r *Reconciler) keepState(ctx context.Context, s *scope) error {
	if kube.AnnotationTrue(s.cp, v1alpha1.ReleaseStateAnnotation) {
		return nil
	}

	held, err := r.States.Load(ctx, s.key())

	var corrupt *clusterstate.CorruptError

	var machines string

	var goes bool

	switch {
	case errors.Is(err, clusterstate.ErrNotFound):
		return nil
	case errors.As(err, &corrupt):
		// The Secret may be repaired manually, and it is unknown which machines run under it.
		machines, goes = "its machines", corrupt.Deleting
	case err != nil:
		return err
	default:
		names := held.State.Runtime.Configured()
		if len(names) == 0 {
			return nil
		}

		machines, goes = strings.Join(names, ", "), held.Deleting()
	}

	if !goes {
		if goes, err = r.namespaceGoes(ctx, s); err != nil || !goes {
			return err
		}
	}

	instead := ""
	if s.cp.Spec.DeletionPolicy != v1alpha1.DeletionReset {
		instead = "; to wipe the machines instead, set spec.deletionPolicy to Reset"
	}

	return failure.Waiting(v1alpha1.ReasonStateSecretDeleting, fmt.Sprintf("Secret %s is being deleted and holds the "+
		"only PKI of machines that may still run (%s): save a copy of it, then annotate the object with %s=true%s",
		clusterstate.SecretName(s.cp.Name), machines, v1alpha1.ReleaseStateAnnotation, instead), pollDelete)
}

// namespaceGoes reports whether the namespace is being deleted, which also deletes its Secrets, even if they are not
// marked yet.
func (r *Reconciler) namespaceGoes(ctx context.Context, s *scope) (bool, error) {
	ns := &corev1.Namespace{}

	err := r.Reader.Get(ctx, client.ObjectKey{Name: s.cp.Namespace}, ns)

	switch {
	case apierrors.IsForbidden(err):
		return false, failure.Waiting(v1alpha1.ReasonWaitingForEvidence, fmt.Sprintf("the operator may not read namespace "+
			"%s, so it is unknown whether the state Secret is being deleted with it: update the roles of the operator",
			s.cp.Namespace), r.Resync)
	case err != nil:
		return false, client.IgnoreNotFound(fmt.Errorf("reading namespace %s: %w", s.cp.Namespace, err))
	}

	return !ns.DeletionTimestamp.IsZero(), nil
}

// setStateAtRisk reports a Secret that was deleted while its control plane continues to exist.
func setStateAtRisk(s *scope, set condition.Set) {
	if s.held == nil {
		return
	}

	name := clusterstate.SecretName(s.cp.Name)

	set.While(s.held.Deleting() && !deleting(s.cp), v1alpha1.ConditionStateAtRisk, v1alpha1.ReasonStateSecretDeleting,
		fmt.Sprintf("Secret %s was deleted and is kept by its finalizer while the control plane exists: pause the object, "+
			"save the Secret, remove its finalizer and apply the copy", name))
}
