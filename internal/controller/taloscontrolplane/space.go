package taloscontrolplane

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// spaceTimeout ends the queries to all machines. What has not responded by then is unknown.
const spaceTimeout = 10 * time.Second

// checkSpace returns which machines have too little space for the images of a version, of which that is unknown, and
// when to check again. Machines that are not selected get no images.
func (r *Reconciler) checkSpace(
	ctx context.Context, s *scope, version string, machines []v1alpha1.TalosMachine,
) (preflight, time.Duration) {
	unselected := rollout.Unselected(s.cp, machines)
	all := r.spaceOf(ctx, s, slices.DeleteFunc(slices.Clone(machines), func(m v1alpha1.TalosMachine) bool {
		return slices.Contains(unselected, m.Name)
	}))

	last, again := preflight{obstacles: upgrade.UnknownSpace(all)}, preflightInterval
	if last.obstacles != "" {
		again = preflightRetry
	}

	// A machine that was full may be the one that does not respond now.
	held := s.cp.Status.Upgrade != nil && s.cp.Status.Upgrade.Reason == v1alpha1.ReasonInsufficientDiskSpace

	if last.message = upgrade.RefuseSpace(version, all); last.message == "" && last.obstacles != "" && held {
		last.message = upgrade.RefuseUnknownSpace(version, last.obstacles)
	}

	if last.message != "" {
		last.reason = v1alpha1.ReasonInsufficientDiskSpace
	}

	return last, again
}

// spaceOf queries the configured machines for their free space.
func (r *Reconciler) spaceOf(ctx context.Context, s *scope, machines []v1alpha1.TalosMachine) []upgrade.Space {
	asked := configured(machines)
	out, source := make([]upgrade.Space, len(asked)), r.source(s)

	ctx, cancel := context.WithTimeout(ctx, spaceTimeout)
	defer cancel()

	g := errgroup.Group{}
	g.SetLimit(askAtOnce)

	for i, m := range asked {
		g.Go(func() error {
			out[i].Machine = m.Name

			node, err := r.Nodes.Node(ctx, source.Ref(m))
			if err == nil {
				out[i].Free, err = node.FreeSpace(ctx)
			}

			if err != nil {
				out[i].Problem = failure.Message(err)
			}

			return nil
		})
	}

	_ = g.Wait() // what a machine does not say is part of the result

	return out
}
