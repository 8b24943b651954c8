package change

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Next decides the next step of the change of a machine that was compared in this reconciliation.
func Next(in Input) Step {
	in.Record = in.Record.copy()
	c := in.Record.Change

	switch {
	case in.Record.intends(v1alpha1.StepTry):
		return in.onTrial()
	case in.Record.intends(v1alpha1.StepReboot):
		return in.rebooting()
	case in.Equal:
		return in.settle()
	case c == nil || c.Phase == v1alpha1.ChangeFailed || !in.granted():
		return in.idle()
	case c.Reboot && c.Try:
		// A node cannot roll back by itself what takes effect with a reboot.
		return in.fail(fmt.Sprintf("%s would take effect with the reboot that other fields of the change need, and could "+
			"not be tried: it might cut %s off for good; change it alone first, and the rest once that is done", in.Cuts,
			in.Name))
	case c.Reboot && !in.Grant.Reboot:
		return in.leaveStaged()
	case c.Reboot:
		return in.withReboot()
	case c.Try:
		return in.tryOut(0)
	case c.Kind == v1alpha1.ChangeKubernetes && !in.Record.intends(v1alpha1.StepApply): // otherwise it may have been sent
		return in.replaceComponent()
	}

	return in.applyNow()
}

// replaceComponent brings another version of a component of Kubernetes to the node.
func (in Input) replaceComponent() Step {
	switch {
	case !in.Pass.Pulled:
		return in.pullFirst()
	case in.Options.Closed:
		// The pull may have taken longer than the window. The image stays on the node for the next one.
		return in.giveBack(in.Record.Change.Image + " is on the node and not used yet: waiting for the next maintenance " +
			"window")
	}

	return in.applyNow()
}

// pullFirst has the node fetch an image before anything that runs is replaced by it: one that cannot be had
// causes no disturbance.
func (in Input) pullFirst() Step {
	c := in.Record.Change

	switch {
	case in.Pass.Failed != "":
		return in.fail(in.Pass.Failed)
	case !in.Record.intends(v1alpha1.StepPull): // otherwise the message is why it has not been pulled yet
		c.Message = "pulling " + c.Image
	}

	in.intend(v1alpha1.StepPull, "", 0)

	return in.holdOr(Pull)
}

// granted reports whether the change, which there is, may begin.
func (in Input) granted() bool {
	return in.Grant != nil && in.Grant.ID == in.Record.Change.ID
}

// well reports whether the node has booted and has no unmet conditions.
func (in Input) well() bool { return in.Stage == StageRunning && in.Ready && in.Lags == "" }

// unwell says why the node is not healthy.
func (in Input) unwell() string {
	if in.Stage != StageRunning {
		return "it is " + in.Stage
	}

	if !in.Ready {
		return "it waits for " + in.Unmet
	}

	return "it waits for " + in.Lags
}

// do returns a step with the record as it is now.
func (in Input) do(act Act) Step { return Step{Before: in.Record, Act: act} }

// again returns a step without an act, after which the node is observed again.
func (in Input) again(after time.Duration) Step { return Step{Before: in.Record, Again: after} }

// idle keeps what has failed or may not begin, unless its machine was abandoned and has come back.
func (in Input) idle() Step {
	if in.isLost() {
		return in.cameBack()
	}

	return in.rest()
}

func (in Input) rest() Step { return Step{Before: in.Record, Rest: in.mayRest()} }

// mayRest reports whether nothing has to be done until something changes.
func (in Input) mayRest() bool {
	c := in.Record.Change

	return in.Record.Intent == nil && (c == nil || c.Phase == v1alpha1.ChangePending && !in.granted() ||
		c.Phase == v1alpha1.ChangeAwaitingReboot)
}

// phase sets the phase of the change. What an installer has printed belongs to the phase in which it ran.
func (in *Input) phase(phase v1alpha1.ChangePhase, message string) {
	c := in.Record.Change
	if c.Phase != phase {
		c.Phase, c.Since, c.Progress = phase, stamp(in.Now), ""
	}

	c.Message = message
}

// intend sets the step in progress. A step that is already in progress keeps its beginning.
func (in *Input) intend(step, boot string, attempt int32) {
	if i := in.Record.Intent; i != nil && i.Step == step && i.Attempt == attempt {
		return
	}

	in.Record.Intent = &v1alpha1.MachineIntent{Step: step, BootID: boot, Attempt: attempt, Since: stamp(in.Now)}
}

func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// fail ends a change that the node rejected, or with which it did not become healthy.
func (in Input) fail(message string) Step {
	in.Record.Intent = nil
	in.phase(v1alpha1.ChangeFailed, message)

	return Step{
		Before: in.Record,
		Event:  &Event{Warning: true, Reason: v1alpha1.ReasonChangeFailed, Action: "Change", Message: message},
	}
}

// Refuse ends a change whose configuration the node rejected: only another configuration helps.
func Refuse(in Input, message string) Step {
	in.Record = in.Record.copy()
	if in.Record.Change == nil {
		return in.again(0)
	}

	return in.fail(message)
}

// hold records what the change waits for.
func (in Input) hold(message string) Step {
	in.Record.Change.Message = message

	return in.again(PollGate)
}

// holdOr performs an act, unless it was performed in this reconciliation and has to wait.
func (in Input) holdOr(act Act) Step {
	if in.Pass.Held != "" {
		return in.hold(in.Pass.Held)
	}

	return in.do(act)
}

// gate blocks a disruption of a control-plane node until the safety kernel permits it. If the control plane has lost
// the record of the disruption, for example because a restore has replaced its state, it would not be made again for a
// change that has begun: the grant is returned.
func (in Input) gate() (Step, bool) {
	switch {
	case !in.Record.Change.Etcd || in.Pass.Permitted:
		return Step{}, false
	case in.Pass.Unrecorded:
		return in.giveBack(lostRecord), true
	}

	return in.holdOr(Permit), true
}

// giveBack returns a grant that cannot be used. The change waits for another one.
func (in Input) giveBack(message string) Step {
	c := in.Record.Change
	if MayBeDrained(c) && !in.Pass.Uncordoned {
		return in.do(Uncordon)
	}

	phase := v1alpha1.ChangePending
	if c.Staged || c.Phase == v1alpha1.ChangeAwaitingReboot {
		phase = v1alpha1.ChangeAwaitingReboot
	}

	in.Record.Intent = nil
	in.phase(phase, message)
	in.newID()

	return in.again(PollGate)
}

// GiveBack returns the grant of a change that cannot go on for a reason outside of it. The caller has made the node
// schedulable again, and says so in Pass.
func GiveBack(in Input, message string) Step {
	in.Record = in.Record.copy()

	return in.giveBack(message)
}

// newID revokes a grant: a grant applies to one ID, and it created a new generation of the machine.
func (in *Input) newID() { in.Record.Change.ID = in.id(in.Record.Change) }

// id derives an ID from the difference, from its effect on the node, and from the generations in which it was found, so
// that a reconciliation with a stale cache finds the same ID. It differs from the ID of an earlier change with the same
// target: allowing that change to begin created a new generation of the machine.
func (in Input) id(c *v1alpha1.MachineChange) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %t %t %t%s", c.Base, c.Target, in.Key, c.Reboot, c.Try, c.Etcd,
		c.Image))

	return hex.EncodeToString(sum[:])[:16]
}

const lostRecord = "waiting for the control plane, which has no record of this change, to permit it again"

// applyNow sends a configuration that takes effect immediately.
func (in Input) applyNow() Step {
	if step, holds := in.gate(); holds {
		return step
	}

	in.phase(v1alpha1.ChangeApplying, "")
	in.intend(v1alpha1.StepApply, "", 0)

	step := in.do(Apply)
	step.After, step.Again = in.settling(in.Want), Poll
	step.Event = &Event{Reason: v1alpha1.ReasonRollingOut, Action: "Apply", Message: "Changed " + in.Fields}

	return step
}

// settling returns the record of a node that runs a configuration and has to prove itself with it.
func (in Input) settling(config string) *Record {
	in.Record = in.Record.copy()
	in.Record.Sent, in.Record.Intent = config, nil
	in.phase(v1alpha1.ChangeSettling, "")

	return &in.Record
}

// drain sets the phase of a change whose node is drained. The message is why that takes long, so what an earlier phase
// said is dropped.
func (in *Input) drain() {
	message := ""
	if c := in.Record.Change; c.Phase == v1alpha1.ChangeDraining {
		message = c.Message
	}

	in.phase(v1alpha1.ChangeDraining, message)
}
