package talosmachine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/rollout"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// settleTime is how long a node has to be healthy after a change without a reboot: restarting services still report
// healthy for a moment.
const settleTime = 5 * time.Second

// settle ends a change once the node is healthy with the live configuration, and records that configuration as working.
func (r *Reconciler) settle(ctx context.Context, s *scope) (ctrl.Result, error) {
	st := &s.machine.Status
	well := s.well()

	switch {
	case st.Change == nil:
		return ctrl.Result{}, r.settleUnchanged(ctx, s, well)
	case s.isMoot():
		return ctrl.Result{RequeueAfter: pollChange}, r.withdraw(ctx, s)
	}

	st.Intent = nil
	if st.Change.Phase != v1alpha1.ChangeFailed {
		r.phase(s, v1alpha1.ChangeSettling, "")
	}

	took := r.Clock.Since(st.Change.Since.Time)

	switch {
	case well && (st.Change.Reboot || took >= settleTime):
		return ctrl.Result{RequeueAfter: pollChange}, r.complete(ctx, s)
	case !well && st.Change.Phase == v1alpha1.ChangeSettling && took >= s.rollout().HealthTimeout:
		r.fail(s, fmt.Sprintf("%s has not been healthy for %s since the change of %s: %s; correct the spec, or roll the "+
			"machine back to the last working config with the annotation %s=%s", s.machine.Name,
			s.rollout().HealthTimeout, fieldNames(st.Change), s.unmet(), v1alpha1.RevertAnnotation, st.Change.Target))

		return ctrl.Result{}, nil
	case !well && st.Change.Phase == v1alpha1.ChangeSettling:
		r.phase(s, v1alpha1.ChangeSettling, s.unmet())
	}

	return ctrl.Result{RequeueAfter: pollChange}, nil
}

// isMoot reports whether the change is no longer desired and has not taken effect. A change that has taken effect has
// to prove itself, even if further changes follow.
func (s *scope) isMoot() bool {
	c := s.machine.Status.Change
	if s.liveHash == c.Target || s.wantHash == c.Target {
		return false
	}

	switch c.Phase {
	case v1alpha1.ChangePending, v1alpha1.ChangeDraining, v1alpha1.ChangeApplying, v1alpha1.ChangeAwaitingReboot:
		return true
	case v1alpha1.ChangeRebooting, v1alpha1.ChangeSettling, v1alpha1.ChangeFailed:
	}

	return false
}

// withdraw drops a change, because the node runs the desired configuration.
func (r *Reconciler) withdraw(ctx context.Context, s *scope) error {
	if done, err := r.unstage(ctx, s); !done {
		return err
	}

	if err := r.uncordon(ctx, s); err != nil {
		return err
	}

	s.machine.Status.Change, s.machine.Status.Intent = nil, nil

	return nil
}

// unstage replaces a staged configuration that is no longer desired: it would take effect at the next reboot, whatever
// causes it.
func (r *Reconciler) unstage(ctx context.Context, s *scope) (bool, error) {
	c := s.machine.Status.Change
	if !c.Reboot || s.liveHash == c.Target || c.Phase == v1alpha1.ChangePending && s.machine.Status.Intent == nil {
		return true, nil
	}

	return r.send(ctx, s, talos.ApplyOptions{Mode: talos.ApplyNoReboot})
}

// uncordon makes a node schedulable again if the operator made it unschedulable. It waits for an unreachable API only
// if pods had to be evicted for the change.
func (r *Reconciler) uncordon(ctx context.Context, s *scope) error {
	cluster, err := r.cluster(ctx, s)
	if err == nil {
		err = cluster.Uncordon(ctx, s.nodeRef())
	}

	if err != nil && !s.machine.Status.Change.Drain {
		ctrl.LoggerFrom(ctx).Info("It is unknown whether the node is cordoned", "error", err.Error())

		return nil
	}

	return err
}

// well reports whether the node has booted and has no unmet conditions.
func (s *scope) well() bool { return s.facts.Stage == stageRunning && s.facts.Ready }

// settleUnchanged records the configuration of a node that needs no change as working.
func (r *Reconciler) settleUnchanged(ctx context.Context, s *scope, well bool) error {
	if s.intends(v1alpha1.StepDrain) || s.intends(v1alpha1.StepStage) || s.intends(v1alpha1.StepApply) {
		s.machine.Status.Intent = nil
	}

	if !well {
		return nil // a booting node is observed until it is running
	}

	if err := r.remember(ctx, s); err != nil {
		return err
	}

	r.rest(s)

	return nil
}

// missPatience ends the change of a node that became unreachable during it and does not come back. A machine that was
// allowed to begin and has not done so returns the grant, so that it does not block others.
func (r *Reconciler) missPatience(s *scope) {
	c, timeout := s.machine.Status.Change, s.rollout().HealthTimeout

	switch {
	case s.paused || c == nil || c.Phase == v1alpha1.ChangeFailed:
	case c.Phase == v1alpha1.ChangePending, c.Phase == v1alpha1.ChangeAwaitingReboot:
		if rollout.Granted(s.machine) && r.silence(s) >= timeout {
			s.newChangeID()
		}
	case c.Phase == v1alpha1.ChangeDraining && s.answer == talos.StateUnreachable:
		// Nothing was sent yet, and a drain may take hours: only the silence counts. A node that has lost its configuration
		// does not come back.
		if r.silence(s) >= timeout {
			r.fail(s, fmt.Sprintf("%s has been unreachable for %s while it was drained for the change of %s; check its "+
				"console, or replace it", s.machine.Name, timeout, fieldNames(c)))
		}
	case r.Clock.Since(c.Since.Time) >= timeout:
		r.fail(s, fmt.Sprintf("%s has not come back for %s since the change of %s began to take effect; check its "+
			"console, or replace it", s.machine.Name, timeout, fieldNames(c)))
	}
}

// silence returns for how long the status has reported that the node is unreachable.
func (r *Reconciler) silence(s *scope) time.Duration {
	c := meta.FindStatusCondition(s.machine.Status.Conditions, v1alpha1.ConditionReachable)
	if c == nil || c.Status != metav1.ConditionFalse {
		return 0
	}

	return r.Clock.Since(c.LastTransitionTime.Time)
}

// newChangeID revokes a grant: a grant applies to one ID, and it created a new generation of the machine.
func (s *scope) newChangeID() { s.machine.Status.Change.ID = s.changeID(s.machine.Status.Change) }

// complete makes the node schedulable again and drops the change.
func (r *Reconciler) complete(ctx context.Context, s *scope) error {
	st := &s.machine.Status

	if done, err := r.unstage(ctx, s); !done {
		return err
	}

	if err := r.uncordon(ctx, s); err != nil {
		return err
	}

	if err := r.remember(ctx, s); err != nil {
		return err
	}

	r.event(s, v1alpha1.ReasonUpToDate, "Complete", "Runs the desired config and is healthy")

	st.Change = nil

	return nil
}

// remember records the live configuration as one with which the node is healthy.
func (r *Reconciler) remember(ctx context.Context, s *scope) error {
	st := &s.machine.Status
	if st.WorkingHash == s.liveHash {
		return nil
	}

	if err := r.loadStored(ctx, s); err != nil {
		return err
	}

	s.stored.Working = s.live

	if err := r.Configs.Save(ctx, s.machine, s.stored); err != nil {
		return err
	}

	st.WorkingHash = s.liveHash

	return nil
}

func (r *Reconciler) loadStored(ctx context.Context, s *scope) error {
	if len(s.stored.Working) > 0 {
		return nil
	}

	stored, err := r.Configs.Load(ctx, s.machine)
	if err != nil {
		return err
	}

	s.stored = stored

	return nil
}
