package change

import (
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TrialPause is the time at the beginning of a trial in which the node proves nothing: its network configuration takes
// effect a moment later than the configuration itself.
func TrialPause(timeout time.Duration) time.Duration { return min(SettleTime, timeout/2) }

// Checked reports whether an observation at the given time shows that the operator reached the node during the trial
// that is in progress. If the node rolls the change back afterwards, the change has cut it off; a trial that ends
// without such an observation is no evidence against the change.
func Checked(i *v1alpha1.MachineIntent, timeout time.Duration, now time.Time) bool {
	if i == nil || i.Step != v1alpha1.StepTry {
		return false
	}

	since := now.Sub(i.Since.Time)

	return i.Checked || since >= TrialPause(timeout) && since < timeout
}

// tryOut sends a configuration that could cut the node off: the node rolls it back unless it is confirmed. attempt
// counts the repetitions.
func (in Input) tryOut(attempt int32) Step {
	if step, holds := in.gate(); holds {
		return step
	}

	in.phase(v1alpha1.ChangeApplying, "the change is on trial")
	in.intend(v1alpha1.StepTry, "", attempt)

	step := in.do(Try)
	step.Again = Poll

	return step
}

// onTrial confirms a configuration on trial once the node has responded over a new connection: established connections
// prove nothing.
func (in Input) onTrial() Step {
	c, i := in.Record.Change, in.Record.Intent

	if c == nil {
		in.Record.Intent = nil

		return in.again(Poll)
	}

	timeout, since := in.Options.TryTimeout, in.Now.Sub(i.Since.Time)
	live, wanted, over := in.Live == c.Target, in.Want == c.Target, since > timeout+trySlack

	switch {
	case live && wanted && since >= TrialPause(timeout):
		return in.confirm()
	case live && over:
		// The change was confirmed, or the node kept it, and the spec has changed in the meantime.
		in.Record.Sent, in.Record.Intent = in.Live, nil
	case !live && !wanted:
		// The node rolled the change back, or never received it, and it is no longer desired.
		in.Record.Intent = nil
	case !live && over:
		return in.afterTrial()
	case !live && since < timeout/2:
		// The trial was recorded but not sent. If it was sent, the node may have rolled it back by now, and one trial is
		// enough.
		return in.tryOut(i.Attempt)
	}

	return in.again(Poll)
}

// confirm keeps a configuration that is on trial, if the node still responds.
func (in Input) confirm() Step {
	if !in.Pass.Proven {
		return in.do(Prove)
	}

	step := in.do(Apply)
	step.After, step.Again = in.settling(in.Record.Change.Target), Poll
	step.Event = &Event{
		Reason: v1alpha1.ReasonRollingOut, Action: "Confirm",
		Message: "Changed " + FieldNames(in.Record.Change) + "; the node is still reachable",
	}

	return step
}

// afterTrial ends a change that the node has rolled back, or repeats the trial if the operator did not check the node
// during it.
func (in Input) afterTrial() Step {
	i, fields := in.Record.Intent, FieldNames(in.Record.Change)

	switch {
	case i.Checked:
		return in.fail(fmt.Sprintf("%s rolled the change of %s back: it was unreachable over a new connection while the "+
			"change was on trial", in.Name, fields))
	case i.Attempt >= MaxRepeats:
		return in.fail(fmt.Sprintf("%s rolled the change of %s back %d times before the operator had checked it: set a "+
			"longer rollout.tryTimeout than %s, and retry", in.Name, fields, i.Attempt+1, in.Options.TryTimeout))
	}

	return in.tryOut(i.Attempt + 1)
}
