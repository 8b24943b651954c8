package change

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// reverts reports whether the change returns to what ran before.
func (in Input) reverts() bool { return in.Record.Change.Cause == v1alpha1.CauseRevert }

// rollBack boots what the node ran before its last upgrade. Pods may never leave a node that is not healthy, and a
// maintenance window may be far away, so neither is waited for; the safety kernel is asked all the same.
func (in Input) rollBack() Step {
	if in.mustDrain() && !in.Pass.Drained {
		in.drain()

		return in.holdOr(Drain)
	}

	if step, holds := in.gate(); holds {
		return step
	}

	return in.requestRollback(0)
}

// requested reports whether the node was asked to roll back in this boot: another system may boot next.
func (in Input) requested() bool {
	return in.Record.Change.RollbackBoot != "" && in.Record.Change.RollbackBoot == in.BootID
}

// requestRollback asks the node to boot what it ran before, or to reboot if it was asked in this boot: a second request
// would take back the first one. attempt counts the boots in which it was asked, from 0.
func (in Input) requestRollback(attempt int32) Step {
	if in.requested() {
		return in.bootInto(Reboot, attempt)
	}

	in.Record.Change.RollbackBoot, in.Record.Change.Staged = in.BootID, true

	step := in.bootInto(Rollback, attempt)
	step.Again = 0 // a refusal is known at once

	return step
}

// rollBackAgain repeats the request to a node that has rebooted and runs the same as before: the operator may have
// crashed before it sent the request, and the reboot had another reason. It does so once: a node that has rebooted into
// the same twice does not boot what it ran before.
func (in Input) rollBackAgain() Step {
	if in.Stage != StageRunning && in.Now.Sub(in.Record.Intent.Since.Time) < in.Options.HealthTimeout {
		return in.hold("it is " + in.Stage)
	}

	if step, holds := in.gate(); holds {
		return step
	}

	return in.requestRollback(1)
}

// Unsent takes back the record of a rollback that the node has not been asked for, or has refused for now.
func Unsent(in Input, message string) Step {
	in.Record = in.Record.copy()
	in.Record.Intent, in.Record.Change.RollbackBoot, in.Record.Change.Staged = nil, "", false
	in.phase(v1alpha1.ChangeDraining, message)

	return in.again(RepeatReboot)
}

// settleAgain turns a rollback that has not begun, and is no longer desired, into the settling of what runs.
func (in *Input) settleAgain() {
	c := in.Record.Change
	c.Cause, c.Base, c.Target, c.Image, c.OldImage = v1alpha1.CauseSpec, c.Target, c.Base, c.OldImage, c.Image
	c.Booted, c.Staged, c.UnfitSince = true, false, nil

	in.found()

	for i, f := range c.Fields {
		c.Fields[i].Old, c.Fields[i].New = f.New, f.Old
	}

	in.phase(v1alpha1.ChangeSettling, "")
}

// noteUnfit records since when a node that has booted another system is unfit: not healthy by itself, or refuted by a
// check. What it lags behind otherwise, such as the other members of etcd, is no reason to boot an older system.
func (in Input) noteUnfit() {
	switch c, unfit := in.Record.Change, in.Stage != StageRunning || !in.Ready || in.Refuted; {
	case !unfit:
		c.UnfitSince = nil
	case c.UnfitSince == nil:
		c.UnfitSince = new(stamp(in.Now))
	}
}

// MustRollBack reports whether a machine runs the system of an upgrade, had its time to become healthy, and is not.
// A check without evidence, such as an API that does not respond, is no reason to reboot a healthy machine, and neither
// is an etcd member that lags. answers is since when the node has responded, zero if that is not known; asked is the
// target whose rollback was requested, empty for none.
func MustRollBack(in Input, answers time.Time, asked string) bool {
	c := in.Record.Change

	return IsUpgrade(c) && c.Phase == v1alpha1.ChangeFailed && c.Booted && c.Cause != v1alpha1.CauseRevert &&
		in.Live == c.Target && (!in.Ready || in.Refuted) && asked != c.Target && in.staysUnfit(answers)
}

// staysUnfit reports whether a node is unfit for long enough to boot what it ran before: for the time that it had to
// become healthy. One that was fit, or did not respond, after its change had failed is given that time anew, because a
// service that restarts, or a boot, makes any node unfit for a moment.
func (in Input) staysUnfit(answers time.Time) bool {
	c := in.Record.Change
	if c.UnfitSince == nil || in.Now.Sub(c.UnfitSince.Time) < in.Options.HealthTimeout {
		return false
	}

	return !c.UnfitSince.After(c.Since.Time) || !answers.IsZero() && in.Now.Sub(answers) >= in.Options.HealthTimeout
}
