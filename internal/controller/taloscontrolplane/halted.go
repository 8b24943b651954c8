package taloscontrolplane

import (
	"cmp"
	"context"
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/history"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// halted reports whether a control-plane machine has failed with a version, and no machine does anything: workers wait
// for the control plane. It is pure.
func halted(in history.Input, to string, machines []v1alpha1.TalosMachine) bool {
	failed := false

	for i := range machines {
		switch m := &machines[i]; {
		case deleting(m):
		case moves(in, to, m):
			return false
		case m.Spec.WorkerRef == nil && broke(in, to, m):
			failed = true
		}
	}

	return failed
}

// moves reports whether a machine does something, or is about to without another request of a user. One that is rolled
// back by itself is waited for. It is pure.
func moves(in history.Input, to string, m *v1alpha1.TalosMachine) bool {
	c, o := m.Status.Change, in.ControlPlane.Spec.Upgrade

	switch {
	case c == nil:
		return false
	case c.Phase != v1alpha1.ChangeFailed:
		return change.Begun(c) || rollout.Granted(m)
	case m.Annotations[v1alpha1.RetryAnnotation] != "":
		return true
	}

	// Only another Talos has booted.
	return c.Booted && o != nil && o.Rollback == v1alpha1.RollbackAutomatic && in.Brings(to, m) != nil
}

// broke reports whether a machine has failed with a version.
func broke(in history.Input, to string, m *v1alpha1.TalosMachine) bool {
	c := in.Brings(to, m)

	return c != nil && c.Phase == v1alpha1.ChangeFailed
}

// observeWorkers finds out whether workers have stopped an upgrade, and whether its hooks may go on to let the first
// worker begin. What stops it counts only once the workers are held, so that none begins beside the hooks after the
// upgrade.
func (r *Reconciler) observeWorkers(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) (stands, ready bool, err error) {
	run, p := s.held.State.Runtime.Upgrade, s.guard.Planned

	if !freesWorkers(next) {
		return false, false, nil
	}

	if len(s.guard.Hooks) == 0 || run == nil || p == nil || p.Back() || run.Component != string(p.Component) ||
		run.To != p.To {
		return false, true, nil
	}

	workers, err := r.workersOf(ctx, s.cp)
	if err != nil {
		return false, false, err
	}

	planned := s.cp.DeepCopy()
	planned.Status.Upgrade = next
	in := history.Input{Component: p.Component, ControlPlane: planned, Machines: machines}

	stands, asked := standstill(in, workers, run)
	s.guard.Halted = stands && s.holdsWorkers()

	return stands, asked || run.Phase != clusterstate.UpgradePlanned || run.Outcome == "", nil
}

// standstill reports whether workers have failed with an upgrade and none goes on without a user, and whether a user
// has asked one to, or its group may let it begin. It is pure.
func standstill(
	in history.Input, workers []v1alpha1.TalosWorker, run *clusterstate.UpgradeRun,
) (stands, asked bool) {
	left, failed, goesOn := in.Left(run.From, run.To), false, false
	unselected := rollout.Unselected(in.ControlPlane, in.Machines)

	for i := range in.Machines {
		m := &in.Machines[i]
		moving, broken := moves(in, run.To, m), broke(in, run.To, m)
		open := !stopped(workerOf(workers, m)) && responds(m) // one that returns asks for itself

		if deleting(m) {
			continue
		}

		goesOn = goesOn || moving
		if m.Spec.WorkerRef == nil || slices.Contains(unselected, m.Name) || !slices.Contains(left, m.Name) {
			continue
		}

		failed, goesOn = failed || broken, goesOn || open
		asked = asked || (moving || open) && asks(in, run.To, m)
	}

	return failed && !goesOn, asked
}

// asks reports whether a machine has not failed with a version that it is to be brought to, or is retried.
func asks(in history.Input, to string, m *v1alpha1.TalosMachine) bool {
	return in.Brings(to, m) != nil && (!broke(in, to, m) || m.Annotations[v1alpha1.RetryAnnotation] != "")
}

// stopped reports whether the rollout of a worker group goes on only if a user does something.
func stopped(w *v1alpha1.TalosWorker) bool {
	if w == nil || w.Status.Plan == nil {
		return false
	}

	return w.Status.Plan.Phase == v1alpha1.PlanStopped || w.Status.Plan.Phase == v1alpha1.PlanAwaitingApproval
}

// holdsWorkers reports whether the status that was written last keeps workers from beginning.
func (s *scope) holdsWorkers() bool {
	return s.base.Status.Upgrade != nil && s.base.Status.Upgrade.WorkersHeld
}

// holdWorkers returns the upgrade that workers may follow. While hooks hold one that no worker has begun, it is not
// published. One that workers have begun stays, so that what failed can be retried, and says that none may begin.
func (s *scope) holdWorkers(next *v1alpha1.UpgradeStatus, out hook.Output, stands bool) *v1alpha1.UpgradeStatus {
	switch {
	case out.Begin && !stands:
		return next
	case !out.Begin && !s.guard.Busy && !s.holdsWorkers():
		return heldWorkers(next, s.cp.Status.Upgrade, out.Message)
	}

	next.WorkersHeld = true
	next.Message = kube.Shorten(cmp.Or(out.Message, next.Message, "workers have failed: the hooks before the upgrade run "+
		"again before the next machine begins"), longestMessage)

	return next
}
