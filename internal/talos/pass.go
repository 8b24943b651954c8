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

// StopGrace is how long an action that has begun may go on after the manager was told to stop.
const StopGrace = 15 * time.Second

// act returns the context of one call that changes a node: that of Acting with a deadline of its own. The end of the
// manager does not cut it off, but for a call that takes longer than StopGrace: the node would carry it out without the
// response being read, and the next manager would act while the node is still at it. A call that has not begun by then
// is not made. What takes minutes, such as an installer or the upload of a snapshot, does not use it: it is cut off,
// and the next manager repeats it.
func act(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	outer := Acting(ctx)
	if outer.Err() != nil {
		return context.WithTimeout(outer, limit)
	}

	at := time.Now().Add(limit)
	if own, ok := outer.Deadline(); ok && own.Before(at) {
		at = own
	}

	inner, cancel := context.WithDeadline(context.WithoutCancel(outer), at)
	stop := context.AfterFunc(outer, func() { time.AfterFunc(StopGrace, cancel) })

	return inner, func() {
		stop()
		cancel()
	}
}
