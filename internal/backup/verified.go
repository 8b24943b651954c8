package backup

import (
	"context"
	"fmt"

	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// maxVerified is more than the maximum size of the lists of names in a verification.
const maxVerified = 1 << 20

// VerifiedKey returns where the result of a verification is stored. Nothing is written beside the files of other tools.
func (s *Set) VerifiedKey() (string, error) {
	if s.Foreign {
		return "", failure.Terminal(ReasonForeign, fmt.Sprintf("%s was written by another tool", s.ID), nil)
	}

	return folder(s.Cluster) + s.ID + suffixVerified, nil
}

// ReadVerified reads the stored result of a verification; store.ErrNotFound if there is none.
func ReadVerified(ctx context.Context, s store.Store, set Set) ([]byte, error) {
	key, err := set.VerifiedKey()
	if err != nil {
		return nil, err
	}

	content, err := readSmall(ctx, s, key, maxVerified)
	if err != nil {
		return nil, fmt.Errorf("reading the verification of %s: %w", set.ID, err)
	}

	return content, nil
}
