package taloscontrolplane

import (
	"context"
	"fmt"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// checkOwner refuses to wipe machines that another control plane manages.
func (r *Reconciler) checkOwner(ctx context.Context, s *scope) error {
	held, err := r.States.Load(ctx, s.key())
	if err != nil {
		return ignoreUnusable(err)
	}

	other := held.State.Runtime.OwnedElsewhere(string(s.cp.UID))
	if other == "" || s.cp.Annotations[v1alpha1.TakeOverAnnotation] == other {
		held.State.Runtime.Claim(string(s.cp.UID))

		if err := r.States.Update(ctx, held); err != nil {
			return err
		}

		s.held = held

		is, err := r.askOwner(ctx, s)
		if err != nil || is == ownerConfirmed || is == ownerSilent {
			return err
		}

		other = held.State.Runtime.RivalUID
	}

	if other == "" {
		return failure.Waiting(v1alpha1.ReasonWaitingForEvidence, "the API of the cluster responds, but does not tell "+
			"which object manages the cluster: see "+ownerRecord, pollDelete)
	}

	return failure.Waiting(v1alpha1.ReasonOwnedElsewhere, fmt.Sprintf("another TalosControlPlane owns the cluster: set "+
		"spec.deletionPolicy to Preserve, or annotate the object with %s=%s to wipe machines that another one may manage",
		v1alpha1.TakeOverAnnotation, other), pollDelete)
}
