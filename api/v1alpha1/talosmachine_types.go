package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TalosMachineSpec describes one Talos node. The operator writes it from the machine list of a TalosControlPlane or a
// TalosWorker.
// +kubebuilder:validation:XValidation:rule="(self.role == 'worker') == has(self.workerRef)",message="workerRef belongs to workers, and only to them"
type TalosMachineSpec struct {
	// controlPlaneRef names the TalosControlPlane of the cluster. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="controlPlaneRef is immutable"
	ControlPlaneRef ObjectReference `json:"controlPlaneRef,omitzero"`
	// workerRef names the TalosWorker of a worker.
	// +optional
	WorkerRef *ObjectReference `json:"workerRef,omitempty"`
	// role of the machine. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="role is immutable"
	Role Role `json:"role,omitempty"`
	// address of the machine's Talos API.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address,omitempty"`
	// machineRef names the Machine (vitistack.io) that has the address.
	// +optional
	MachineRef *ObjectReference `json:"machineRef,omitempty"`
	// maintenanceFingerprint is what the certificate of the machine in maintenance mode has to have, as in the machine
	// list: base64 of the SHA-256 of its public key. Without it every certificate is accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`
	// network of this machine.
	// +optional
	Network *MachineNetwork `json:"network,omitempty"`
	// deletionPolicy of the object that this machine belongs to.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// decommission: the deletion of this object takes the node out of its cluster: drained, out of etcd, wiped, and its
	// Node object removed. The operator sets it on machines that left their list; to false on those that are in it under
	// another name, whose nodes go on.
	// +optional
	Decommission *bool `json:"decommission,omitempty"`
	// change lets the machine begin a config change. The operator sets it when the machine's turn has come.
	// +optional
	Change *ChangeGrant `json:"change,omitempty"`

	NodeOptions `json:",inline"`
}

// MachineIntent is a step that was recorded before it was taken, so that a crash resumes it instead of repeating it.
type MachineIntent struct {
	// step that is under way.
	// +required
	// +kubebuilder:validation:Enum=Drain;Leave;Reset;Try;Apply;Stage;Reboot
	Step string `json:"step,omitempty"`
	// bootID of the node when the step began.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// memberID of the etcd member that leaves, hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	MemberID string `json:"memberID,omitempty"`
	// since is when the step was recorded.
	// +required
	Since metav1.Time `json:"since,omitzero"`
	// checked is true once the operator has checked the node while a change is on trial (step Try). A trial that ends
	// unchecked, because the operator was late or not running, says nothing about the change, and is repeated.
	// +optional
	Checked bool `json:"checked,omitempty"`
	// attempt counts the trials of one change, from 1 for the first repetition.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt,omitempty"`
}

// Steps of a MachineIntent.
const (
	// StepDrain moves the pods of a node elsewhere.
	StepDrain = "Drain"
	// StepLeave takes a node's member out of etcd.
	StepLeave = "Leave"
	// StepReset is the wipe of a node.
	StepReset = "Reset"
	// StepTry sends a config that the node takes back by itself unless it still answers.
	StepTry = "Try"
	// StepApply sends a config that takes effect at once.
	StepApply = "Apply"
	// StepStage sends a config that takes effect at the next reboot.
	StepStage = "Stage"
	// StepReboot is a reboot for a staged config.
	StepReboot = "Reboot"
)

// TalosMachineStatus is what was seen of a node. Values are the node's own, read live.
type TalosMachineStatus struct {
	// conditions: Ready, Reachable, Configured, UpToDate, and Paused, Deleting, Stalled while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// stage of the machine in the words of Talos: maintenance, installing, booting, running, rebooting, resetting, …
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Stage string `json:"stage,omitempty"`
	// unmetConditions is what the node says it waits for.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=300
	UnmetConditions []string `json:"unmetConditions,omitempty"`
	// address that the operator uses.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address,omitempty"`
	// addresses of the node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses,omitempty"`
	// hostname of the node.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname,omitempty"`
	// talosVersion that runs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`
	// kubeletVersion that runs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// bootID changes with every boot.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// uuid of the machine from its firmware.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UUID string `json:"uuid,omitempty"`
	// maintenanceFingerprint is that of the certificate which the machine shows in maintenance mode, in the format of
	// spec.maintenanceFingerprint: compare it to the console of the machine. Empty once the machine has its config.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`
	// etcdMemberID is the ID of the node's etcd member, hexadecimal; empty also while its etcd is unhealthy.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	EtcdMemberID string `json:"etcdMemberID,omitempty"`

	// lastEtcdMemberID is the last one that the node told of; empty once it was wiped.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	LastEtcdMemberID string `json:"lastEtcdMemberID,omitempty"`
	// installDisk that Talos is installed on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstallDisk string `json:"installDisk,omitempty"`
	// cpus is the number of processors.
	// +optional
	CPUs int32 `json:"cpus,omitempty"`
	// memoryMiB is the memory in MiB.
	// +optional
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// configHash is the SHA-256 of the machine config that was last sent, hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ConfigHash string `json:"configHash,omitempty"`
	// workingHash is the SHA-256 of the last machine config that the node was healthy with, hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WorkingHash string `json:"workingHash,omitempty"`
	// comparedTo is the generations of the TalosControlPlane, the TalosWorker and this object that the live config was
	// compared to.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ComparedTo string `json:"comparedTo,omitempty"`
	// drift is the fields that somebody else changed since the operator last sent a config, at most 64: old is what was
	// sent, new what the node runs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Drift []FieldChange `json:"drift,omitempty"`
	// adoptedFields are those that somebody else changed and that the machine keeps, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	AdoptedFields []string `json:"adoptedFields,omitempty"`
	// change is what the machine config needs to become the wanted one; absent when it is.
	// +optional
	Change *MachineChange `json:"change,omitempty"`
	// intent is the step that is under way.
	// +optional
	Intent *MachineIntent `json:"intent,omitempty"`
	// lastError is what last went wrong with this node, without secrets.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastError string `json:"lastError,omitempty"`
}

// TalosMachine is one Talos node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tm,categories=talos
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.status.stage`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.talosVersion`
// +kubebuilder:printcolumn:name="Kubelet",type=string,JSONPath=`.status.kubeletVersion`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type TalosMachine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec TalosMachineSpec `json:"spec,omitzero"`
	// status is what was seen.
	// +optional
	Status TalosMachineStatus `json:"status,omitzero"`
}

// TalosMachineList is a list of Talos nodes.
//
// +kubebuilder:object:root=true
type TalosMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosMachine `json:"items"`
}
