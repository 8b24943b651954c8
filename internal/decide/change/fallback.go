package change

import (
	"fmt"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// DescribeFallback returns the record of a machine that no longer runs what it was upgraded to, and the event about
// that: a change that has failed. To begin it by itself would reboot the machine after each cold boot, if those boot
// what it ran before.
func DescribeFallback(in Input, image, oldImage string, fields []v1alpha1.FieldChange) (Record, *Event) {
	in.Record = DescribeTalos(in, image, oldImage, fields)

	step := in.fail(fmt.Sprintf("%s was upgraded to %s, was healthy with it, and does not run it any more: it fell back "+
		"to what it ran before, as a cold boot may do, or was rolled back outside the operator; it is not upgraded to the "+
		"same again unless you annotate the machine with %s", in.Name, image, v1alpha1.RetryAnnotation))

	return step.Before, step.Event
}

// fellBackFrom reports whether what is to be installed is what the machine ran when its last upgrade was complete: it
// no longer runs that, and no user has asked for it again.
func (in Input) fellBackFrom() bool { return in.Worked == in.Want && !in.Reverting && !in.Retry }

// fellInto reports whether a machine has fallen back to what a change was to bring that is no longer desired, and that
// has sent nothing yet: it has not proved that system, and what it fell back from must not be installed again.
func (in Input) fellInto() bool {
	c := in.Record.Change

	return c.Phase == v1alpha1.ChangeDraining && !c.Staged && !in.reverts() && in.Want != c.Target && in.fellBackFrom()
}

// rebootingTalos waits for a new boot ID. A node that comes back with what it ran before has rolled back by itself: its
// boot loader or Talos found that the new system does not work. Installing it again would only reboot it again.
func (in Input) rebootingTalos() Step {
	c, i := in.Record.Change, in.Record.Intent

	switch {
	case in.Pass.Failed != "":
		c.RollbackBoot = "" // the node has refused, so nothing else boots next

		return in.failTalos(in.Pass.Failed)
	case in.BootID == i.BootID && in.Legacy && !in.reverts():
		return in.upgradeAgain()
	case in.BootID == i.BootID:
		return in.rebootAgain(Reboot)
	case in.Live == c.Target:
		in.Record.Intent, c.Booted = nil, true
		in.phase(v1alpha1.ChangeSettling, "")

		return in.again(Poll)
	case in.reverts() && in.Live == c.Base && i.Attempt == 0:
		return in.rollBackAgain()
	}

	if !in.well() && in.Now.Sub(i.Since.Time) < in.Options.HealthTimeout {
		return in.hold("it has rebooted and does not run " + c.Image + "; " + in.unwell())
	}

	why := "it rolled back by itself, or another image was installed outside the operator"

	switch {
	case in.reverts():
		why = "what it ran before does not boot, is no longer installed, or the requests did not reach the node"
	case in.Live != c.Base: // the schematic is one of the extensions that a node shows
		why = "it does not run what it ran before either: another image was installed outside the operator, or its system " +
			"extensions are not there"
	}

	return in.failTalos(fmt.Sprintf("%s has rebooted and does not run %s: %s; it is not tried again unless you annotate "+
		"the machine with %s", in.Name, c.Image, why, v1alpha1.RetryAnnotation))
}

// fellBack ends a change whose image the node ran, and does not run any more. Talos takes a new system back until it is
// healthy for the first time, so the API of a node may respond with it before the node falls back. To install it again
// would reboot the node for ever. The same holds for what a node was rolled back to.
func (in Input) fellBack() Step {
	c := in.Record.Change
	waits := c.Phase != v1alpha1.ChangeFailed && in.Now.Sub(c.Since.Time) < in.Options.HealthTimeout

	switch {
	case waits && !in.well():
		return in.hold("it ran " + c.Image + " and has fallen back; " + in.unwell())
	case MayBeDrained(c) && !in.Pass.Uncordoned:
		return in.do(Uncordon)
	}

	c.Booted = false // so that this is told once

	return in.failTalos(fmt.Sprintf("%s booted %s and then another system: it rolled back by itself, or another image "+
		"was installed outside the operator; it is not tried again unless you annotate the machine with %s", in.Name,
		c.Image, v1alpha1.RetryAnnotation))
}
