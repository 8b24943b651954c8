package talosmachine

import (
	"context"

	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// performSystem performs the acts with an image.
func (r *Reconciler) performSystem(
	ctx context.Context, s *scope, in change.Input, act change.Act,
) (*change.Step, error) {
	switch act {
	case change.Upgrade:
		return r.upgradeLegacy(ctx, s, in)
	case change.Rollback:
		return r.rollBack(ctx, s, in)
	default:
		return r.installs(ctx, s, in, act)
	}
}

// upgradeLegacy has a node older than Talos 1.13 install the image of its change and reboot into it. A refusal is shown
// in the change; the call is repeated as a reboot is.
func (r *Reconciler) upgradeLegacy(ctx context.Context, s *scope, in change.Input) (*change.Step, error) {
	node, err := r.node(ctx, s)
	if err != nil {
		return nil, err
	}

	err = node.ToItself(ctx, s.self(), func() error {
		r.noteAsked(s)
		r.forfeit(ctx, s, node)

		return node.UpgradeLegacy(ctx, in.Record.Change.Image)
	})
	if err == nil {
		return nil, nil
	}

	in.Record.Change.Message = failure.Message(err)

	return &change.Step{Before: in.Record, Again: change.RepeatReboot}, nil
}
