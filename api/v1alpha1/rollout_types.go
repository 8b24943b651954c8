package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Annotations with which a user decides about a change.
const (
	// ApprovedAnnotation on a TalosControlPlane or a TalosWorker approves the plan whose ID is its value.
	ApprovedAnnotation = "talos-operator.io/approved"
	// RevertAnnotation on a TalosMachine reverts the machine to the last working configuration, or to the Talos that it ran
	// before its last upgrade, while its value is the target of the unwanted change.
	RevertAnnotation = "talos-operator.io/revert"
	// RetryAnnotation on a TalosMachine retries a failed change, on a TalosControlPlane the failed hooks before an upgrade.
	// The operator removes the annotation.
	RetryAnnotation = "talos-operator.io/retry"
	// ForgetAdoptedAnnotation on a TalosMachine, value "true", drops the settings that the machine kept from an import or
	// from manual edits: from then on only the spec determines the desired configuration. The operator removes the
	// annotation.
	ForgetAdoptedAnnotation = "talos-operator.io/forget-adopted"
)

// Approval determines whether a rollout needs the approval of a user.
// +kubebuilder:validation:Enum=Automatic;Manual
type Approval string

// Approval policies.
const (
	// ApprovalAutomatic starts a rollout as soon as it is planned.
	ApprovalAutomatic Approval = "Automatic"
	// ApprovalManual waits until a user approves the plan.
	ApprovalManual Approval = "Manual"
)

// RebootPolicy determines when machines may be rebooted for a configuration change.
// +kubebuilder:validation:Enum=Automatic;Window;Manual
type RebootPolicy string

// Reboot policies.
const (
	// RebootAutomatic reboots a machine as soon as it is safe.
	RebootAutomatic RebootPolicy = "Automatic"
	// RebootWindow reboots a machine when it is safe, and only in a maintenance window.
	RebootWindow RebootPolicy = "Window"
	// RebootManual never reboots: the configuration is staged and takes effect at the next reboot, whatever causes it.
	RebootManual RebootPolicy = "Manual"
)

// DriftPolicy determines how the operator handles a machine configuration that was changed outside of the operator.
// +kubebuilder:validation:Enum=Report;Enforce;Adopt
type DriftPolicy string

// Drift policies.
const (
	// DriftReport reports the fields that differ and does not change them.
	DriftReport DriftPolicy = "Report"
	// DriftEnforce plans a change back to the desired configuration.
	DriftEnforce DriftPolicy = "Enforce"
	// DriftAdopt keeps the changed fields: they become part of the desired configuration of the machine.
	DriftAdopt DriftPolicy = "Adopt"
)

// MaintenanceWindow is a recurring period in which reboots are allowed.
type MaintenanceWindow struct {
	// schedule is when the window opens, in cron format: minute, hour, day of month, month, day of week.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Schedule string `json:"schedule,omitempty"`
	// duration is how long the window stays open.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="duration must not be negative"
	Duration metav1.Duration `json:"duration,omitzero"`
	// timeZone of the schedule, for example Europe/Berlin. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	TimeZone string `json:"timeZone,omitempty"`
}

// RolloutOptions determine how configuration changes are rolled out to the machines.
// +kubebuilder:validation:XValidation:rule="!has(self.rebootPolicy) || self.rebootPolicy != 'Window' || (has(self.windows) && size(self.windows) > 0)",message="rebootPolicy Window requires windows"
type RolloutOptions struct {
	// approval is Automatic (default), which starts a rollout as soon as it is planned, or Manual, which waits for a user
	// to approve the plan.
	// +optional
	Approval Approval `json:"approval,omitempty"`
	// rebootPolicy is Automatic (default), which reboots a machine as soon as it is safe, Window, which reboots only in
	// maintenance windows, or Manual, which never reboots.
	// +optional
	RebootPolicy RebootPolicy `json:"rebootPolicy,omitempty"`
	// windows are the maintenance windows of rebootPolicy Window.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []MaintenanceWindow `json:"windows,omitempty"`
	// maxUnavailable is how many workers of a group may be unavailable at once: a number such as 2, or a percentage of the
	// group such as 25%, rounded down to at least one. Default: 1. For a control plane it is always 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^([1-9][0-9]?|100)%$') : self >= 1 && self <= 9999",message="maxUnavailable must be a number from 1 to 9999, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// maxFailed is how many workers of a group may have failed before the rollout stops, a number such as 1, or a
	// percentage of the group such as 5%, rounded down. Those do not count as unavailable. The first machine of a rollout has
	// to succeed all the same. Default: 0. For a control plane it is always 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^([0-9][0-9]?|100)%$') : self >= 0 && self <= 9999",message="maxFailed must be a number from 0 to 9999, or a percentage from 0% to 100%"
	MaxFailed *intstr.IntOrString `json:"maxFailed,omitempty"`
	// healthTimeout is how long a machine may take to become healthy after a change before the rollout stops. Default:
	// 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="healthTimeout must not be negative"
	HealthTimeout *metav1.Duration `json:"healthTimeout,omitempty"`
	// tryTimeout is how long a machine tries a change that could cut it off from the network before it rolls the change
	// back. Default: 1m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="tryTimeout must not be negative"
	TryTimeout *metav1.Duration `json:"tryTimeout,omitempty"`
	// soakTime is how long a machine has to be healthy after its change before the next machine of its group begins, and, for
	// a control plane, before workers begin. If it becomes unhealthy meanwhile, the time starts anew once it is healthy.
	// Default: 0.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="soakTime must not be negative"
	SoakTime *metav1.Duration `json:"soakTime,omitempty"`
}

// FieldChange is the change of one field of a machine configuration. Values that may be secret are omitted.
type FieldChange struct {
	// field is the changed field, as document and path.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Field string `json:"field,omitempty"`
	// old value; empty if the field was not set.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Old string `json:"old,omitempty"`
	// new value; empty if the field is removed.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	New string `json:"new,omitempty"`
}

// ChangeCause is the reason why the configuration of a machine has to change.
// +kubebuilder:validation:Enum=Spec;Drift;Revert
type ChangeCause string

// Causes of a change.
const (
	// CauseSpec: the spec, a patch or an object that it refers to changed.
	CauseSpec ChangeCause = "Spec"
	// CauseDrift: the machine configuration was changed outside of the operator.
	CauseDrift ChangeCause = "Drift"
	// CauseRevert: the last working configuration, or the Talos of before the last upgrade, was requested.
	CauseRevert ChangeCause = "Revert"
)

// ChangePhase is the phase of a change.
// +kubebuilder:validation:Enum=Pending;Draining;Applying;AwaitingReboot;Rebooting;Settling;Failed
type ChangePhase string

// Phases of a change.
const (
	// ChangePending: the change is planned and has not begun.
	ChangePending ChangePhase = "Pending"
	// ChangeDraining: pods are being evicted from the node.
	ChangeDraining ChangePhase = "Draining"
	// ChangeApplying: the configuration is being sent to the node.
	ChangeApplying ChangePhase = "Applying"
	// ChangeAwaitingReboot: the configuration is staged and takes effect at the next reboot.
	ChangeAwaitingReboot ChangePhase = "AwaitingReboot"
	// ChangeRebooting: the operator has requested a reboot.
	ChangeRebooting ChangePhase = "Rebooting"
	// ChangeSettling: the configuration is live, and the node has to become healthy.
	ChangeSettling ChangePhase = "Settling"
	// ChangeFailed: the change failed; the message says why. Nothing happens until the spec changes or a user requests a
	// retry.
	ChangeFailed ChangePhase = "Failed"
)

// ChangeKind is what a change replaces.
// +kubebuilder:validation:Enum=Config;Talos;Kubernetes
type ChangeKind string

// Kinds of a change.
const (
	// ChangeConfig replaces the machine configuration. It is the default.
	ChangeConfig ChangeKind = "Config"
	// ChangeTalos replaces the operating system: its version, its schematic, or both.
	ChangeTalos ChangeKind = "Talos"
	// ChangeKubernetes replaces the versions of components of Kubernetes, which the machine configuration names, and
	// nothing else.
	ChangeKubernetes ChangeKind = "Kubernetes"
)

// MachineChange is the change that brings the configuration or the operating system of a machine to the desired one.
type MachineChange struct {
	// kind of the change. Default: Config.
	// +optional
	Kind ChangeKind `json:"kind,omitempty"`
	// image that the node pulls for a change: the installer of one of kind Talos, or that of a component of Kubernetes.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
	// oldImage installs what ran when the change was planned. Kind Talos only.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	OldImage string `json:"oldImage,omitempty"`
	// id of the change. It differs each time the change is planned.
	// +required
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id,omitempty"`
	// target is the SHA-256 of the desired machine configuration, in hexadecimal.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Target string `json:"target,omitempty"`
	// base is the SHA-256 of the live machine configuration when the change was planned, in hexadecimal.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Base string `json:"base,omitempty"`
	// cause of the change.
	// +required
	Cause ChangeCause `json:"cause,omitempty"`
	// fields that change, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Fields []FieldChange `json:"fields,omitempty"`
	// moreFields is the number of changed fields that the list omits.
	// +optional
	MoreFields int32 `json:"moreFields,omitempty"`
	// undoes lists the fields that were changed outside of the operator and that this change reverts, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	Undoes []string `json:"undoes,omitempty"`
	// reboot is true if the node reports that the change needs a reboot.
	// +optional
	Reboot bool `json:"reboot,omitempty"`
	// drain is true if pods are evicted from the node before it reboots.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// etcd is true if the etcd member of the node is temporarily unavailable during the change.
	// +optional
	Etcd bool `json:"etcd,omitempty"`
	// try is true if the change could cut the node off from the network: the node rolls it back unless it remains
	// reachable.
	// +optional
	Try bool `json:"try,omitempty"`
	// staged is true once the configuration of the change was sent to be stored on the disk of the node. It takes effect
	// at the next boot, whatever causes it.
	// +optional
	Staged bool `json:"staged,omitempty"`
	// installedBoot is the boot ID in which the installer of the change has ended: in that boot it need not run again, for
	// example because the maintenance window closed before the reboot. Kind Talos only.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	InstalledBoot string `json:"installedBoot,omitempty"`
	// replaces is what the node ran when the installer was started. It becomes previousSystem once the node has booted what
	// replaces it. Kind Talos only.
	// +optional
	Replaces *PreviousSystem `json:"replaces,omitempty"`
	// booted is true once the node was observed running what the change brings. Kind Talos only.
	// +optional
	Booted bool `json:"booted,omitempty"`
	// unfitSince is since when the node, whenever it was asked after it had booted what the change brings, was not healthy
	// by itself or did not satisfy a check; absent if it was, also while only its etcd member lags. Kind Talos only.
	// +optional
	UnfitSince *metav1.Time `json:"unfitSince,omitempty"`
	// rollbackBoot is the boot ID in which the node was asked to roll back. It is not asked again in that boot, because that
	// would take back the first request.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RollbackBoot string `json:"rollbackBoot,omitempty"`
	// lostPhase is the phase in which the machine was abandoned because it did not respond. Absent once it has responded
	// and is healthy, or runs what the change brings.
	// +optional
	// +kubebuilder:validation:Enum=Draining;Applying;Rebooting;Settling
	LostPhase string `json:"lostPhase,omitempty"`
	// lostBootID is the boot ID of the node in that phase; empty if that is not known. If the
	// node has rebooted since, what it runs is also what it boots next.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LostBootID string `json:"lostBootID,omitempty"`
	// phase of the change.
	// +required
	Phase ChangePhase `json:"phase,omitempty"`
	// since is the time when the phase began.
	// +required
	Since metav1.Time `json:"since,omitzero"`
	// message says what the change waits for, or why it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// progress is the last line that the installer has printed, while it runs. It is updated every 15 seconds at most.
	// Kind Talos only; nodes before Talos 1.13 do not report it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Progress string `json:"progress,omitempty"`
}

// ChangeGrant allows a machine to begin a change.
type ChangeGrant struct {
	// id of the change that may begin.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	ID string `json:"id,omitempty"`
	// reboot allows the machine to be drained and rebooted for the change. Without it, a change that needs a reboot is
	// staged.
	// +optional
	Reboot bool `json:"reboot,omitempty"`
}

// PlannedState is the state of one machine of a plan.
// +kubebuilder:validation:Enum=Pending;Running;AwaitingReboot;Done;Failed
type PlannedState string

// States of a planned machine.
const (
	// PlannedPending: the machine waits for its slot in the rollout.
	PlannedPending PlannedState = "Pending"
	// PlannedRunning: the change of the machine is in progress.
	PlannedRunning PlannedState = "Running"
	// PlannedAwaitingReboot: the configuration of the machine is staged.
	PlannedAwaitingReboot PlannedState = "AwaitingReboot"
	// PlannedDone: the machine runs the desired configuration and is healthy.
	PlannedDone PlannedState = "Done"
	// PlannedFailed: the change of the machine failed, and the rollout has stopped.
	PlannedFailed PlannedState = "Failed"
)

// PlannedMachine is one machine of a plan. The status of its TalosMachine has the details.
type PlannedMachine struct {
	// name of the TalosMachine.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// target is the SHA-256 of the desired machine configuration, as in the machine's change.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Target string `json:"target,omitempty"`
	// base is the SHA-256 of the live machine configuration, as in the machine's change.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Base string `json:"base,omitempty"`
	// fields is the number of fields that change.
	// +optional
	Fields int32 `json:"fields,omitempty"`
	// reboot is true if the machine reboots.
	// +optional
	Reboot bool `json:"reboot,omitempty"`
	// state of the machine.
	// +required
	State PlannedState `json:"state,omitempty"`
}

// PlanPhase is the phase of a plan.
// +kubebuilder:validation:Enum=AwaitingApproval;Waiting;RollingOut;Stopped
type PlanPhase string

// Phases of a plan.
const (
	// PlanAwaitingApproval: the plan waits for the approval of a user.
	PlanAwaitingApproval PlanPhase = "AwaitingApproval"
	// PlanWaiting: the plan is waiting; the message says for what.
	PlanWaiting PlanPhase = "Waiting"
	// PlanRollingOut: machines are being changed.
	PlanRollingOut PlanPhase = "RollingOut"
	// PlanStopped: the change of a machine failed; no further machine begins its change.
	PlanStopped PlanPhase = "Stopped"
)

// FailedCheck is the check of an upgrade that is not satisfied.
type FailedCheck struct {
	// name of the check in spec.upgrade.checks of the control plane.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// since is the time when the check was first not satisfied, without interruption.
	// +required
	Since metav1.Time `json:"since,omitzero"`
}

// PlanStatus lists the configuration changes that a group of machines needs, in rollout order.
type PlanStatus struct {
	// id of the plan. A new difference results in a new plan.
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
	// createdAt is the time when the plan was created.
	// +required
	CreatedAt metav1.Time `json:"createdAt,omitzero"`
	// check that is not satisfied and that the next machine waits for; absent if there is none.
	// +optional
	Check *FailedCheck `json:"check,omitempty"`
	// machines of the plan, in rollout order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=600
	Machines []PlannedMachine `json:"machines,omitempty"`
}
