package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Outcome is what a comparison means for the recorded change.
type Outcome string

// Outcomes of a comparison.
const (
	// Unfinished: the node is between two configurations. The step that has begun is finished first, and the machine does
	// not count as compared.
	Unfinished Outcome = "Unfinished"
	// Kept: the record is as it should be.
	Kept Outcome = "Kept"
	// Forgone: the only difference is what was changed outside of the operator, and is only reported. A change whose
	// purpose that was is dropped.
	Forgone Outcome = "Forgone"
	// TakenOver: as Forgone, and what was changed becomes part of the desired configuration.
	TakenOver Outcome = "TakenOver"
	// Described: a new change replaces the recorded one, which may have been staged.
	Described Outcome = "Described"
	// FellBack: the machine no longer runs the system with which its last upgrade was complete. Kind Talos only.
	FellBack Outcome = "FellBack"
)

// Arrived returns the record of a node whose live configuration is known. A config of the change that is live was
// sent by the operator, even if the spec has changed since then: it was staged, whatever has booted the node, or the
// operator has not noted that it was applied. It is no edit.
func Arrived(r Record, live string) Record {
	if r.Change != nil && live == r.Change.Target &&
		(r.Change.Staged && !r.intends(v1alpha1.StepReboot) || r.intends(v1alpha1.StepApply)) {
		r.Sent = live
	}

	return r
}

// Compare decides what a comparison means for the recorded change, and returns the record that goes with it.
func Compare(in Input) (Outcome, Record) {
	in.Record = in.Record.copy()
	r := &in.Record

	// A step that has begun is finished first: the node is between two configurations.
	if !in.Equal && (r.intends(v1alpha1.StepTry) || r.intends(v1alpha1.StepReboot)) {
		return Unfinished, *r
	}

	again := in.beginsAgain()

	switch {
	case in.Equal:
		// What is on trial is not applied yet: the node may roll it back, and that would then count as an edit by hand.
		if !in.Importing && !r.intends(v1alpha1.StepTry) {
			r.Sent = in.Live
		}

		return Kept, *r
	case len(in.Edited) == 0 || in.Want != r.Sent: // the spec demands something new
	case in.Options.Drift == v1alpha1.DriftReport:
		return Forgone, *r
	case in.Options.Drift == v1alpha1.DriftAdopt:
		return TakenOver, *r
	}

	if again || !in.describes() {
		return Described, *r
	}

	r.Change.Drain = r.Change.Drain || in.drains(r.Change.Reboot) // reboots may be allowed in the meantime

	return Kept, *r
}

// IsUpgrade reports whether a change is one of the operating system.
func IsUpgrade(c *v1alpha1.MachineChange) bool { return c != nil && c.Kind == v1alpha1.ChangeTalos }

// MustFinish reports whether an upgrade has to end before the configuration changes: while it is in progress, and while
// its image may be the next to boot. One that has failed otherwise does not keep a correction from the machine. live is
// the hash of the system that runs, empty if it is not known.
func MustFinish(c *v1alpha1.MachineChange, live string) bool {
	if !IsUpgrade(c) {
		return false
	}

	switch c.Phase {
	case v1alpha1.ChangeDraining, v1alpha1.ChangeApplying, v1alpha1.ChangeRebooting, v1alpha1.ChangeSettling:
		return true
	case v1alpha1.ChangePending, v1alpha1.ChangeAwaitingReboot, v1alpha1.ChangeFailed:
	}

	return c.Staged && live != c.Target
}

// beginsAgain restarts a failed change at the request of a user: a change that is live gets a new health timeout. It
// reports whether the change has to be described again.
func (in *Input) beginsAgain() bool {
	c := in.Record.Change
	if !in.Retry || c == nil || c.Phase != v1alpha1.ChangeFailed {
		return false
	}

	if in.Equal && in.Live == c.Target {
		in.found()
		in.phase(v1alpha1.ChangeSettling, "")
	}

	return !in.Equal
}

// describes reports whether the recorded change is the one that the difference needs. While it has not begun, it has to
// start from the live configuration: another value in a field that was edited before is another edit, which was not
// approved to be undone.
func (in Input) describes() bool {
	c := in.Record.Change
	if c == nil || c.Target != in.Want {
		return false
	}

	if in.Record.Between() {
		return true
	}

	same := c.Base == in.Live || c.Phase == v1alpha1.ChangeFailed || c.Phase == v1alpha1.ChangeSettling

	return same && slices.Equal(c.Undoes, in.Edited)
}

// drains reports whether pods are evicted before the operator reboots the node.
func (in Input) drains(reboot bool) bool { return reboot && (in.Reverting || in.Options.Drains) }

// Effect is what a change would do to the node, as its dry run and the difference say.
type Effect struct {
	// Kind of the change; empty for one of the configuration.
	Kind v1alpha1.ChangeKind
	// Reboot: the node reports that the change needs a reboot.
	Reboot bool
	// Image that the node pulls first; empty if it needs none.
	Image string
	// Cuts: the change could cut the node off from the network.
	Cuts bool
	// Etcd: the change restarts etcd.
	Etcd bool
	// Fields that change, and the number of those that the list omits.
	Fields     []v1alpha1.FieldChange
	MoreFields int32
}

// Describe returns the record of a new change.
func Describe(in Input, e Effect) Record {
	c := &v1alpha1.MachineChange{
		Kind: e.Kind, Image: e.Image, Target: in.Want, Base: in.Live, Cause: in.cause(), Undoes: in.Edited,
		Phase: v1alpha1.ChangePending, Since: stamp(in.Now), Reboot: e.Reboot, Drain: in.drains(e.Reboot), Fields: e.Fields,
		MoreFields: e.MoreFields,
	}
	// Reverting to the last working configuration must not be refused because it needs a reboot.
	c.Try = e.Cuts && (!e.Reboot || c.Cause == v1alpha1.CauseSpec)
	// A node that is cut off from the operator is cut off from the other members as well.
	c.Etcd = in.ControlPlane && (e.Reboot || c.Try || e.Etcd)
	c.ID = in.id(c)

	in.Record.Change, in.Record.Intent = c, nil

	return in.Record
}

func (in Input) cause() v1alpha1.ChangeCause {
	switch {
	case in.Reverting:
		return v1alpha1.CauseRevert
	case len(in.Edited) > 0 && in.Want == in.Record.Sent:
		return v1alpha1.CauseDrift
	}

	return v1alpha1.CauseSpec
}

// Names lists changed fields for a sentence: a document that is added or removed as a whole counts once.
func Names(fields []v1alpha1.FieldChange) []string {
	out := make([]string, 0, len(fields))

	for _, f := range fields {
		if document, _, inside := strings.Cut(f.Field, ": "); !inside || !slices.Contains(out, document) {
			out = append(out, f.Field)
		}
	}

	return out
}

// FieldNames lists the fields of a change for a sentence.
func FieldNames(c *v1alpha1.MachineChange) string { return List(Names(c.Fields)) }

// After appends a text to a sentence; nothing where there is none.
func After(separator, text string) string {
	if text == "" {
		return ""
	}

	return separator + text
}

// List lists the first few of some names for a sentence.
func List(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
