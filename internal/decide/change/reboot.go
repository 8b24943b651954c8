package change

import (
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// leaveStaged stages the configuration, which takes effect at the next reboot, whatever causes it.
func (in Input) leaveStaged() Step {
	waits := in.Record.Change.Phase == v1alpha1.ChangeAwaitingReboot

	switch {
	case waits && !in.Pass.Asked:
		return in.do(AskStaged)
	case !in.Pass.Staged && (!waits || !in.Pass.Holds):
		return in.stage()
	}

	in.Record.Intent, in.Record.Change.Staged = nil, true
	in.phase(v1alpha1.ChangeAwaitingReboot, "the config is staged and takes effect when "+in.Name+" reboots")

	return in.rest()
}

// withReboot drains the node, stages the configuration and reboots, if the safety kernel permits it.
func (in Input) withReboot() Step {
	c := in.Record.Change

	switch {
	case !in.Options.Reboots && c.Cause != v1alpha1.CauseRevert:
		// The maintenance window may have closed during the drain. A revert requested by a user does not wait for a window.
		return in.giveBack("waiting for a time in which reboots are allowed")
	case in.mustDrain() && !in.Pass.Drained:
		in.drain()

		return in.holdOr(Drain)
	}

	if step, holds := in.gate(); holds {
		return step
	}

	if !in.Pass.Staged {
		in.phase(v1alpha1.ChangeApplying, "")

		return in.stage()
	}

	in.phase(v1alpha1.ChangeRebooting, "")
	in.intend(v1alpha1.StepReboot, in.BootID, 0)

	step := in.do(Reboot)
	step.Again = Poll
	step.Event = &Event{Reason: v1alpha1.ReasonRollingOut, Action: "Reboot", Message: "Rebooting for " + in.Fields}

	return step
}

// stage sends the configuration to be stored on the disk of the node.
func (in Input) stage() Step {
	in.intend(v1alpha1.StepStage, "", 0)
	in.Record.Change.Staged = true

	return in.do(Stage)
}

// mustDrain reports whether pods have to leave the node first. They may never be evicted from an unhealthy node, and a
// user has requested its repair.
func (in Input) mustDrain() bool {
	c := in.Record.Change

	return c.Drain && !in.Record.intends(v1alpha1.StepStage) && (c.Cause != v1alpha1.CauseRevert || in.well())
}

// DrainsWithoutAPI reports whether the node may be changed although no API server responds that could evict its pods:
// the configuration of this node may be the reason.
func (in Input) DrainsWithoutAPI() bool { return in.ControlPlane && !in.well() }

// rebooting waits for a new boot ID.
func (in Input) rebooting() Step {
	c, i := in.Record.Change, in.Record.Intent

	if in.BootID == i.BootID {
		return in.rebootAgain(Reboot)
	}

	in.Record.Intent = nil

	switch {
	case c == nil:
	case in.Live == c.Target:
		// The operator sent this configuration, even if the spec has changed since then.
		in.Record.Sent = in.Live
		in.phase(v1alpha1.ChangeSettling, "")
	default:
		step := in.fail(in.Name + " has rebooted and does not run the config that was staged")
		step.Again = Poll

		return step
	}

	return in.again(Poll)
}

// rebootAgain repeats the request to a node that has not begun its reboot: the operator may have crashed before it sent
// the request. That may be long ago, so the maintenance windows and the safety kernel are consulted again.
func (in Input) rebootAgain(act Act) Step {
	switch c := in.Record.Change; {
	case c == nil:
		return in.again(Poll)
	case in.goesDown() && in.waited() > in.Options.HealthTimeout:
		return in.hangs(in.Options.HealthTimeout)
	case in.goesDown(), in.Now.Sub(in.Record.Intent.Since.Time) <= RepeatReboot:
		return in.again(Poll)
	case !in.Options.Reboots && !in.reverts(): // as in withReboot
		return in.outsideWindow()
	}

	return in.askAgain(act)
}

// askAgain repeats the request if the safety kernel permits it, unless the node was asked for long enough.
func (in Input) askAgain(act Act) Step {
	step, holds := in.gate()

	switch consulted := in.Pass.Unrecorded || in.Pass.Held != ""; {
	case holds && !consulted:
		return step // consult it first: what follows depends on whether there is a record
	case in.Pass.Unrecorded && in.waited() <= in.Options.HealthTimeout:
		return in.hold(lostRecord) // it may still reboot
	case !in.Pass.Unrecorded && in.inVain():
		return in.failAsked()
	case holds:
		return step
	}

	step = in.do(act)
	step.Again = RepeatReboot

	return step
}

// outsideWindow ends a request that the node has not followed when the maintenance window has closed: it is not
// repeated. A request that was sent may still have its effect, so the record of the disruption stays for a while.
func (in Input) outsideWindow() Step {
	switch {
	case in.inVain():
		return in.failAsked()
	case in.waited() <= in.Options.HealthTimeout:
		return in.hold("the reboot was recorded and has not begun; it is not requested again, because no maintenance " +
			"window is open")
	}

	return in.giveBack("waiting for a time in which reboots are allowed")
}

// waited returns for how long the node has been expected to reboot: since this process asked it first, or since the
// reboot was recorded if it has not asked.
func (in Input) waited() time.Duration {
	if !in.Asked.IsZero() {
		return in.Now.Sub(in.Asked)
	}

	return in.Now.Sub(in.Record.Intent.Since.Time)
}

// inVain reports whether the node was asked to reboot, and had its time to do so. A request that is on record only, by
// an operator that was away since, may never have been sent.
func (in Input) inVain() bool { return !in.Asked.IsZero() && in.waited() >= in.Options.HealthTimeout }

func (in Input) failAsked() Step {
	return in.fail(fmt.Sprintf("%s was asked to reboot for the change of %s and has not done so for %s", in.Name,
		FieldNames(in.Record.Change), in.Options.HealthTimeout))
}

// goesDown reports whether a node that was asked to reboot, and has not, has begun to go down. One that does not become
// healthy may boot for ever, and is rolled back all the same.
func (in Input) goesDown() bool {
	return in.Stage != StageRunning && (in.Stage != StageBooting || !in.reverts())
}

// hangs tells of a node that has begun to go down and does not. The change does not end, and with it the record of the
// disruption: the node may still go down at any moment, so no other one may be disrupted.
func (in Input) hangs(after time.Duration) Step {
	return in.hold(fmt.Sprintf("%s is %s and has not rebooted for %s; check its console, or power it off and on", in.Name,
		in.Stage, after))
}
