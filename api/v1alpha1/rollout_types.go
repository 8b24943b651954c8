package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Annotations that a person sets to decide about a change.
const (
	// ApprovedAnnotation on a TalosControlPlane or a TalosWorker approves the plan whose ID it holds.
	ApprovedAnnotation = "talos-operator.io/approved"
	// RevertAnnotation on a TalosMachine takes it back to the last config that worked, as long as it holds the target of
	// the change that is not wanted.
	RevertAnnotation = "talos-operator.io/revert"
	// RetryAnnotation on a TalosMachine has a change that failed tried again; the operator removes it.
	RetryAnnotation = "talos-operator.io/retry"
	// ForgetAdoptedAnnotation on a TalosMachine, value "true", gives up what the machine took over from an import or from
	// edits by hand: from then on the spec alone counts. The operator removes it.
	ForgetAdoptedAnnotation = "talos-operator.io/forget-adopted"
)

// Approval says who starts a rollout.
// +kubebuilder:validation:Enum=Automatic;Manual
type Approval string

// Approvals.
const (
	// ApprovalAutomatic starts a rollout as soon as it is planned.
	ApprovalAutomatic Approval = "Automatic"
	// ApprovalManual waits until a person approves the plan.
	ApprovalManual Approval = "Manual"
)

// RebootPolicy says when machines may be rebooted for a config change.
// +kubebuilder:validation:Enum=Automatic;Window;Manual
type RebootPolicy string

// Reboot policies.
const (
	// RebootAutomatic reboots when it is safe.
	RebootAutomatic RebootPolicy = "Automatic"
	// RebootWindow reboots when it is safe, and only in a maintenance window.
	RebootWindow RebootPolicy = "Window"
	// RebootManual never reboots: the config is staged, and takes effect at the next reboot, whoever causes it.
	RebootManual RebootPolicy = "Manual"
)

// DriftPolicy says what happens to a config that somebody else changed.
// +kubebuilder:validation:Enum=Report;Enforce;Adopt
type DriftPolicy string

// Drift policies.
const (
	// DriftReport shows the fields that differ and leaves them alone.
	DriftReport DriftPolicy = "Report"
	// DriftEnforce plans a change back to what the spec asks for.
	DriftEnforce DriftPolicy = "Enforce"
	// DriftAdopt takes the fields over: the machine keeps them through every later change.
	DriftAdopt DriftPolicy = "Adopt"
)

// MaintenanceWindow is a time in which reboots may happen.
type MaintenanceWindow struct {
	// schedule at which the window opens, in the format of cron: minute, hour, day of month, month, day of week.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule,omitempty"`
	// duration for which it stays open.
	// +required
	Duration metav1.Duration `json:"duration,omitzero"`
	// timeZone of the schedule, for example Europe/Berlin. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// RolloutOptions say how config changes reach the machines.
// +kubebuilder:validation:XValidation:rule="!has(self.rebootPolicy) || self.rebootPolicy != 'Window' || (has(self.windows) && size(self.windows) > 0)",message="rebootPolicy Window needs windows"
type RolloutOptions struct {
	// approval: Automatic starts a rollout as soon as it is planned (default), Manual waits for a person.
	// +optional
	Approval Approval `json:"approval,omitempty"`
	// rebootPolicy: Automatic reboots when it is safe (default), Window only in maintenance windows, Manual never.
	// +optional
	RebootPolicy RebootPolicy `json:"rebootPolicy,omitempty"`
	// windows in which reboots may happen with rebootPolicy Window.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []MaintenanceWindow `json:"windows,omitempty"`
	// maxUnavailable is how many workers of a group may be unavailable at once: a number such as 2, or a percentage of the
	// group such as 25%, rounded down to at least one. Default: 1. Of a control plane it is always one.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^([1-9][0-9]?|100)%$') : self >= 1 && self <= 9999",message="maxUnavailable must be a number from 1 to 9999, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// healthTimeout is how long a machine may take to be healthy after a change before the rollout stops; 10m unless set.
	// +optional
	HealthTimeout *metav1.Duration `json:"healthTimeout,omitempty"`
	// tryTimeout is after which time a machine takes back a change that cut it off; 1m unless set.
	// +optional
	TryTimeout *metav1.Duration `json:"tryTimeout,omitempty"`
}

// FieldChange is one field of a machine config that changes. Values that may be secret are left out.
type FieldChange struct {
	// field by document and path.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Field string `json:"field,omitempty"`
	// old value, empty where there was none.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Old string `json:"old,omitempty"`
	// new value, empty where there will be none.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	New string `json:"new,omitempty"`
}

// ChangeCause is why a machine's config has to change.
// +kubebuilder:validation:Enum=Spec;Drift;Revert
type ChangeCause string

// Causes of a change.
const (
	// CauseSpec: the spec, a patch or an object that it refers to changed.
	CauseSpec ChangeCause = "Spec"
	// CauseDrift: somebody else changed the machine.
	CauseDrift ChangeCause = "Drift"
	// CauseRevert: a person wants the last config that worked.
	CauseRevert ChangeCause = "Revert"
)

// ChangePhase is how far a change has come.
// +kubebuilder:validation:Enum=Pending;Draining;Applying;AwaitingReboot;Rebooting;Settling;Failed
type ChangePhase string

// Phases of a change.
const (
	// ChangePending: planned, and not begun.
	ChangePending ChangePhase = "Pending"
	// ChangeDraining: pods are leaving the node.
	ChangeDraining ChangePhase = "Draining"
	// ChangeApplying: the config is being sent.
	ChangeApplying ChangePhase = "Applying"
	// ChangeAwaitingReboot: the config is staged; it takes effect at the next reboot.
	ChangeAwaitingReboot ChangePhase = "AwaitingReboot"
	// ChangeRebooting: the operator has asked for a reboot.
	ChangeRebooting ChangePhase = "Rebooting"
	// ChangeSettling: the config is live; the node has to become healthy.
	ChangeSettling ChangePhase = "Settling"
	// ChangeFailed: the message says why; nothing happens until the spec changes or a person asks for a retry.
	ChangeFailed ChangePhase = "Failed"
)

// MachineChange is what a machine's config needs to become the wanted one.
type MachineChange struct {
	// id of the change; every plan of a change has another one.
	// +required
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id,omitempty"`
	// target is the SHA-256 of the wanted machine config, hexadecimal.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Target string `json:"target,omitempty"`
	// base is the SHA-256 of the live machine config when the change was planned, hexadecimal.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Base string `json:"base,omitempty"`
	// cause of the change.
	// +required
	Cause ChangeCause `json:"cause,omitempty"`
	// fields that change, at most 64 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Fields []FieldChange `json:"fields,omitempty"`
	// moreFields is the number of fields that the list leaves out.
	// +optional
	MoreFields int32 `json:"moreFields,omitempty"`
	// undoes names fields that somebody else changed and that this change takes back; at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	Undoes []string `json:"undoes,omitempty"`
	// reboot: the node says that it has to reboot.
	// +optional
	Reboot bool `json:"reboot,omitempty"`
	// drain: pods leave the node before it reboots.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// etcd: the member of the node is away for a while.
	// +optional
	Etcd bool `json:"etcd,omitempty"`
	// try: the change could cut the node off; the node takes it back by itself unless it still answers.
	// +optional
	Try bool `json:"try,omitempty"`
	// phase of the change.
	// +required
	Phase ChangePhase `json:"phase,omitempty"`
	// since is when the phase began.
	// +required
	Since metav1.Time `json:"since,omitzero"`
	// message says what the change waits for, or why it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ChangeGrant lets a machine begin a change.
type ChangeGrant struct {
	// id of the change which may begin.
	// +required
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id,omitempty"`
	// reboot: the machine may be drained and rebooted for it. Without it a change that needs a reboot is staged.
	// +optional
	Reboot bool `json:"reboot,omitempty"`
}

// PlannedState is how far one machine of a plan has come.
// +kubebuilder:validation:Enum=Pending;Running;AwaitingReboot;Done;Failed
type PlannedState string

// States of a planned machine.
const (
	// PlannedPending: its turn has not come.
	PlannedPending PlannedState = "Pending"
	// PlannedRunning: its change is under way.
	PlannedRunning PlannedState = "Running"
	// PlannedAwaitingReboot: its config is staged.
	PlannedAwaitingReboot PlannedState = "AwaitingReboot"
	// PlannedDone: it runs the wanted config and is healthy.
	PlannedDone PlannedState = "Done"
	// PlannedFailed: its change failed, and the rollout has stopped.
	PlannedFailed PlannedState = "Failed"
)

// PlannedMachine is one machine of a plan; the details are in the status of its TalosMachine.
type PlannedMachine struct {
	// name of the TalosMachine.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// target and base are those of the machine's change.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Target string `json:"target,omitempty"`
	// +required
	// +kubebuilder:validation:MaxLength=64
	Base string `json:"base,omitempty"`
	// fields is the number of fields that change.
	// +optional
	Fields int32 `json:"fields,omitempty"`
	// reboot: the machine reboots.
	// +optional
	Reboot bool `json:"reboot,omitempty"`
	// state of the machine.
	// +required
	State PlannedState `json:"state,omitempty"`
}

// PlanPhase is what a plan as a whole does.
// +kubebuilder:validation:Enum=AwaitingApproval;Waiting;RollingOut;Stopped
type PlanPhase string

// Phases of a plan.
const (
	// PlanAwaitingApproval: a person has to approve it.
	PlanAwaitingApproval PlanPhase = "AwaitingApproval"
	// PlanWaiting: the message says for what.
	PlanWaiting PlanPhase = "Waiting"
	// PlanRollingOut: machines change.
	PlanRollingOut PlanPhase = "RollingOut"
	// PlanStopped: a machine failed; no other one begins.
	PlanStopped PlanPhase = "Stopped"
)

// PlanStatus is the config changes that a group of machines needs, in the order in which they are made.
type PlanStatus struct {
	// id of the plan. A new difference makes a new plan.
	// +required
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id,omitempty"`
	// phase of the plan.
	// +required
	Phase PlanPhase `json:"phase,omitempty"`
	// message says what the plan waits for, or why it has stopped.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// createdAt is when the plan was made.
	// +required
	CreatedAt metav1.Time `json:"createdAt,omitzero"`
	// machines in their order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=600
	Machines []PlannedMachine `json:"machines,omitempty"`
}
