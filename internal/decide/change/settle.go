package change

import (
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// settle ends a change once the node is healthy with the live configuration, and records that configuration as working.
func (in Input) settle() Step {
	c := in.Record.Change

	switch {
	case c == nil:
		return in.settleUnchanged()
	case in.isMoot():
		return in.withdraw()
	}

	if in.Live == c.Target || in.Want == c.Target {
		in.found()
	}

	in.Record.Intent = nil
	if c.Phase != v1alpha1.ChangeFailed {
		in.phase(v1alpha1.ChangeSettling, "")
	}

	took := in.Now.Sub(c.Since.Time)

	switch {
	case !in.well():
		return in.sick(took)
	case c.Reboot || c.Kind == v1alpha1.ChangeKubernetes || took >= SettleTime: // Lags has proved it
		return in.complete()
	}

	return in.again(Poll)
}

// sick has a change fail if its node has not been healthy for too long.
func (in Input) sick(took time.Duration) Step {
	c := in.Record.Change

	switch {
	case c.Phase == v1alpha1.ChangeFailed:
		return in.again(PollFailed)
	case took >= in.Options.HealthTimeout:
		return in.fail(fmt.Sprintf("%s has not been healthy for %s since the change of %s: %s; %s", in.Name,
			in.Options.HealthTimeout, FieldNames(c), in.unwell(), remedy(c)))
	}

	in.phase(v1alpha1.ChangeSettling, in.unwell())

	return in.again(Poll)
}

// remedy says what to do about a change with which a node does not become healthy.
func remedy(c *v1alpha1.MachineChange) string {
	if c.Kind == v1alpha1.ChangeKubernetes {
		return kubernetesRemedy(c.Fields)
	}

	return fmt.Sprintf("correct the spec, or roll the machine back to the last working config with the annotation %s=%s",
		v1alpha1.RevertAnnotation, c.Target)
}

// kubernetesRemedy names the version that an upgrade came from: over several minors, no older one is a way back.
// Kubelets come last, when there is none any more.
func kubernetesRemedy(fields []v1alpha1.FieldChange) string {
	switch {
	case len(fields) > 0 && fields[0].Field == "machine.kubelet.image":
		return "check the kubelet of the node, or replace the machine: kubelets have no way back"
	case len(fields) > 0 && fields[0].Old != "":
		return "check the pods of the node, or set kubernetesVersion to the version of " + fields[0].Old
	}

	return "check the pods of the node, or set kubernetesVersion to the version of before"
}

// isMoot reports whether the change is no longer desired and has not taken effect. A change that has taken effect has
// to prove itself, even if further changes follow.
func (in Input) isMoot() bool {
	c := in.Record.Change
	if in.Live == c.Target || in.Want == c.Target {
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
func (in Input) withdraw() Step {
	switch {
	case in.MayBeStaged() && !in.Pass.Sent:
		return in.do(Apply)
	case !in.Pass.Uncordoned:
		return in.do(Uncordon)
	}

	in.Record.Change, in.Record.Intent = nil, nil

	return in.again(Poll)
}

// MayBeStaged reports whether the configuration of the change may be on the disk of the node without being live. It
// would take effect at the next reboot, whatever causes it.
func (in Input) MayBeStaged() bool {
	c := in.Record.Change

	// A change that a version without the field has staged does not say so.
	return c != nil && (c.Staged || c.Phase == v1alpha1.ChangeAwaitingReboot) && in.Live != c.Target
}

// MayBeDrained reports whether the node may have been made unschedulable for a change.
func MayBeDrained(c *v1alpha1.MachineChange) bool {
	return c != nil && c.Phase != v1alpha1.ChangePending && c.Phase != v1alpha1.ChangeAwaitingReboot
}

// complete makes the node schedulable again and drops the change.
func (in Input) complete() Step {
	switch {
	case in.MayBeStaged() && !in.Pass.Sent:
		return in.do(Apply)
	case !in.Pass.Uncordoned:
		return in.do(Uncordon)
	case !in.Pass.Remembered:
		return in.do(Remember)
	}

	return in.completed("Runs the desired config and is healthy")
}

// completed drops a change that has succeeded.
func (in Input) completed(message string) Step {
	in.Record.Change = nil

	step := in.again(Poll)
	step.Completed = true
	step.Event = &Event{Reason: v1alpha1.ReasonUpToDate, Action: "Complete", Message: message}

	return step
}

// settleUnchanged records the configuration of a node that needs no change as working.
func (in Input) settleUnchanged() Step {
	if in.Record.intends(v1alpha1.StepDrain) || in.Record.intends(v1alpha1.StepStage) ||
		in.Record.intends(v1alpha1.StepApply) || in.Record.intends(v1alpha1.StepPull) {
		in.Record.Intent = nil
	}

	switch {
	case !in.well():
		return Step{Before: in.Record} // a booting node is observed until it is running
	case !in.Pass.Remembered:
		return in.do(Remember)
	}

	return in.rest()
}

// installs returns how long an installer may take in the phase in which the node reboots: that of a legacy upgrade runs
// in it.
func (in Input) installs() time.Duration {
	if c := in.Record.Change; in.Legacy && c.Kind == v1alpha1.ChangeTalos && c.Phase == v1alpha1.ChangeRebooting {
		return LegacyTime
	}

	return 0
}
