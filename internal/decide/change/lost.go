package change

import (
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Silent decides about the change of a node that cannot be asked, because it is unreachable or has lost its
// configuration. silence is for how long it has been unreachable, zero if it is not. A machine that was allowed to
// begin and has not done so returns the grant, so that it does not block others.
func Silent(in Input, unreachable bool, silence time.Duration) (Step, bool) {
	in.Record = in.Record.copy()
	c, timeout := in.Record.Change, in.Options.HealthTimeout

	switch {
	case c == nil || c.Phase == v1alpha1.ChangeFailed:
	case c.Phase == v1alpha1.ChangePending, c.Phase == v1alpha1.ChangeAwaitingReboot:
		if in.granted() && silence >= timeout {
			in.Record.Intent = nil // a pull begins anew
			in.newID()

			return in.again(0), true
		}
	case c.Kind == v1alpha1.ChangeTalos && c.Phase == v1alpha1.ChangeApplying && unreachable:
		// An installer may take longer than that, too.
		if silence >= timeout {
			return in.lose(fmt.Sprintf("%s has been unreachable for %s while %s was installed on it; check its console, or "+
				"replace it", in.Name, timeout, c.Image)), true
		}
	case c.Phase == v1alpha1.ChangeDraining && unreachable:
		// Nothing was sent yet, and a drain may take hours: only the silence counts. A node that has lost its configuration
		// does not come back.
		if silence >= timeout {
			return in.lose(fmt.Sprintf("%s has been unreachable for %s while it was drained for the change of %s; check its "+
				"console, or replace it", in.Name, timeout, FieldNames(c))), true
		}
	case in.Now.Sub(c.Since.Time) >= timeout+in.installs():
		c.Booted = false // it gets its time to become healthy once it is back

		return in.lose(fmt.Sprintf("%s has not come back for %s since the change of %s began to take effect; check its "+
			"console, or replace it", in.Name, timeout, FieldNames(c))), true
	}

	return Step{}, false
}

// lose ends a change whose machine is abandoned. What it was doing is recorded: the machine may come back at any time.
// A drain has no intent, and what an earlier window has installed may boot after it.
func (in Input) lose(message string) Step {
	c := in.Record.Change
	c.LostPhase, c.LostBootID = string(c.Phase), in.BootID

	if i := in.Record.Intent; i != nil {
		c.LostBootID = i.BootID
	}

	return in.fail(message)
}

// found notes that a machine that was abandoned has come back.
func (in Input) found() { in.Record.Change.LostPhase, in.Record.Change.LostBootID = "", "" }

// isLost reports whether the machine of a failed change was abandoned, and nothing has been done about that since.
func (in Input) isLost() bool {
	c := in.Record.Change

	return c != nil && c.Phase == v1alpha1.ChangeFailed && c.LostPhase != ""
}

// cameBack makes a machine schedulable again that was abandoned and is healthy with something else than what its change
// brings. Nothing else would: the change has failed, and is not tried again by itself.
func (in Input) cameBack() Step {
	switch {
	case !in.well():
		return in.rest() // its pods would only be evicted again
	case !in.Pass.Uncordoned:
		return in.do(Uncordon)
	}

	message := in.returned()

	if in.bootsWhatRuns() {
		in.Record.Change.Staged = false
	}

	in.found() // so that this is told once

	step := in.fail(message)
	step.Again = Poll

	return step
}

// bootsWhatRuns reports whether a machine that was abandoned has rebooted since and runs something else than what the
// change brings, so that this is not what boots next. One that was drained, and on which nothing was installed, had
// nothing else to boot.
func (in Input) bootsWhatRuns() bool {
	c := in.Record.Change

	if c.Kind != v1alpha1.ChangeTalos || in.requested() || c.LostPhase == string(v1alpha1.ChangeDraining) && !c.Staged {
		return false
	}

	return c.LostPhase == string(v1alpha1.ChangeSettling) || c.LostBootID != "" && c.LostBootID != in.BootID
}

// returned says how a machine that was abandoned has come back.
func (in Input) returned() string {
	c := in.Record.Change
	again := "; it is not tried again unless you annotate the machine with " + v1alpha1.RetryAnnotation

	switch {
	case c.Kind == v1alpha1.ChangeTalos:
	case in.MayBeStaged():
		return fmt.Sprintf("%s did not respond during the change of %s; it responds again and has not rebooted: it is "+
			"schedulable, and the change takes effect at its next reboot%s", in.Name, FieldNames(c), again)
	default:
		return fmt.Sprintf("%s did not respond during the change of %s; it responds again, without that change, and is "+
			"schedulable%s", in.Name, FieldNames(c), again)
	}

	act, fell := "upgrade", "it fell back to what it ran before, or another image was installed outside the operator"
	if in.reverts() {
		act, fell = "rollback", "what it ran before does not boot, is no longer installed, or the requests did not reach "+
			"the node"
	}

	switch {
	case in.bootsWhatRuns():
		return fmt.Sprintf("%s did not respond after the %s to %s; it responds again and does not run that: %s; it is "+
			"schedulable%s", in.Name, act, c.Image, fell, again)
	case c.Staged:
		return fmt.Sprintf("%s did not respond during the %s to %s; it responds again and has not rebooted: it is "+
			"schedulable, and may boot that image next%s", in.Name, act, c.Image, again)
	case in.reverts():
		return fmt.Sprintf("%s did not respond during the rollback to %s; it responds again, still runs what it was to be "+
			"rolled back from, and is schedulable%s", in.Name, c.Image, again)
	}

	return fmt.Sprintf("%s did not respond during the upgrade to %s; it responds again, runs what it ran before, and is "+
		"schedulable%s", in.Name, c.Image, again)
}
