package change

import (
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// DescribeTalos returns the record of a change of the operating system: from what runs to what is desired, with the
// installer images of both. Live and Want are hashes of those, not of configurations.
func DescribeTalos(in Input, image, oldImage string, fields []v1alpha1.FieldChange) Record {
	c := &v1alpha1.MachineChange{
		Kind: v1alpha1.ChangeTalos, Image: image, OldImage: oldImage, Target: in.Want, Base: in.Live,
		Cause: in.cause(), Phase: v1alpha1.ChangePending, Since: stamp(in.Now), Reboot: true, Drain: in.drains(true),
		Etcd: in.ControlPlane, Fields: fields,
	}

	// What another change has installed may still be the next to boot.
	if was := in.Record.Change; was != nil && was.Kind == v1alpha1.ChangeTalos {
		c.Staged, c.RollbackBoot = was.Staged && in.Live != was.Target, was.RollbackBoot
		if in.stillReplaces(was) {
			c.Replaces = was.Replaces
		}

		if c.Staged && c.Image == was.Image && c.Target == was.Target {
			c.InstalledBoot = was.InstalledBoot
		}
	}

	c.ID = in.id(c)
	in.Record.Change, in.Record.Intent = c, nil

	return in.Record
}

// CompareTalos decides what a comparison of operating systems means for the recorded change: Kept, Described, FellBack
// or Forgone. A change that has begun is ended by NextTalos. One that has failed stays until a user asks for a retry,
// or until something else is desired, or another image of the same: what is done again by itself would reboot a machine
// for ever.
func CompareTalos(in Input, image string) (Outcome, Record) {
	in.Record = in.Record.copy()

	switch c := in.Record.Change; {
	case c == nil && in.Equal:
	case c == nil && in.fellBackFrom():
		return FellBack, in.Record
	case c == nil:
		return Described, in.Record
	case c.Kind != v1alpha1.ChangeTalos: // the configuration first
	case c.Phase == v1alpha1.ChangePending:
		return in.comparePending(image), in.Record
	case c.Phase == v1alpha1.ChangeFailed:
		return in.compareFailed(image), in.Record
	}

	return Kept, in.Record
}

// comparePending compares to a change that has not begun, but for what an earlier one has installed.
func (in Input) comparePending(image string) Outcome {
	c := in.Record.Change

	switch {
	case in.Equal && c.Staged: // NextTalos takes it back
	case in.Equal && in.reverts(): // what it was to leave has not proved itself
		in.settleAgain()
	case in.Equal:
		return Forgone
	case c.Target != in.Want && in.fellBackFrom(): // while it was to be upgraded further
		return FellBack
	case c.Target != in.Want, c.Base != in.Live, c.Image != image:
		return Described
	}

	return Kept
}

func (in Input) compareFailed(image string) Outcome {
	c := in.Record.Change

	switch runs, wanted := in.Live == c.Target, in.Want == c.Target; {
	case runs && wanted && in.Retry:
		in.phase(v1alpha1.ChangeSettling, "")
	case runs && !wanted && !c.Booted && !c.Staged && !in.isLost() && in.fellBackFrom(): // not by the change that failed
		return FellBack
	case runs && !wanted, !runs && wanted && (in.Retry || c.Image != image):
		return Described
	}

	return Kept
}

// Begun reports whether a change has done more to its machine than to fetch an image.
func Begun(c *v1alpha1.MachineChange) bool {
	return c != nil && (c.Phase != v1alpha1.ChangePending || c.Staged)
}

// NextTalos decides the next step of a change of kind Talos. The record of the configuration is not touched.
//
// An installer makes its system the next to boot, whatever causes the boot. So a machine is drained and permitted
// before, and permitted again, with new evidence, before it reboots: an installer takes minutes. The image is pulled
// before any of that: an image that cannot be had disturbs nothing.
func NextTalos(in Input) Step {
	in.Record = in.Record.copy()
	c := in.Record.Change

	switch {
	case c == nil:
		return in.rest()
	case in.Record.intends(v1alpha1.StepReboot):
		return in.rebootingTalos()
	case in.Live == c.Target:
		return in.settleTalos()
	case in.Want != c.Target:
		return in.withdrawTalos()
	case c.Booted:
		return in.fellBack()
	case in.Pass.Failed != "":
		return in.failTalos(in.Pass.Failed)
	case c.Phase == v1alpha1.ChangeFailed || !in.granted() || !in.Grant.Reboot:
		return in.awaitGrant()
	case in.reverts():
		return in.rollBack()
	case !in.Options.Reboots && !in.installing():
		return in.giveBack("waiting for a time in which reboots are allowed")
	case !Begun(c) && !in.Pass.Pulled:
		return in.pullInstaller()
	}

	return in.install()
}

// pullInstaller has the node fetch the installer.
func (in Input) pullInstaller() Step {
	if c := in.Record.Change; !in.Record.intends(v1alpha1.StepPull) { // otherwise the message is why it is not pulled yet
		c.Message = "pulling " + c.Image
	}

	in.intend(v1alpha1.StepPull, "", 0)

	return in.holdOr(Pull)
}

// awaitGrant keeps a change of kind Talos that may not begin, or has failed.
func (in Input) awaitGrant() Step {
	switch c := in.Record.Change; {
	case c.Phase == v1alpha1.ChangeFailed:
		return in.idle()
	case c.Phase == v1alpha1.ChangePending:
		in.Record.Intent = nil // a grant that was taken back while the image was pulled
	case MayBeDrained(c) && !in.granted():
		// It was not desired for a while, and is being taken back: as one in progress it would hold up every other machine.
		return in.giveBack(lostRecord)
	}

	return in.rest()
}

// installing reports whether an installer has begun, which may end whatever comes. A legacy one reboots by itself.
func (in Input) installing() bool { return in.Record.intends(v1alpha1.StepInstall) && !in.Legacy }

// install drains the node, installs the image and reboots, if the safety kernel permits it.
func (in Input) install() Step {
	c, begun := in.Record.Change, in.installing()

	if c.Drain && !begun && !in.Pass.Drained {
		in.drain()

		return in.holdOr(Drain)
	}

	if in.Pass.Installed {
		c.InstalledBoot = in.BootID
	}

	// An installer that has begun is not interrupted; the reboot is permitted anew.
	if step, holds := in.gate(); holds && (!begun || in.installed()) {
		return step
	}

	if in.Legacy {
		in.replace()

		return in.bootInto(Upgrade, 0)
	}

	switch {
	case !in.installed() && in.Pass.Held != "":
		return in.hold(in.Pass.Held)
	case !in.installed():
		return in.runInstaller()
	case !in.Options.Reboots: // the window has closed meanwhile
		return in.giveBack(c.Image + " is installed and boots next: waiting for a time in which reboots are allowed")
	}

	return in.bootInto(Reboot, 0)
}

// installed reports whether the installer has ended in this boot, in which nothing else was installed since: its system
// boots next. An installer writes to the disk for minutes, so it does not run again in each window that is too short.
func (in Input) installed() bool {
	return in.Pass.Installed || in.BootID != "" && in.Record.Change.InstalledBoot == in.BootID
}

func (in Input) runInstaller() Step {
	c := in.Record.Change
	if !in.installing() {
		in.phase(v1alpha1.ChangeApplying, "installing "+c.Image)
	}

	in.intend(v1alpha1.StepInstall, in.BootID, 0)
	in.replace()
	c.Staged = true

	return in.do(Install)
}

// replace records what the installer is about to replace. Whether it does is known once the node has booted what it has
// installed: see Previous.
func (in Input) replace() {
	c := in.Record.Change
	c.Replaces = in.Runs.DeepCopy()
	c.Replaces.Image, c.Replaces.ReplacedBy = c.OldImage, c.Target
}

// stillReplaces reports whether a machine runs what an installer of a change may have replaced, which may boot at any
// time.
func (in Input) stillReplaces(c *v1alpha1.MachineChange) bool {
	was, runs := c.Replaces, in.Runs

	return was != nil && was.TalosVersion == runs.TalosVersion && was.Schematic == runs.Schematic
}

// Previous returns what a machine ran before what it runs now: what its change has replaced, once the machine has
// booted that, and otherwise what was recorded. An installer that fails, or whose system never boots, replaces nothing.
func Previous(c *v1alpha1.MachineChange, recorded *v1alpha1.PreviousSystem, live string) *v1alpha1.PreviousSystem {
	if c == nil || c.Replaces == nil || c.Replaces.ReplacedBy != live {
		return recorded
	}

	return c.Replaces.DeepCopy()
}

// bootInto has the node boot the image of the change. A legacy upgrade installs it first, and reboots whatever comes of
// that.
func (in Input) bootInto(act Act, attempt int32) Step {
	in.phase(v1alpha1.ChangeRebooting, "")
	in.intend(v1alpha1.StepReboot, in.BootID, attempt)

	step := in.do(act)
	step.Again = Poll
	step.Event = &Event{
		Reason: v1alpha1.ReasonRollingOut, Action: "Reboot", Message: "Rebooting into " + in.Record.Change.Image,
	}

	return step
}

// failTalos ends a change whose image does not run on this machine. What ran before does, so the node is schedulable
// again.
func (in Input) failTalos(message string) Step {
	if MayBeDrained(in.Record.Change) && in.Record.Change.Phase != v1alpha1.ChangeFailed && !in.Pass.Uncordoned {
		return in.do(Uncordon)
	}

	if !in.Pass.Unsure && !in.requested() {
		// The boot loader is as it was. What would have been replaced stays on record: a user may correct what has booted.
		in.Record.Change.Staged = false
	}

	step := in.fail(message)
	step.Again = Poll

	return step
}

// upgradeAgain repeats the call to a node that has not begun its legacy upgrade: it may have refused. One that has
// begun drains, installs and reboots by itself.
func (in Input) upgradeAgain() Step {
	c, waited, begun := in.Record.Change, in.waited(), in.Stage != StageRunning

	switch {
	case !begun && in.inVain():
		return in.failTalos(fmt.Sprintf("%s was asked to upgrade to %s and has not rebooted for %s: it is %s%s", in.Name,
			c.Image, waited.Truncate(time.Second), in.Stage, After(": ", c.Message)))
	case begun && waited >= in.Options.HealthTimeout+LegacyTime:
		return in.hangs(in.Options.HealthTimeout + LegacyTime)
	case begun:
		return in.hold("it is " + in.Stage)
	}

	return in.rebootAgain(Upgrade)
}

// settleTalos ends a change once the node is healthy with what it has booted.
func (in Input) settleTalos() Step {
	if in.fellInto() {
		return in.withdrawTalos()
	}

	c := in.Record.Change
	in.Record.Intent = nil

	in.found()

	// One that had failed because it did not come back in time has not had its time to become healthy yet.
	if c.Phase != v1alpha1.ChangeFailed || !c.Booted {
		in.phase(v1alpha1.ChangeSettling, "")
	}

	if !c.Booted {
		c.UnfitSince = nil // of an earlier boot
	}

	c.Booted = true
	in.noteUnfit()

	switch took := in.Now.Sub(c.Since.Time); {
	case in.well() && !in.Pass.Uncordoned:
		return in.do(Uncordon)
	case in.well():
		return in.completed("Runs " + c.Image + " and is healthy")
	case c.Phase == v1alpha1.ChangeFailed:
		return in.again(PollFailed)
	case took >= in.Options.HealthTimeout:
		remedy := "roll it back, or repair it"
		if in.reverts() {
			remedy = "repair it, or replace it"
		}

		return in.fail(fmt.Sprintf("%s has not been healthy for %s since it booted %s: %s; %s",
			in.Name, in.Options.HealthTimeout, c.Image, in.unwell(), remedy))
	default:
		in.phase(v1alpha1.ChangeSettling, in.unwell())
	}

	return in.again(Poll)
}

// withdrawTalos drops a change that is no longer desired. What was installed would boot at any moment, so what runs is
// installed again first.
func (in Input) withdrawTalos() Step {
	c := in.Record.Change

	switch {
	case c.Staged && in.Pass.Failed != "":
		in.Record.Change.Message = c.OldImage + " could not be installed again, and " + c.Image + " boots next: " +
			in.Pass.Failed

		return in.again(time.Minute)
	case c.Staged && in.Pass.Held != "":
		return in.hold(in.Pass.Held)
	case c.Staged && !in.Pass.Uninstalled:
		in.phase(v1alpha1.ChangeApplying, "installing "+c.OldImage+" again")
		in.intend(v1alpha1.StepInstall, in.BootID, 0)
		c.InstalledBoot = "" // desired again, it is installed again

		return in.do(Uninstall)
	case MayBeDrained(c) && !in.Pass.Uncordoned:
		return in.do(Uncordon)
	}

	in.Record.Intent = nil

	if in.reverts() {
		in.settleAgain()
	} else {
		in.Record.Change = nil
	}

	return in.again(Poll)
}
