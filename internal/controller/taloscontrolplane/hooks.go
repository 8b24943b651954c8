package taloscontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/history"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// pollHook is how soon a Job of a managed cluster is observed again: no event reports its end.
const pollHook = 10 * time.Second

// guardUpgrade has hooks run before and after upgrades. next is the upgrade that was planned; what is returned is the
// one that machines may follow.
func (r *Reconciler) guardUpgrade(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) (*v1alpha1.UpgradeStatus, error) {
	was := s.held.State.Runtime.Upgrade
	s.guard = guardOf(s.cp, r.group(s).Entries(), was, next, machines)

	if err := r.demandBackup(ctx, s, next); err != nil {
		return nil, err
	}

	out, err := r.stepHooks(ctx, s, freesWorkers(next))
	if err != nil {
		return nil, err
	}

	if !awaitsRetry(was, s.held.State.Runtime.Upgrade) {
		if err := kube.TakeAnnotation(ctx, r.Client, s.cp, s.base, v1alpha1.RetryAnnotation); err != nil {
			return nil, err
		}
	}

	switch {
	case s.guard.Planned == nil || out.Begin:
	case freesWorkers(next):
		next = heldWorkers(next, s.cp.Status.Upgrade, out.Message)
	case out.Message != "":
		next.Message = kube.Shorten(out.Message, longestMessage)
	}

	return next, nil
}

// heldWorkers returns the status of an upgrade of workers that are left behind, while hooks hold it. Its obstacles
// stay, because what is among them already is not told by another event. It is pure.
func heldWorkers(next, was *v1alpha1.UpgradeStatus, why string) *v1alpha1.UpgradeStatus {
	out := refused(next, was, preflight{message: why})
	out.Obstacles, out.Pulling = next.Obstacles, next.Pulling // or machines would forget their images, and pull again

	return out
}

// freesWorkers reports whether workers begin as soon as an upgrade is published, without a slot of the control plane:
// those that are left behind. The hooks before it run first then, whatever windows the workers wait for.
func freesWorkers(next *v1alpha1.UpgradeStatus) bool {
	return next != nil && (next.TalosVersion != "" && next.ControlPlaneDone ||
		next.KubernetesVersion != "" && slices.Contains(next.Components, v1alpha1.ComponentKubelet))
}

// awaitsRetry reports whether the hooks of a run are stopped and no further attempt was recorded: nothing may have been
// planned, as while a machine is unreachable. was is the run of before. It is pure.
func awaitsRetry(was, run *clusterstate.UpgradeRun) bool {
	return was != nil && hook.Stopped(run) != nil && run.Attempt == was.Attempt
}

// guardOf collects what hooks are decided from, but for the Job that runs. It is pure.
func guardOf(
	cp *v1alpha1.TalosControlPlane, entries []v1alpha1.MachineEntry, run *clusterstate.UpgradeRun,
	next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) hook.Input {
	_, retry := cp.Annotations[v1alpha1.RetryAnnotation]
	out := hook.Input{UID: string(cp.UID), Name: cp.Name, Retry: retry, Generation: cp.Generation}

	planned := cp.DeepCopy()
	planned.Status.Upgrade = next

	if o := cp.Spec.Upgrade; o != nil {
		out.Hooks = o.Hooks
	}

	for _, of := range []upgrade.Component{upgrade.Talos, upgrade.Kubernetes} {
		in := history.Input{Component: of, ControlPlane: planned, Machines: machines}

		if spec := in.Planned(); spec != nil {
			out.Planned = &hook.Planned{Component: of, From: spec.From, To: spec.To}
			// One that has failed with another version says nothing about this one.
			out.Busy = slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool {
				return change.Begun(in.Brings(spec.From, spec.To, &m))
			})
			out.Backup = cp.Spec.BackupBeforeDisruption != nil && upgrade.NeedsBackup(of, spec.From, spec.To)
		}

		if run != nil && run.Component == string(of) {
			in.ControlPlane = cp.DeepCopy()
			in.ControlPlane.Status.Upgrade = unheld(cp, entries, next, machines)
			out.Phase = phaseOf(in, run)
			out.Moving = slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool {
				c := in.Brings(run.From, run.To, &m)

				return change.Begun(c) && c.Phase != v1alpha1.ChangeFailed
			})
			out.Halted = out.Phase == v1alpha1.UpgradeRunStopped && out.Planned != nil && out.Planned.Is(run) &&
				!out.Planned.Back() && !freesWorkers(next) && halted(in, cp, run, machines)
		}
	}

	return out
}

// phaseOf returns the phase of a recorded run, by its machines. If none wants another schematic any more, and none
// has begun, it was called off: machines that have theirs are not told from those that never wanted it. It is pure.
func phaseOf(in history.Input, run *clusterstate.UpgradeRun) v1alpha1.UpgradeRunPhase {
	out := in.PhaseOf(run.From, run.To)
	if run.From == run.To && run.Phase == clusterstate.UpgradePlanned && out == v1alpha1.UpgradeRunSucceeded {
		return v1alpha1.UpgradeRunCalledOff
	}

	return out
}

// halted reports whether a control-plane machine has failed with a version, and no machine does anything: workers wait
// for the control plane. One that is rolled back by itself is waited for. It is pure.
func halted(
	in history.Input, cp *v1alpha1.TalosControlPlane, run *clusterstate.UpgradeRun, machines []v1alpha1.TalosMachine,
) bool {
	failed, o := false, cp.Spec.Upgrade
	automatic := o != nil && o.Rollback == v1alpha1.RollbackAutomatic

	for i := range machines {
		m := &machines[i]

		c := m.Status.Change
		if c == nil || deleting(m) {
			continue
		}

		broken := c.Phase == v1alpha1.ChangeFailed

		switch {
		case broken && m.Annotations[v1alpha1.RetryAnnotation] != "", !broken && (change.Begun(c) || rollout.Granted(m)):
			return false
		case !broken || m.Spec.WorkerRef != nil || in.Brings(run.From, run.To, m) == nil:
		case automatic && c.Booted: // only another Talos has booted
			return false
		default:
			failed = true
		}
	}

	return failed
}

// unheld returns an upgrade without its wait for bootstrap manifests, which brings no machine to a version: hooks after
// the version do not wait for it, because a manifest that is refused may keep a cluster in maintenance for days.
func unheld(
	cp *v1alpha1.TalosControlPlane, entries []v1alpha1.MachineEntry, next *v1alpha1.UpgradeStatus,
	machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	if cp.Status.Manifests == nil || targetOf(cp) == (upgrade.Target{}) {
		return next
	}

	return upgradeOf(cp, entries, machines)
}

// stepHooks takes the next step of the hooks of an upgrade: what is decided is recorded first, with a precondition, and
// a Job is created then. ready: nothing else keeps the first machine from beginning.
func (r *Reconciler) stepHooks(ctx context.Context, s *scope, ready bool) (hook.Output, error) {
	s.hooks = nil
	in := s.guard
	in.Record, in.Ready, in.Now = s.held.State.Runtime.Upgrade, ready, r.Clock.Now()

	if h := in.Record.Current(); h != nil {
		in.Job = r.observeHook(ctx, s, h)
	}

	out := hook.Next(in)
	if err := r.recordRun(ctx, s, out.Record); err != nil {
		return out, err
	}

	r.tellHooks(s, out.Record, out.Ended)

	if out.Poll {
		s.poll = r.Clock.Now().Add(pollHook)
	}

	if out.Create != nil {
		why, err := r.createHook(ctx, s, in)
		if err != nil {
			return out, err
		}

		if why != "" && out.Message != "" {
			out.Message += ": " + why
		}
	}

	if out.Reason != "" {
		s.hooks = &safety.Verdict{Action: safety.Wait, Reason: out.Reason, Message: out.Message}
	}

	return out, nil
}

// observeHook returns what has become of the Job of a hook.
func (r *Reconciler) observeHook(ctx context.Context, s *scope, h *clusterstate.HookRun) hook.Job {
	jobs, err := r.Jobs(ctx, s.held.State.Bundle, s.addresses())
	if err != nil {
		return hook.Job{Message: failure.Message(err)}
	}

	return jobs.Observe(ctx, h)
}

// recordRun records an upgrade. Nothing is written if nothing has changed.
func (r *Reconciler) recordRun(ctx context.Context, s *scope, run *clusterstate.UpgradeRun) error {
	s.held.State.Runtime.Upgrade = run
	if run == nil {
		return nil
	}

	if err := r.States.Update(ctx, s.held); err != nil {
		return fmt.Errorf("recording the hooks of an upgrade of %s: %w", s.cp.Name, err)
	}

	return nil
}

// createHook creates the Job of the recorded hook, and returns what that waits for.
func (r *Reconciler) createHook(ctx context.Context, s *scope, in hook.Input) (string, error) {
	run := s.held.State.Runtime.Upgrade
	h := run.Current()

	owner, err := r.ownerPermits(ctx, s)
	if err != nil || owner.Action != safety.Proceed {
		return owner.Message, err
	}

	jobs, err := r.Jobs(ctx, s.held.State.Bundle, s.addresses())
	if err != nil {
		return failure.Message(err), ctx.Err()
	}

	i := slices.IndexFunc(in.Hooks, func(o v1alpha1.UpgradeHook) bool { return o.Name == h.Name && o.When == h.When })

	job, err := hook.NewJob(&in.Hooks[i], run, h, s.clusterName())
	if err != nil {
		return "", failure.Terminal(v1alpha1.ReasonInvalidSpec, err.Error(), err)
	}

	refusal, err := jobs.Create(ctx, job)

	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("Creating the Job of a hook failed", "hook", h.Name, "error", failure.Message(err))

		return failure.Message(err), ctx.Err()
	case refusal == "":
		return "", nil
	}

	run, ended := hook.Refuse(in, run, refusal)
	if err := r.recordRun(ctx, s, run); err != nil {
		return "", err
	}

	r.tellHooks(s, run, []clusterstate.HookRun{ended})

	return refusal, nil
}

// tellHooks reports the end of hooks.
func (r *Reconciler) tellHooks(s *scope, run *clusterstate.UpgradeRun, ended []clusterstate.HookRun) {
	for i := range ended {
		h := &ended[i]

		if h.Failure == "" {
			r.Recorder.Eventf(s.cp, nil, corev1.EventTypeNormal, v1alpha1.ReasonUpgradeHookSucceeded, "Hook", "%s succeeded",
				hook.Describe(run, h))

			continue
		}

		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeWarning, v1alpha1.ReasonUpgradeHookFailed, "Hook", "%s failed: %s",
			hook.Describe(run, h), h.Failure)
	}
}

// grant lets a machine begin its change, and reports whether it may: if the safety package permits it, and, for the
// first one of an upgrade, after the backup and the hooks before it. While hooks hold the upgrade, no backup is asked
// for: it would be too old once they have ended, and taken again each time it is.
func (r *Reconciler) grant(
	ctx context.Context, s *scope, m *v1alpha1.TalosMachine, c rollout.Candidate, out *rollout.Output,
) (bool, error) {
	begun, wait, err := r.hooksPermit(ctx, s, c)
	if err != nil || wait != "" {
		s.holdUpgrade(c, wait, out)

		return false, err
	}

	if c.Change.Etcd {
		verdict, err := r.permit(ctx, s, safety.Disruption{Act: safety.ActReboot, Machine: c.Name})
		if err != nil {
			return false, err
		}

		if verdict.Action != safety.Proceed {
			out.Hold(c.Name + ": " + verdict.Message)

			return false, nil
		}
	}

	if wait = r.awaitImages(s, c); wait != "" {
		s.holdUpgrade(c, wait, out)

		return false, nil
	}

	if !begun {
		if wait, err = r.awaitUpgrade(ctx, s); err != nil || wait != "" {
			s.holdUpgrade(c, wait, out)

			return false, err
		}
	}

	if c.Change.Etcd {
		return true, r.beginDisruptiveChange(ctx, s, m, c)
	}

	return true, machineset.Grant(ctx, r.Client, m, c)
}

// holdUpgrade has a machine wait, and says so in the status of the upgrade.
func (s *scope) holdUpgrade(c rollout.Candidate, wait string, out *rollout.Output) {
	if wait == "" {
		return
	}

	out.Hold(c.Name + ": " + wait)

	if u := s.cp.Status.Upgrade; u != nil {
		u.Message = kube.Shorten(wait, longestMessage)
	}
}

// hooksPermit settles what has ended since the upgrade was planned in this reconciliation, and reports whether the
// upgrade has begun, or which hooks it waits for that run or have failed. If it neither has begun nor waits, what is
// planned is recorded, and no hook runs. Hooks are not the reason for other changes to wait.
func (r *Reconciler) hooksPermit(
	ctx context.Context, s *scope, c rollout.Candidate,
) (begun bool, wait string, err error) {
	upgrades := c.Change.Kind == v1alpha1.ChangeTalos || c.Change.Kind == v1alpha1.ChangeKubernetes
	if !upgrades || c.Change.Cause == v1alpha1.CauseRevert {
		return true, "", nil
	}

	// A path that is not planned for this spec has no hooks that could be asked for.
	if u := s.cp.Status.Upgrade; u != nil && u.ObservedGeneration != s.cp.Generation {
		return false, cmp.Or(u.Message, "the upgrade is not planned for this spec yet"), nil
	}

	p := s.guard.Planned
	if p == nil && s.planned && upgrade.OnlySchematic(&c.Change) {
		u := cmp.Or(s.cp.Status.Upgrade, &v1alpha1.UpgradeStatus{})

		return false, cmp.Or(u.Message, "the upgrade is not planned yet"), nil
	}

	if p == nil || string(c.Change.Kind) != string(p.Component) {
		return true, "", nil
	}

	out, err := r.stepHooks(ctx, s, false)

	return out.Begin, out.Message, err
}

// awaitUpgrade says what the first machine of an upgrade waits for: the backup, and then the hooks before it. It is
// empty if that is nothing.
func (r *Reconciler) awaitUpgrade(ctx context.Context, s *scope) (string, error) {
	if s.guard.Backup {
		verdict, err := r.permitUpgrade(ctx, s, s.held.State.Runtime.Upgrade)
		if err != nil || verdict.Action != safety.Proceed {
			return verdict.Message, err
		}
	}

	out, err := r.stepHooks(ctx, s, true)
	if err != nil || out.Begin {
		return "", err
	}

	return out.Message, nil
}

// setHookFailed reports the hooks that have failed, until the next upgrade begins or the spec has none.
func setHookFailed(s *scope, set condition.Set) {
	if s.held == nil {
		return
	}

	failures := ""
	if o := s.cp.Spec.Upgrade; o != nil && len(o.Hooks) > 0 {
		failures = kube.Shorten(hook.Failures(s.held.State.Runtime.Upgrade), longestMessage)
	}

	set.While(failures != "", v1alpha1.ConditionHookFailed, v1alpha1.ReasonUpgradeHookFailed, failures)
}

// hookStays reports whether a failed hook stops the upgrade as before, because this reconciliation has ended before it
// was asked for.
func (s *scope) hookStays() bool {
	c := meta.FindStatusCondition(s.cp.Status.Conditions, v1alpha1.ConditionUpToDate)

	return s.held != nil && s.guard.UID == "" && hook.Stopped(s.held.State.Runtime.Upgrade) != nil &&
		c != nil && c.Reason == v1alpha1.ReasonUpgradeHookFailed
}
