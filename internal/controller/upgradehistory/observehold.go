package upgradehistory

import (
	"context"

	"github.com/talos-operator/talos-operator/internal/pause"
)

func (r *Reconciler) observeHold(ctx context.Context, s *scope) (err error) {
	s.hold, err = pause.Find(ctx, r.Client, s.cp)

	return err
}
