package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UpgradeRunSpec says what a run is: one version of the path of an upgrade, to which the machines of one cluster are
// brought. The operator writes it when the run begins. It is a record, and no command: which versions a cluster gets
// is determined by the spec of its KubernetesCluster or TalosControlPlane alone.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of an upgrade record is immutable: set the versions in the spec of the cluster"
type UpgradeRunSpec struct {
	// controlPlaneRef names the TalosControlPlane of the cluster.
	// +required
	ControlPlaneRef ObjectReference `json:"controlPlaneRef,omitzero"`
	// from is the version furthest from the new one that a machine of the cluster ran when the run began: the oldest
	// one, or the newest one where an upgrade of Kubernetes is taken back.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	From string `json:"from,omitempty"`
	// to is the version that the machines are brought to. It is that of from where only the schematic changes.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	To string `json:"to,omitempty"`
	// schematic is the ID of the image factory schematic that machines get, where only that changes. Empty where from and to
	// are the same: machines get none any more. Kind TalosUpgrade only.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Schematic string `json:"schematic,omitempty"`
	// image is the installer with that schematic, or without one. Kind TalosUpgrade only.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Image string `json:"image,omitempty"`
}

// UpgradeRunPhase is the phase of a run.
// +kubebuilder:validation:Enum=Running;Waiting;Stopped;Succeeded;Failed;CalledOff
type UpgradeRunPhase string

// Phases of a run. The last three are those of a finished run, which does not change any more.
const (
	// UpgradeRunRunning: machines are being upgraded.
	UpgradeRunRunning UpgradeRunPhase = "Running"
	// UpgradeRunWaiting: no machine is being upgraded; the message says what the run waits for.
	UpgradeRunWaiting UpgradeRunPhase = "Waiting"
	// UpgradeRunStopped: a group of machines has more failed upgrades than it tolerates, or a hook before the run failed. A
	// retry of the machine, or of the hooks, continues it. Other groups go on.
	UpgradeRunStopped UpgradeRunPhase = "Stopped"
	// UpgradeRunSucceeded: each machine of the cluster runs the version.
	UpgradeRunSucceeded UpgradeRunPhase = "Succeeded"
	// UpgradeRunFailed: the spec of the cluster changed after the upgrade of a machine had failed.
	UpgradeRunFailed UpgradeRunPhase = "Failed"
	// UpgradeRunCalledOff: the spec of the cluster changed before each machine had the version, and no machine had
	// failed.
	UpgradeRunCalledOff UpgradeRunPhase = "CalledOff"
)

// UpgradeMachineState is the state of one machine of a run.
// +kubebuilder:validation:Enum=Pending;InProgress;Done;Failed
type UpgradeMachineState string

// States of a machine of a run.
const (
	// UpgradeMachinePending: the machine does not run the version yet.
	UpgradeMachinePending UpgradeMachineState = "Pending"
	// UpgradeMachineInProgress: the machine is being upgraded, or has some of the components of Kubernetes in the
	// version.
	UpgradeMachineInProgress UpgradeMachineState = "InProgress"
	// UpgradeMachineDone: the machine runs the version and is healthy.
	UpgradeMachineDone UpgradeMachineState = "Done"
	// UpgradeMachineFailed: the upgrade of the machine failed.
	UpgradeMachineFailed UpgradeMachineState = "Failed"
)

// UpgradeRunMachine is the progress of one machine of a run.
type UpgradeRunMachine struct {
	// name of the TalosMachine.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// from is the version that the machine ran before: for Kubernetes that of its first component that is not in the new
	// one. Empty if the machine ran the new version when the run began, or if its version was unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	From string `json:"from,omitempty"`
	// state of the machine.
	// +required
	State UpgradeMachineState `json:"state,omitempty"`
	// startedAt is when the last attempt to upgrade the machine was first observed in progress.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// completedAt is when the machine was first observed in the new version and healthy, or when its upgrade failed.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	// message says why the upgrade of the machine failed or, while it is in progress, what holds its drain until a user
	// intervenes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// UpgradeRunStatus is the observed progress of a run.
type UpgradeRunStatus struct {
	// conditions are Complete; Reconciling while the run is not finished, and Stalled while it is stopped and once it
	// has failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// phase of the run.
	// +optional
	Phase UpgradeRunPhase `json:"phase,omitempty"`
	// startTime is when the run was first observed.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the run was observed to be finished, whatever the result. It is not set before.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// progress is the number of machines that are done and of all machines, such as 3/5.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Progress string `json:"progress,omitempty"`
	// total is the number of machines of the run.
	// +optional
	Total int32 `json:"total,omitempty"`
	// done is the number of machines that run the version and are healthy.
	// +optional
	Done int32 `json:"done,omitempty"`
	// failed is the number of machines whose upgrade failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// pointOfNoReturn tells whether the version can be taken back: Ahead as long as a component of the control plane has the
	// version of before, and Passed afterwards. Empty where that is unknown, in a finished run that had not passed it, and
	// where a version is taken back. Kind KubernetesUpgrade only.
	// +optional
	PointOfNoReturn PointOfNoReturn `json:"pointOfNoReturn,omitempty"`
	// message says what the run waits for, or why it stopped, failed or was called off.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// waitingSince is when the run was first observed to wait for what message says. Absent while it waits for nothing.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`
	// machines of the run, at most 100: those that have failed or are in progress first. The counts are those of all
	// machines.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Machines []UpgradeRunMachine `json:"machines,omitempty"`
}

// TalosUpgrade records how the machines of a cluster were brought to one version of Talos, or to one schematic. The
// operator writes one for each version of the path of an upgrade, and keeps the ten newest finished ones of a
// cluster. It is a record, and no command: to upgrade a cluster, change the spec of the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tup,categories=talos
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.controlPlaneRef.name`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.from`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.spec.to`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Done",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].message`
type TalosUpgrade struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the run is.
	// +required
	Spec UpgradeRunSpec `json:"spec,omitzero"`
	// status reports the observed progress.
	// +optional
	Status UpgradeRunStatus `json:"status,omitzero"`
}

// TalosUpgradeList is a list of records of upgrades of Talos.
//
// +kubebuilder:object:root=true
type TalosUpgradeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosUpgrade `json:"items"`
}

// KubernetesUpgrade records how the machines of a cluster were brought to one version of Kubernetes. The operator
// writes one for each version of the path of an upgrade, and keeps the ten newest finished ones of a cluster. It is a
// record, and no command: to upgrade a cluster, change the spec of the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kup,categories=talos
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.controlPlaneRef.name`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.from`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.spec.to`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Done",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].message`
type KubernetesUpgrade struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the run is.
	// +required
	Spec UpgradeRunSpec `json:"spec,omitzero"`
	// status reports the observed progress.
	// +optional
	Status UpgradeRunStatus `json:"status,omitzero"`
}

// KubernetesUpgradeList is a list of records of upgrades of Kubernetes.
//
// +kubebuilder:object:root=true
type KubernetesUpgradeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KubernetesUpgrade `json:"items"`
}
