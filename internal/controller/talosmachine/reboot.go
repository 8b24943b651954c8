package talosmachine

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/scheduled"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// changeWithReboot drains the node, stages the configuration and reboots, if the safety package permits it.
func (r *Reconciler) changeWithReboot(ctx context.Context, s *scope) (ctrl.Result, error) {
	now, err := s.rollout().RebootsNow(r.Clock.Now())
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("looking for a time to reboot %s: %w", s.machine.Name, err)
	}

	// The maintenance window may have closed during the drain. A revert requested by a user does not wait for a window.
	if !now && s.machine.Status.Change.Cause != v1alpha1.CauseRevert {
		return ctrl.Result{RequeueAfter: pollDrain}, r.giveBack(ctx, s)
	}

	if wait, err := r.drainForChange(ctx, s); wait || err != nil {
		return ctrl.Result{RequeueAfter: pollDrain}, err
	}

	if wait, err := r.permitChange(ctx, s); wait || err != nil {
		return ctrl.Result{RequeueAfter: pollDrain}, err
	}

	r.phase(s, v1alpha1.ChangeApplying, "")

	if staged, err := r.stage(ctx, s); !staged {
		return ctrl.Result{}, err
	}

	r.phase(s, v1alpha1.ChangeRebooting, "")

	err = r.intend(ctx, s, v1alpha1.MachineIntent{Step: v1alpha1.StepReboot, BootID: s.facts.BootID})
	if err != nil {
		return ctrl.Result{}, err
	}

	r.event(s, v1alpha1.ReasonRollingOut, "Reboot", "Rebooting for %s", changed(s.diff))

	return ctrl.Result{RequeueAfter: pollChange}, r.reboot(ctx, s)
}

// giveBack returns a grant that was not used. The change waits for another one.
func (r *Reconciler) giveBack(ctx context.Context, s *scope) error {
	if err := r.uncordon(ctx, s); err != nil {
		return err
	}

	phase := v1alpha1.ChangePending
	if s.intends(v1alpha1.StepStage) || s.machine.Status.Change.Phase == v1alpha1.ChangeAwaitingReboot {
		phase = v1alpha1.ChangeAwaitingReboot
	}

	s.machine.Status.Intent = nil
	r.phase(s, phase, "waiting for a time in which reboots are allowed")
	s.newChangeID()

	return nil
}

// drainForChange reports whether the change has to wait for the drain.
func (r *Reconciler) drainForChange(ctx context.Context, s *scope) (bool, error) {
	c := s.machine.Status.Change

	// Pods may never be evicted from an unhealthy node, and a user has requested its repair.
	if !c.Drain || s.intends(v1alpha1.StepStage) || c.Cause == v1alpha1.CauseRevert && !s.well() {
		return false, nil
	}

	r.phase(s, v1alpha1.ChangeDraining, c.Message)

	err := r.drain(ctx, s)

	switch {
	case err == nil:
	case failure.ClassOf(err) == failure.ClassWaiting:
		r.phase(s, v1alpha1.ChangeDraining, failure.Message(err))

		return true, nil
	case s.machine.Spec.Role == v1alpha1.RoleControlPlane && !s.well() &&
		failure.Reason(err) == v1alpha1.ReasonAPIServerUnavailable:
		// The configuration of this node may be the reason why the API does not respond.
		return false, nil
	}

	return false, err
}

// permitChange reports whether the change has to wait for the permission of the safety package.
func (r *Reconciler) permitChange(ctx context.Context, s *scope) (bool, error) {
	c := s.machine.Status.Change
	if !c.Etcd {
		return false, nil
	}

	wait, err := r.permit(ctx, s)
	if wait != "" {
		r.phase(s, c.Phase, wait)
	}

	return wait != "", err
}

// permit consults the safety package, with live evidence, right before a control-plane node is disrupted. It returns
// what the node has to wait for.
func (r *Reconciler) permit(ctx context.Context, s *scope) (string, error) {
	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return "", err
	}

	busy := ""
	if d := s.held.State.Runtime.Disruption; d != nil {
		busy = d.Machine
	}

	if busy != s.machine.Name {
		return "waiting until the control plane has recorded the reboot", nil
	}

	nodes := r.evidence(s).Collect(ctx, machines)

	verdict, err := r.permitNow(ctx, s, nodes, busy, safety.ActReboot)
	if err != nil || verdict.Action == safety.Proceed {
		return "", err
	}

	return verdict.Message, nil
}

// permitNow consults the safety package about the act itself. The grant may be hours old, so the demanded backup has to
// be fresh now.
func (r *Reconciler) permitNow(ctx context.Context, s *scope, nodes []safety.Node, busy string, act safety.Act,
) (safety.Verdict, error) {
	verdict, made, err := scheduled.Permit(ctx, r.Client, r.Reader, s.controlPlane, r.Clock.Now(),
		func(b safety.Backup) safety.Verdict {
			return safety.Permit(nodes, busy, safety.Disruption{Act: act, Machine: s.machine.Name, Backup: b})
		})
	if err != nil {
		return safety.Verdict{}, fmt.Errorf("looking for the backup before %s goes away: %w", s.machine.Name, err)
	}

	if made != nil {
		r.event(s, v1alpha1.ReasonWaitingForBackup, "Backup", "Taking TalosEtcdBackup %s before %s goes away", made.Name,
			s.machine.Name)
	}

	return verdict, nil
}

// reboot requests the recorded reboot.
func (r *Reconciler) reboot(ctx context.Context, s *scope) error {
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	err = node.ToItself(ctx, s.self(), func() error {
		if s.machine.Spec.Role == v1alpha1.RoleControlPlane && s.facts.EtcdMemberID != "" {
			// A leader that stops without forfeiting its leadership costs the cluster only one election timeout.
			if err := node.ForfeitLeadership(ctx); err != nil {
				ctrl.LoggerFrom(ctx).Info("Moving the leadership of etcd failed; rebooting all the same", "error", err.Error())
			}
		}

		return node.Reboot(ctx)
	})
	if err != nil {
		return fmt.Errorf("rebooting %s: %w", s.machine.Name, err)
	}

	return nil
}

// finishReboot waits for a new boot ID.
func (r *Reconciler) finishReboot(ctx context.Context, s *scope) (ctrl.Result, error) {
	st := &s.machine.Status

	if s.facts.BootID == st.Intent.BootID {
		return r.rebootAgain(ctx, s)
	}

	st.Intent = nil

	switch {
	case st.Change == nil:
	case s.liveHash == st.Change.Target:
		// The operator sent this configuration, even if the spec has changed since then.
		st.ConfigHash = s.liveHash
		r.phase(s, v1alpha1.ChangeSettling, "")
	default:
		r.fail(s, s.machine.Name+" has rebooted and does not run the config that was staged")
	}

	return ctrl.Result{RequeueAfter: pollChange}, nil
}

// rebootAgain repeats the request to a node that has not begun its reboot: the operator may have crashed before it sent
// the request. That may be long ago, so the safety package is consulted again.
func (r *Reconciler) rebootAgain(ctx context.Context, s *scope) (ctrl.Result, error) {
	st := &s.machine.Status

	switch {
	case s.facts.Stage != stageRunning, st.Change == nil, r.Clock.Since(st.Intent.Since.Time) <= repeatReboot:
		return ctrl.Result{RequeueAfter: pollChange}, nil
	case r.Clock.Since(st.Intent.Since.Time) > s.rollout().HealthTimeout:
		r.fail(s, fmt.Sprintf("%s was asked to reboot for the change of %s and has not done so for %s", s.machine.Name,
			fieldNames(st.Change), s.rollout().HealthTimeout))

		return ctrl.Result{}, nil
	}

	if wait, err := r.permitChange(ctx, s); wait || err != nil {
		return ctrl.Result{RequeueAfter: pollDrain}, err
	}

	return ctrl.Result{RequeueAfter: repeatReboot}, r.reboot(ctx, s)
}
