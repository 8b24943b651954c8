package talos

import (
	"context"
	"time"
)

// passKey is where the context of a pass keeps the one that the pass began with.
type passKey struct{}

// Pass bounds what a pass over an object asks: a node that hangs holds up one pass after the other, and each holds a
// worker. Zero is no bound. An act, such as a config that is applied or a member that is removed, keeps the time that
// it has by itself: to break it off would leave open what became of it.
func Pass(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}

	return context.WithTimeout(context.WithValue(ctx, passKey{}, ctx), limit)
}

// acting is the context of an act: that of the manager instead of that of a pass.
func acting(ctx context.Context) context.Context {
	if outer, ok := ctx.Value(passKey{}).(context.Context); ok {
		return outer
	}

	return ctx
}
