package talosmachine

import (
	"cmp"
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/check"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// findLag finds what the machine waits for although what its change brings is live and the node reports itself as
// healthy.
func (r *Reconciler) findLag(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.compared || s.facts == nil {
		return ctrl.Result{}, nil
	}

	if s.lagging = cmp.Or(r.lags(ctx, s), r.podLag(ctx, s), r.nodeLag(ctx, s)); s.lagging != "" {
		return ctrl.Result{}, nil
	}

	var err error
	if s.lagging, err = r.etcdLag(ctx, s); s.lagging == "" && err == nil {
		s.lagging, s.refuted = r.unsatisfied(ctx, s)
	}

	return ctrl.Result{}, err
}

// nodeLag says what the Node of a machine waits for that has rebooted for its change and reports itself as ready; empty
// for nothing. Without an API that responds, the machine's own word counts, unless pods had to be evicted for the
// change: then the API is waited for in any case, to make the node schedulable.
func (r *Reconciler) nodeLag(ctx context.Context, s *scope) string {
	c := s.machine.Status.Change
	if c == nil || !c.Reboot || !s.runs(c) || s.facts.Stage != change.StageRunning || !s.facts.Ready {
		return ""
	}

	var lag string

	cluster, err := r.cluster(ctx, s)
	if err == nil {
		lag, err = cluster.BootLag(ctx, s.nodeRef())
	}

	if err != nil && c.Drain {
		return notAsked(err)
	}

	return lag
}

// etcdLag says what the etcd member of a control-plane machine lacks that runs the Talos of its change; empty if
// nothing. A node reports itself as ready before its member was found healthy, and never checks how far it is behind.
// The facts are those that the safety kernel decides by. It is no reason to roll the machine back by itself: an older
// Talos catches up no faster, and a member that hangs makes the node unhealthy.
func (r *Reconciler) etcdLag(ctx context.Context, s *scope) (string, error) {
	c := s.machine.Status.Change

	if !change.IsUpgrade(c) || !c.Etcd || !s.runs(c) || s.facts.Stage != change.StageRunning || !s.facts.Ready {
		r.members.Forget(s.key())

		return "", nil
	}

	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return "", err
	}

	now, _ := r.members.Make(s.key(), c.ID, r.Clock, again(c), func() group.Verdict {
		lag := safety.MemberLag(r.evidence(s).Collect(ctx, machines), s.machine.Name)

		return group.Verdict{Name: lag}
	})

	return now.Name, nil
}

// unsatisfied says which check of its upgrade a machine waits for that runs the new version; empty if for none.
// refuted: its expression is false. What the cluster says before the node itself is healthy is not of interest, and not
// read.
func (r *Reconciler) unsatisfied(ctx context.Context, s *scope) (why string, refuted bool) {
	c, due := s.machine.Status.Change, check.Due(s.controlPlane.Spec.Upgrade, v1alpha1.CheckAfter)

	if len(due) == 0 || !upgrade.Advances(c) || !s.runs(c) || s.facts.Stage != change.StageRunning || !s.facts.Ready {
		r.verdicts.Forget(s.key())

		return "", false
	}

	of := fmt.Sprintf("%d/%s", s.controlPlane.Generation, c.ID)
	now, _ := r.verdicts.Make(s.key(), of, r.Clock, again(c), func() group.Verdict {
		return group.Unsatisfied(ctx, due, func(ctx context.Context) (*workload.Cluster, error) { return r.cluster(ctx, s) })
	})

	if now.Name == "" {
		return "", false
	}

	return "check " + now.Name + ": " + now.Why, now.Refuted
}

// runs reports whether the node runs what a change of a version brings.
func (s *scope) runs(c *v1alpha1.MachineChange) bool {
	if change.IsUpgrade(c) {
		return s.systems != nil && s.systems.live.hash() == c.Target
	}

	return s.liveHash == c.Target
}
