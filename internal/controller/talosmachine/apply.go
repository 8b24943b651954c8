package talosmachine

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// Intervals and timeouts of a configuration change.
const (
	pollChange = time.Second
	// repeatReboot is how soon the reboot of a node that still runs is requested again.
	repeatReboot = 15 * time.Second
	// trySlack is how long after its end a trial counts as undecided.
	trySlack = 5 * time.Second
)

// change advances the configuration change of a machine that has its slot in the rollout. Each step observes what the
// node runs and may be repeated.
func (r *Reconciler) change(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.compared || s.facts == nil {
		return ctrl.Result{}, nil
	}

	st := &s.machine.Status

	switch {
	case s.intends(v1alpha1.StepTry):
		return r.finishTry(ctx, s)
	case s.intends(v1alpha1.StepReboot):
		return r.finishReboot(ctx, s)
	case s.diff.Equal():
		return r.settle(ctx, s)
	case st.Change == nil || st.Change.Phase == v1alpha1.ChangeFailed || !rollout.Granted(s.machine):
		r.rest(s)

		return ctrl.Result{}, nil
	case st.Change.Reboot && st.Change.Try:
		r.refuseUntried(s)

		return ctrl.Result{}, nil
	case st.Change.Reboot && !s.machine.Spec.Change.Reboot:
		return r.leaveStaged(ctx, s)
	case st.Change.Reboot:
		return r.changeWithReboot(ctx, s)
	case st.Change.Try:
		return r.tryOut(ctx, s, 0)
	}

	return r.applyNow(ctx, s)
}

// rest records that there is nothing to do until something changes.
func (r *Reconciler) rest(s *scope) {
	c := s.machine.Status.Change

	if s.machine.Status.Intent == nil && (c == nil || c.Phase == v1alpha1.ChangePending && !rollout.Granted(s.machine) ||
		c.Phase == v1alpha1.ChangeAwaitingReboot) {
		r.looks.settle(s.key().String(), s.look(), r.Clock.Now())
	}
}

// phase sets the phase of the change.
func (r *Reconciler) phase(s *scope, phase v1alpha1.ChangePhase, message string) {
	c := s.machine.Status.Change
	if c.Phase != phase {
		c.Phase, c.Since = phase, stamp(r.Clock.Now())
	}

	c.Message = kube.Shorten(message, longestMessage)
}

// longestMessage is the maximum length of a status message.
const longestMessage = 1000

// fail ends a change that the node rejected, or with which it did not become healthy.
func (r *Reconciler) fail(s *scope, message string) {
	s.machine.Status.Intent = nil
	r.phase(s, v1alpha1.ChangeFailed, message)
	r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, v1alpha1.ReasonChangeFailed, "Change", "%s",
		kube.Shorten(message, longestMessage))
}

// refuseUntried ends a change that could cut the node off and takes effect only with a reboot: a node cannot roll such
// a change back by itself.
func (r *Reconciler) refuseUntried(s *scope) {
	r.fail(s, fmt.Sprintf("%s would take effect with the reboot that other fields of the change need, and could not be "+
		"tried: it might cut %s off for good; change it alone first, and the rest once that is done",
		strings.Join(machineconfig.AffectsConnection(s.diff.Changes), ", "), s.machine.Name))
}

// send applies the desired configuration. A rejection ends the change: only another configuration helps.
func (r *Reconciler) send(ctx context.Context, s *scope, o talos.ApplyOptions) (bool, error) {
	node, err := r.node(ctx, s)
	if err != nil {
		return false, err
	}

	err = node.ToItself(ctx, s.self(), func() error {
		_, err := node.Apply(ctx, s.want, o)

		return err
	})

	switch {
	case err == nil:
		return true, nil
	case failure.ClassOf(err) == failure.ClassTerminal:
		r.fail(s, failure.Message(err))

		return false, nil
	}

	return false, fmt.Errorf("sending a config to %s: %w", s.machine.Name, err)
}

// applyNow sends a configuration that takes effect immediately.
func (r *Reconciler) applyNow(ctx context.Context, s *scope) (ctrl.Result, error) {
	if wait, err := r.permitChange(ctx, s); wait || err != nil {
		return ctrl.Result{RequeueAfter: pollDrain}, err
	}

	r.phase(s, v1alpha1.ChangeApplying, "")

	if err := r.intend(ctx, s, v1alpha1.MachineIntent{Step: v1alpha1.StepApply}); err != nil {
		return ctrl.Result{}, err
	}

	if sent, err := r.send(ctx, s, talos.ApplyOptions{Mode: talos.ApplyNoReboot}); !sent {
		return ctrl.Result{}, err
	}

	r.event(s, v1alpha1.ReasonRollingOut, "Apply", "Changed %s", changed(s.diff))
	s.machine.Status.ConfigHash, s.machine.Status.Intent = s.wantHash, nil
	r.phase(s, v1alpha1.ChangeSettling, "")

	return ctrl.Result{RequeueAfter: pollChange}, nil
}

func changed(d machineconfig.Difference) string { return some(d.Paths()) }

// tryOut sends a configuration that could cut the node off: the node rolls it back unless it is confirmed. attempt
// counts the repetitions.
func (r *Reconciler) tryOut(ctx context.Context, s *scope, attempt int32) (ctrl.Result, error) {
	if wait, err := r.permitChange(ctx, s); wait || err != nil {
		return ctrl.Result{RequeueAfter: pollDrain}, err
	}

	r.phase(s, v1alpha1.ChangeApplying, "the change is on trial")

	if err := r.intend(ctx, s, v1alpha1.MachineIntent{Step: v1alpha1.StepTry, Attempt: attempt}); err != nil {
		return ctrl.Result{}, err
	}

	sent, err := r.send(ctx, s, talos.ApplyOptions{Mode: talos.ApplyTry, TryTimeout: s.rollout().TryTimeout})
	if !sent {
		return ctrl.Result{}, err
	}

	return ctrl.Result{RequeueAfter: pollChange}, nil
}

// maxRepeats is how often a trial that ended before the operator had checked the node is repeated.
const maxRepeats = 2

// noteTrial records that the operator has checked a node while a change is on trial. If the node rolls the change back
// afterwards, the change has cut it off. A trial that ends unchecked is no evidence against the change.
func (r *Reconciler) noteTrial(_ context.Context, s *scope) (ctrl.Result, error) {
	if s.intends(v1alpha1.StepTry) {
		i, timeout := s.machine.Status.Intent, s.rollout().TryTimeout
		since := r.Clock.Now().Sub(i.Since.Time)
		i.Checked = i.Checked || since >= trialPause(timeout) && since < timeout
	}

	return ctrl.Result{}, nil
}

// trialPause is the time at the beginning of a trial in which the node proves nothing: its network configuration takes
// effect a moment later than the configuration itself.
func trialPause(timeout time.Duration) time.Duration { return min(settleTime, timeout/2) }

// finishTry confirms a configuration on trial once the node has responded over a new connection: established
// connections prove nothing.
func (r *Reconciler) finishTry(ctx context.Context, s *scope) (ctrl.Result, error) {
	st := &s.machine.Status

	if st.Change == nil {
		st.Intent = nil

		return ctrl.Result{RequeueAfter: pollChange}, nil
	}

	timeout, since := s.rollout().TryTimeout, r.Clock.Since(st.Intent.Since.Time)
	live, wanted, over := s.liveHash == st.Change.Target, s.wantHash == st.Change.Target, since > timeout+trySlack

	switch {
	case live && wanted && since >= trialPause(timeout):
		return r.confirm(ctx, s)
	case live && over:
		// The change was confirmed, or the node kept it, and the spec has changed in the meantime.
		st.ConfigHash, st.Intent = s.liveHash, nil
	case !live && !wanted:
		// The node rolled the change back, or never received it, and it is no longer desired.
		st.Intent = nil
	case !live && over:
		return r.afterTrial(ctx, s)
	case !live && since < timeout/2:
		// The trial was recorded but not sent. If it was sent, the node may have rolled it back by now, and one trial is
		// enough.
		return r.tryOut(ctx, s, st.Intent.Attempt)
	}

	return ctrl.Result{RequeueAfter: pollChange}, nil
}

// afterTrial ends a change that the node has rolled back, or repeats the trial if the operator did not check the node
// during it.
func (r *Reconciler) afterTrial(ctx context.Context, s *scope) (ctrl.Result, error) {
	intent, fields := s.machine.Status.Intent, fieldNames(s.machine.Status.Change)

	switch {
	case intent.Checked:
		r.fail(s, fmt.Sprintf("%s rolled the change of %s back: it was unreachable over a new connection while the "+
			"change was on trial", s.machine.Name, fields))
	case intent.Attempt >= maxRepeats:
		r.fail(s, fmt.Sprintf("%s rolled the change of %s back %d times before the operator had checked it: set a longer "+
			"rollout.tryTimeout than %s, and retry", s.machine.Name, fields, intent.Attempt+1, s.rollout().TryTimeout))
	default:
		return r.tryOut(ctx, s, intent.Attempt+1)
	}

	return ctrl.Result{}, nil
}

// confirm keeps a configuration that is on trial, if the node still responds.
func (r *Reconciler) confirm(ctx context.Context, s *scope) (ctrl.Result, error) {
	if probe, err := r.Nodes.Probe(ctx, s.address, &s.creds); err != nil || probe.State != talos.StateMember {
		return ctrl.Result{RequeueAfter: pollChange}, nil // that is what the trial is for
	}

	// The response counts only if the change was still on trial at that time. A node that had rolled the change back
	// responds as well, and confirming would send the change again, permanently.
	if on, err := r.isOnTrial(ctx, s); !on || err != nil {
		return ctrl.Result{RequeueAfter: pollChange}, err
	}

	if sent, err := r.send(ctx, s, talos.ApplyOptions{Mode: talos.ApplyNoReboot}); !sent {
		return ctrl.Result{}, err
	}

	r.event(s, v1alpha1.ReasonRollingOut, "Confirm", "Changed %s; the node is still reachable",
		fieldNames(s.machine.Status.Change))
	s.machine.Status.ConfigHash, s.machine.Status.Intent = s.machine.Status.Change.Target, nil
	r.phase(s, v1alpha1.ChangeSettling, "")

	return ctrl.Result{RequeueAfter: pollChange}, nil
}

// isOnTrial reads the live configuration again.
func (r *Reconciler) isOnTrial(ctx context.Context, s *scope) (bool, error) {
	node, err := r.node(ctx, s)
	if err != nil {
		return false, err
	}

	live, err := node.MachineConfig(ctx)
	if err != nil {
		return false, fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	hash, err := machineconfig.Hash(live)
	if err != nil {
		return false, fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	return hash == s.machine.Status.Change.Target, nil
}

func fieldNames(c *v1alpha1.MachineChange) string { return some(rollout.Names(c.Fields)) }

// leaveStaged stages the configuration, which takes effect at the next reboot, whatever causes it.
func (r *Reconciler) leaveStaged(ctx context.Context, s *scope) (ctrl.Result, error) {
	waits, err := r.isStaged(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	if !waits {
		if staged, err := r.stage(ctx, s); !staged {
			return ctrl.Result{}, err
		}
	}

	s.machine.Status.Intent = nil
	r.phase(s, v1alpha1.ChangeAwaitingReboot, "the config is staged and takes effect when "+s.machine.Name+" reboots")
	r.rest(s)

	return ctrl.Result{}, nil
}

// isStaged asks the node whether the staged configuration is still there: any configuration that is sent replaces it. A
// trial that was started outside of the operator is not disturbed, because sending anything would end it.
func (r *Reconciler) isStaged(ctx context.Context, s *scope) (bool, error) {
	if s.machine.Status.Change.Phase != v1alpha1.ChangeAwaitingReboot {
		return false, nil
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return false, err
	}

	state, err := node.ConfigState(ctx)
	if err != nil {
		return false, fmt.Errorf("looking for the staged config of %s: %w", s.machine.Name, err)
	}

	return state.NextBoot != talos.NextBootLive, nil
}

func (r *Reconciler) stage(ctx context.Context, s *scope) (bool, error) {
	if err := r.intend(ctx, s, v1alpha1.MachineIntent{Step: v1alpha1.StepStage}); err != nil {
		return false, err
	}

	return r.send(ctx, s, talos.ApplyOptions{Mode: talos.ApplyStaged})
}

// unmet returns the unmet conditions of the node, for messages.
func (s *scope) unmet() string {
	if s.facts.Stage != stageRunning {
		return "it is " + s.facts.Stage
	}

	return "it waits for " + strings.Join(s.facts.Unmet, ", ")
}
