package talos

import (
	"context"
	"time"
)

// passKey is the context key for the original context of a reconciliation.
type passKey struct{}

// Pass limits the queries of one reconciliation: otherwise a hanging node delays one reconciliation after the other,
// each of which occupies a worker. Zero means no limit. An action, such as applying a configuration or removing a
// member, keeps its own deadline, because its result would be unknown if it were interrupted.
func Pass(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}

	return context.WithTimeout(context.WithValue(ctx, passKey{}, ctx), limit)
}

// Acting returns the context of an action, and of what belongs to it: that of the manager instead of that of the
// reconciliation. Otherwise a reconciliation whose queries take all its time would never act.
func Acting(ctx context.Context) context.Context {
	if outer, ok := ctx.Value(passKey{}).(context.Context); ok {
		return outer
	}

	return ctx
}
