package clusterstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Require reads a state that must exist: the control plane creates it, all other controllers wait for it.
func (s *Store) Require(ctx context.Context, controlPlane types.NamespacedName) (*Held, error) {
	held, err := s.Load(ctx, controlPlane)

	var corrupt *CorruptError

	switch {
	case errors.Is(err, ErrNotFound):
		return nil, failure.Waiting(v1alpha1.ReasonWaitingForControlPlane,
			fmt.Sprintf("waiting for TalosControlPlane %s to make the PKI", controlPlane.Name), time.Minute)
	case errors.As(err, &corrupt):
		return nil, failure.Terminal(v1alpha1.ReasonStateSecretInvalid, corrupt.Error()+
			"; nothing was changed: restore the Secret from a copy", err)
	}

	return held, err
}
