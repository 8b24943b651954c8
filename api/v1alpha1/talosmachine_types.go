package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TalosMachineSpec describes one Talos node. The operator writes it from the machine list of a TalosControlPlane or a
// TalosWorker.
// +kubebuilder:validation:XValidation:rule="(self.role == 'worker') == has(self.workerRef)",message="workerRef is required for workers, and only valid for them"
type TalosMachineSpec struct {
	// controlPlaneRef names the TalosControlPlane of the cluster. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="controlPlaneRef is immutable"
	ControlPlaneRef ObjectReference `json:"controlPlaneRef,omitzero"`
	// workerRef names the TalosWorker of a worker. Not set for control-plane machines.
	// +optional
	WorkerRef *ObjectReference `json:"workerRef,omitempty"`
	// role of the machine. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="role is immutable"
	Role Role `json:"role,omitempty"`
	// address is the IP address of the machine's Talos API.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Address string `json:"address,omitempty"`
	// machineRef names the Machine (vitistack.io) that provides the address.
	// +optional
	MachineRef *ObjectReference `json:"machineRef,omitempty"`
	// maintenanceFingerprint is the expected fingerprint of the certificate that the machine presents in maintenance mode,
	// as in the machine list: the base64-encoded SHA-256 of its public key. Without it, every certificate is accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`
	// network configuration of this machine.
	// +optional
	Network *MachineNetwork `json:"network,omitempty"`
	// deletionPolicy of the object that this machine belongs to.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// onDelete determines what the deletion of this object does to the node while the cluster continues. The operator
	// sets it before it deletes an object: Decommission for a machine that was removed from its list, whose node is
	// drained, removed from etcd and wiped, and whose Node object is deleted; Release for a machine that is still listed
	// under another name, whose node is not touched. An object that is deleted without it is created again.
	// +optional
	OnDelete OnDelete `json:"onDelete,omitempty"`
	// change allows the machine to begin a configuration change. The operator sets it when the machine gets its slot in
	// the rollout.
	// +optional
	Change *ChangeGrant `json:"change,omitempty"`
	// drain determines how pods are evicted from this node before it is disrupted. Default: that of the group.
	// +optional
	Drain *DrainOptions `json:"drain,omitempty"`

	NodeOptions `json:",inline"`
}

// OnDelete is what the deletion of a TalosMachine does to its node.
// +kubebuilder:validation:Enum=Decommission;Release
type OnDelete string

// Effects of a deletion.
const (
	// OnDeleteDecommission removes the node from its cluster.
	OnDeleteDecommission OnDelete = "Decommission"
	// OnDeleteRelease leaves the node running under another name.
	OnDeleteRelease OnDelete = "Release"
)

// MachineIntent is a step that was recorded before it was taken, so that the operator resumes it after a crash instead
// of repeating it.
type MachineIntent struct {
	// step that is in progress.
	// +required
	// +kubebuilder:validation:Enum=Drain;Leave;Reset;Try;Apply;Stage;Pull;Install;Reboot
	Step string `json:"step,omitempty"`
	// bootID of the node when the step began.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// memberID is the ID of the etcd member that leaves, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	MemberID string `json:"memberID,omitempty"`
	// since is when the step was recorded.
	// +required
	Since metav1.Time `json:"since,omitzero"`
	// checked is true once the operator has checked the node while a change is on trial (step Try). A trial that ends
	// unchecked, because the operator was late or not running, proves nothing about the change and is repeated.
	// +optional
	Checked bool `json:"checked,omitempty"`
	// attempt counts the repetitions of a trial: 1 for the first repetition.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt,omitempty"`
}

// Steps of a MachineIntent.
const (
	// StepDrain evicts the pods of a node.
	StepDrain = "Drain"
	// StepLeave removes a node's member from etcd.
	StepLeave = "Leave"
	// StepReset wipes a node.
	StepReset = "Reset"
	// StepTry sends a configuration that the node rolls back by itself unless it remains reachable.
	StepTry = "Try"
	// StepApply sends a configuration that takes effect immediately.
	StepApply = "Apply"
	// StepStage sends a configuration that takes effect at the next reboot.
	StepStage = "Stage"
	// StepPull fetches the image of an installer.
	StepPull = "Pull"
	// StepInstall runs an installer: its system takes effect at the next reboot.
	StepInstall = "Install"
	// StepReboot reboots a node with a staged configuration or an installed system.
	StepReboot = "Reboot"
)

// TalosMachineStatus is the observed state of a node. The values are read live from the node.
type TalosMachineStatus struct {
	// conditions are Ready, Reachable, Configured and UpToDate; Paused, Deleting, Stalled, Drifted,
	// ExtensionServicesFailed, StaticPodsFailed, TalosVersionUnknown, VolumesFailed, FirewallShutsOut and NetworkDegraded
	// only while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// stage of the machine as Talos reports it: maintenance, installing, booting, running, rebooting, resetting, …
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Stage string `json:"stage,omitempty"`
	// unmetConditions are the conditions that the node reports as not met.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=300
	UnmetConditions []string `json:"unmetConditions,omitempty"`
	// address that the operator uses for the Talos API.
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
	// nodeName is the name that the kubelet of the node registers with, as Talos reports it: the hostname, the fully
	// qualified one, or the one of an extra argument. Empty until the node has reported it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`
	// network is what the node reports about its network.
	// +optional
	Network *MachineNetworkStatus `json:"network,omitempty"`
	// talosVersion that the node runs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`
	// image that the node has booted, as it was after the boot.
	// +optional
	Image *RunningImage `json:"image,omitempty"`
	// volumes of Talos, and others that failed, as they were after the boot.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Volumes []MachineVolume `json:"volumes,omitempty"`
	// staticPods are those of the configuration that a control-plane machine runs, as its kubelet last reported them;
	// workers do not report theirs.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	StaticPods []MachineStaticPod `json:"staticPods,omitempty"`
	// bootVolumes are the keys of volumes that the machine was configured with when it was first compared in its boot.
	// +optional
	BootVolumes *BootVolumes `json:"bootVolumes,omitempty"`
	// kubeletVersion that the node runs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// componentVersions are the versions of Kubernetes that the configuration of a control-plane machine names.
	// +optional
	ComponentVersions *ComponentVersions `json:"componentVersions,omitempty"`
	// bootID of the node. It changes at every boot.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// uuid of the machine, from its firmware.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UUID string `json:"uuid,omitempty"`
	// maintenanceFingerprint is the fingerprint of the certificate that the machine presents in maintenance mode, in the
	// format of spec.maintenanceFingerprint. Compare it to the one on the console of the machine. Empty once the machine
	// is configured.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`
	// etcdMemberID is the ID of the node's etcd member, in hexadecimal. It is also empty while its etcd is unhealthy.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	EtcdMemberID string `json:"etcdMemberID,omitempty"`

	// lastEtcdMemberID is the last etcd member ID that the node reported. Empty once the node was wiped.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	LastEtcdMemberID string `json:"lastEtcdMemberID,omitempty"`
	// installDisk is the disk that Talos is installed on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstallDisk string `json:"installDisk,omitempty"`
	// cpus is the number of processors.
	// +optional
	CPUs int32 `json:"cpus,omitempty"`
	// memoryMiB is the memory in MiB.
	// +optional
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// configHash is the SHA-256 of the last machine configuration that was sent, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ConfigHash string `json:"configHash,omitempty"`
	// workingHash is the SHA-256 of the last machine configuration with which the node was healthy, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WorkingHash string `json:"workingHash,omitempty"`
	// workingSystem is the SHA-256 of the Talos version and schematic with which the node was healthy after its last
	// upgrade, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WorkingSystem string `json:"workingSystem,omitempty"`
	// previousSystem is what the machine ran before its last upgrade. It can be rolled back to that until its configuration
	// changes, which an older Talos might not be able to read.
	// +optional
	PreviousSystem *PreviousSystem `json:"previousSystem,omitempty"`
	// comparedTo contains the generations of the TalosControlPlane, the TalosWorker and this object that the live
	// configuration was compared to, and the step of an upgrade.
	// +optional
	// +kubebuilder:validation:MaxLength=160
	ComparedTo string `json:"comparedTo,omitempty"`
	// patchesVersion identifies the versions of the ConfigMaps and Secrets that the configuration of comparedTo takes
	// patches from: a hash of their resource versions, and not of their contents. Empty if it takes none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PatchesVersion string `json:"patchesVersion,omitempty"`
	// drift lists the fields that were changed outside of the operator since it last sent a configuration, at most 64: old
	// is the last applied value, new the live value.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Drift []FieldChange `json:"drift,omitempty"`
	// adoptedFields are fields that were changed outside of the operator and that the machine keeps, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	AdoptedFields []string `json:"adoptedFields,omitempty"`
	// change is the change that the live configuration needs to match the desired one; absent if there is none.
	// +optional
	Change *MachineChange `json:"change,omitempty"`
	// intent is the step that is in progress.
	// +optional
	Intent *MachineIntent `json:"intent,omitempty"`
	// images are those of the version that the cluster is about to be upgraded to. Absent if there is none.
	// +optional
	Images *MachineImages `json:"images,omitempty"`
	// soakingSince is the time since when the machine has been healthy after its last change. Absent once that was for the
	// soakTime of its group.
	// +optional
	SoakingSince *metav1.Time `json:"soakingSince,omitempty"`
	// lastError is the last error of this node, without secrets.
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
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the desired state.
	// +required
	Spec TalosMachineSpec `json:"spec,omitzero"`
	// status reports the observed state.
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
