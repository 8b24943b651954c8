package clusterstate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Deleting reports whether only its finalizer keeps the Secret.
func (h *Held) Deleting() bool { return h.secret.DeletionTimestamp != nil }

// CheckOwner returns an error if another TalosControlPlane manages the cluster. It is for controllers of child objects
// that send something to nodes; the control plane itself reports what to do.
func (h *Held) CheckOwner(controlPlane metav1.Object) error {
	if h.State.Runtime.OwnedElsewhere(string(controlPlane.GetUID())) == "" {
		return nil
	}

	return failure.Waiting(v1alpha1.ReasonOwnedElsewhere, fmt.Sprintf("waiting for confirmation that "+
		"TalosControlPlane %s manages the cluster: its condition Stalled says how to confirm", controlPlane.GetName()),
		time.Minute)
}

// Protect keeps the Secret of an existing control plane: if it is deleted alone or with its namespace, it remains
// readable and writable until Release.
func (s *Store) Protect(ctx context.Context, h *Held) error {
	next := h.secret.DeepCopy()

	// The API server rejects new finalizers on an object that is being deleted.
	if h.Deleting() || !controllerutil.AddFinalizer(next, v1alpha1.StateFinalizer) {
		return nil
	}

	if err := s.Client.Update(ctx, next); err != nil {
		return fmt.Errorf("adding the finalizer to Secret %s: %w", next.Name, err)
	}

	h.secret = next

	return nil
}

// Release ends the protection when the control plane is deleted, and records that the cluster has no owner any more. A
// Secret that is unusable keeps its content.
func (s *Store) Release(ctx context.Context, controlPlane types.NamespacedName, ownerUID string) error {
	secret := &corev1.Secret{}
	name := SecretName(controlPlane.Name)

	err := s.Reader.Get(ctx, types.NamespacedName{Namespace: controlPlane.Namespace, Name: name}, secret)
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("reading Secret %s: %w", name, err))
	}

	changed := controllerutil.RemoveFinalizer(secret, v1alpha1.StateFinalizer)

	if state, derr := Decode(secret.Data); derr == nil && state.Runtime.OwnerUID == ownerUID {
		state.Runtime.Disown(ownerUID)

		if secret.Data, err = state.Encode(); err != nil {
			return fmt.Errorf("encoding the state: %w", err)
		}

		changed = true
	}

	if !changed {
		return nil
	}

	if err := s.Client.Update(ctx, secret); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing Secret %s: %w", name, err)
	}

	return nil
}
