// Package change decides how the change of one machine proceeds: what is drained, sent, tried, rebooted, and when it is
// complete. It is pure: what was observed and recorded in, one step out, without a client or a clock.
//
// A caller makes one step at a time: it records Step.Before, performs Step.Act, records Step.After, and asks for the
// next step, until a step has no act or ends the reconciliation. Every step may be repeated: after a crash at any line,
// Next resumes from what the node runs and from the record.
package change

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Intervals and timeouts of a change.
const (
	// Poll is how soon a node is observed again that was sent something.
	Poll = time.Second
	// PollGate is how soon a drain or the safety kernel is asked again.
	PollGate = 2 * time.Second
	// PollFailed is how soon a node is observed again that has failed to become healthy. What it reports itself is known
	// at once.
	PollFailed = 15 * time.Second
	// RepeatReboot is how soon the reboot of a node that still runs is requested again.
	RepeatReboot = 15 * time.Second
	// SettleTime is how long a node has to be healthy after a change without a reboot: restarting services still report
	// healthy for a moment.
	SettleTime = 5 * time.Second
	// LegacyTime is how long a legacy upgrade may take before the node reboots, beside the health timeout.
	LegacyTime = 30 * time.Minute
	// MaxRepeats is how often a trial that ended before the operator had checked the node is repeated.
	MaxRepeats = 2
	// trySlack is how long after its end a trial counts as undecided.
	trySlack = 5 * time.Second
)

// Stages of a node.
const (
	// StageRunning is the stage of a node that has booted.
	StageRunning = "running"
	// StageBooting is the stage of a node until each of its services runs once.
	StageBooting = "booting"
)

// Record is what is recorded about the change of a machine.
type Record struct {
	// Change that the machine needs; nil if it needs none.
	Change *v1alpha1.MachineChange
	// Intent is the step in progress; nil if none is.
	Intent *v1alpha1.MachineIntent
	// Sent is the hash of the last configuration that the operator sent, or found without a difference.
	Sent string
}

func (r Record) copy() Record {
	r.Change, r.Intent = r.Change.DeepCopy(), r.Intent.DeepCopy()

	return r
}

func (r Record) intends(step string) bool { return r.Intent != nil && r.Intent.Step == step }

// Between reports whether a step is in progress that changes the live configuration, so that the node may run either of
// two.
func (r Record) Between() bool {
	return r.intends(v1alpha1.StepApply) || r.intends(v1alpha1.StepTry) || r.intends(v1alpha1.StepReboot)
}

// Options of the group that the machine belongs to.
type Options struct {
	// HealthTimeout is how long a machine may take to become healthy after a change.
	HealthTimeout time.Duration
	// TryTimeout is how long a machine tries a change that could cut it off.
	TryTimeout time.Duration
	// Drift is the policy for changes made outside of the operator.
	Drift v1alpha1.DriftPolicy
	// Drains: pods are evicted before the operator reboots a machine.
	Drains bool
	// Reboots: machines may be rebooted now.
	Reboots bool
	// Closed: no maintenance window is open, and the change may not begin outside of one although it reboots nothing. It
	// counts for Kubernetes only.
	Closed bool
}

// Input is the evidence for one decision, as of one reconciliation.
type Input struct {
	// Now is the current time.
	Now time.Time
	// Name of the machine, for messages. Key stands for it, and for the spec that it was compared to, in IDs of changes.
	Name, Key string
	// ControlPlane: the machine is one of the control plane.
	ControlPlane bool
	Options      Options
	Record       Record
	// Grant allows a change to begin; nil if none was given.
	Grant *v1alpha1.ChangeGrant

	// Live and Want are the hashes of the live and of the desired configuration. Equal: they do not differ in substance.
	Live, Want string
	Equal      bool
	// Fields that differ, and Cuts, those of them that could cut the node off, for messages.
	Fields string
	Cuts   string
	// Edited are the fields that were changed outside of the operator.
	Edited []string
	// Reverting: the last working configuration, or the Talos of before an upgrade, was requested, which Want is.
	Reverting bool
	// Importing: the machine was configured elsewhere and would be imported if it were not paused.
	Importing bool
	// Retry: a user requested that a failed change begins again.
	Retry bool

	// Worked is the hash of the system with which the last upgrade of the machine was complete, if that has replaced what
	// it runs now; empty otherwise.
	Worked string
	// Runs is what the machine runs, for MachineChange.Replaces. The image, and what replaces it, are those of the change.
	Runs v1alpha1.PreviousSystem
	// Legacy: the node installs and reboots by one call, because its Talos is older than 1.13.
	Legacy bool

	// Asked is when this process first asked the node for the reboot that is in progress; zero if it has not.
	Asked time.Time

	// BootID, Stage, Ready and Unmet are what the node reports about itself.
	BootID, Stage string
	Ready         bool
	Unmet         string
	// Lags is what of Kubernetes does not run yet that the live configuration names; empty if everything does.
	Lags string
	// Refuted: a check of an upgrade is what the node lags behind, and its expression is false.
	Refuted bool

	// Pass is what was already done in this reconciliation.
	Pass Pass
}

// Pass is what was done, or found, in one reconciliation.
type Pass struct {
	// Drained: no pod has to leave the node any more.
	Drained bool
	// Permitted: the safety kernel permits the disruption. Unrecorded: the control plane has no record of it.
	Permitted, Unrecorded bool
	// Held is what the drain or the safety kernel waits for.
	Held string
	// Proven: the node has responded over a new connection and still has the configuration on trial.
	Proven bool
	// Asked: the node was asked whether a staged configuration is still there; Holds is its answer.
	Asked, Holds bool
	// Staged, Sent: the desired configuration was staged, or sent with effect at once.
	Staged, Sent bool
	// Pulled: the node has the image of the change. Installed: it is installed and boots next. Uninstalled: the old one
	// is.
	Pulled, Installed, Uninstalled bool
	// Failed is why the image cannot be pulled or installed; it is not tried again. Unsure: it may be the next to boot all
	// the same, because the node has not told how its installer ended.
	Failed string
	Unsure bool
	// Uncordoned: the node is schedulable again, unless others made it unschedulable.
	Uncordoned bool
	// Remembered: the live configuration is stored as one that works.
	Remembered bool
}

// Act is something that a caller does for a step.
type Act string

// Acts. Those that disrupt follow a record of the intent.
const (
	// None: nothing is left to do in this reconciliation.
	None Act = ""
	// AskStaged asks the node whether a staged configuration is still there: Pass.Asked and Pass.Holds.
	AskStaged Act = "AskStaged"
	// Drain evicts the pods of the node: Pass.Drained or Pass.Held.
	Drain Act = "Drain"
	// Permit asks the safety kernel, with live evidence: Pass.Permitted, Pass.Unrecorded or Pass.Held.
	Permit Act = "Permit"
	// Try sends the desired configuration on trial.
	Try Act = "Try"
	// Prove checks the node on trial over a new connection: Pass.Proven, or the end of the reconciliation.
	Prove Act = "Prove"
	// Apply sends the desired configuration with effect at once, which also replaces a staged one: Pass.Sent, or Refuse.
	Apply Act = "Apply"
	// Stage sends the desired configuration with effect at the next boot: Pass.Staged, or Refuse.
	Stage Act = "Stage"
	// Pull has the node fetch the image of the change: Pass.Pulled, Pass.Failed, or Pass.Held while that runs.
	Pull Act = "Pull"
	// Install the image of the change, which boots next: Pass.Installed, Pass.Failed, or Pass.Held while it runs.
	Install Act = "Install"
	// Uninstall makes what runs the next to boot again: Pass.Uninstalled, Pass.Failed, or Pass.Held while that runs.
	Uninstall Act = "Uninstall"
	// Upgrade has the node install the image of the change and reboot into it, by itself.
	Upgrade Act = "Upgrade"
	// Rollback has the node boot what it ran before its last upgrade. A second call would undo that.
	Rollback Act = "Rollback"
	// Reboot the node.
	Reboot Act = "Reboot"
	// Uncordon makes the node schedulable again if the operator made it unschedulable: Pass.Uncordoned.
	Uncordon Act = "Uncordon"
	// Remember stores the live configuration as one with which the node is healthy: Pass.Remembered.
	Remember Act = "Remember"
)

// Event is worth telling a user.
type Event struct {
	// Warning: the change has failed.
	Warning bool
	// Reason is a condition reason, Action what the operator does, and Message what follows.
	Reason, Action, Message string
}

// Step is the result of a decision.
type Step struct {
	// Before is the record before the act. An intent that it adds is written, with a precondition, before the act.
	Before Record
	// Act to perform.
	Act Act
	// After is the record after the act; nil to leave it as it is then.
	After *Record
	// Event that is told after the act; nil for none.
	Event *Event
	// Completed: the change has succeeded, and the machine was healthy with it.
	Completed bool
	// Again is when the machine is reconciled again. A step with an act and a time is the last one of a reconciliation.
	Again time.Duration
	// Rest: there is nothing to do until something changes.
	Rest bool
}
