package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	talosv1alpha1 "github.com/talos-operator/talos-operator/api/v1alpha1"
)

// ProviderStatic is the built-in provider for machines that exist already: it hands out the addresses of the template.
const ProviderStatic = "static"

// Provider says who gives a machine its infrastructure.
// +kubebuilder:validation:XValidation:rule="!has(self.addresses) || (has(self.name) && self.name == 'static')",message="addresses belong to the static provider"
// +kubebuilder:validation:XValidation:rule="!has(self.maintenanceFingerprints) || (has(self.addresses) && size(self.maintenanceFingerprints) <= size(self.addresses))",message="maintenanceFingerprints belong to addresses, one to each"
type Provider struct {
	// name of the provider: static, or the name that another provider answers to. Without a name the machine waits until
	// a provider claims it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// addresses of existing machines, for the static provider. In a template: one for each replica and each spare, in the
	// order of their index. In a generated Machine: its own.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=45
	Addresses []string `json:"addresses,omitempty"`
	// maintenanceFingerprints of the certificates that these machines show in maintenance mode, in the order of addresses:
	// base64 of the SHA-256 of the public key, as each machine prints it on its console ("server certificate fingerprint").
	// A machine that shows another certificate gets nothing; an empty text accepts every certificate. Talos makes a new
	// certificate with each boot into maintenance mode, so a value is that of the current boot.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=44
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)?$`
	MaintenanceFingerprints []string `json:"maintenanceFingerprints,omitempty"`
	// parameters for the provider; their meaning is the provider's.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Parameters map[string]string `json:"parameters,omitempty"`
}

// Disk is a wish for a disk of a virtual machine. The first one is the boot disk.
type Disk struct {
	// size of the disk.
	// +required
	Size resource.Quantity `json:"size"`
	// class of the storage, in the words of the provider.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Class string `json:"class,omitempty"`
}

// Hardware is a wish for the size of a virtual machine; a provider of physical machines may ignore it.
type Hardware struct {
	// class of the machine, in the words of the provider.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Class string `json:"class,omitempty"`
	// cpus is the number of processors.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	CPUs int32 `json:"cpus,omitempty"`
	// memory of the machine.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// disks of the machine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Disks []Disk `json:"disks,omitempty"`
	// architecture of the processor: amd64 or arm64. Default: amd64.
	// +optional
	// +kubebuilder:validation:Enum=amd64;arm64
	Architecture string `json:"architecture,omitempty"`
}

// MachineTalosSettings is what the operator adds to a generated Machine, so that providers and people see what it is for.
type MachineTalosSettings struct {
	// machineType is controlplane or worker.
	// +optional
	// +kubebuilder:validation:Enum=controlplane;worker
	MachineType string `json:"machineType,omitempty"`
	// clusterEndpoint is the Kubernetes API endpoint.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ClusterEndpoint string `json:"clusterEndpoint,omitempty"`
	// installDisk is the target installation disk.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstallDisk string `json:"installDisk,omitempty"`
}

// ReclaimPolicy says what a provider does with the infrastructure when the Machine is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type ReclaimPolicy string

// Reclaim policies.
const (
	// ReclaimDelete: the provider may take the infrastructure back. It is the default.
	ReclaimDelete ReclaimPolicy = "Delete"
	// ReclaimRetain: the provider leaves the machine running.
	ReclaimRetain ReclaimPolicy = "Retain"
)

// MachineSpec describes one piece of infrastructure that becomes one node.
type MachineSpec struct {
	// provider gives the machine its infrastructure and fills in the status.
	// +optional
	Provider Provider `json:"provider,omitzero"`
	// hardware is a wish, for providers of virtual machines.
	// +optional
	Hardware *Hardware `json:"hardware,omitempty"`
	// install says how Talos is installed, in particular on which disk.
	// +optional
	Install *talosv1alpha1.InstallOptions `json:"install,omitempty"`
	// network of this machine.
	// +optional
	Network *talosv1alpha1.MachineNetwork `json:"network,omitempty"`
	// nodeLabels of the Kubernetes Node.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// nodeTaints of the Kubernetes Node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeTaints []corev1.Taint `json:"nodeTaints,omitempty"`
	// configPatches change the machine config.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=65536
	ConfigPatches []string `json:"configPatches,omitempty"`
	// reclaimPolicy says what the provider does when the Machine is deleted. Default: Delete. The operator sets Retain for
	// clusters whose deletionPolicy is Preserve.
	// +optional
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// talosConfig is written by the operator.
	// +optional
	TalosConfig *MachineTalosSettings `json:"talosConfig,omitempty"`
}

// MachinePhase is where a machine is in its life, as its provider sees it.
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Failed;Deleting
type MachinePhase string

// Machine phases.
const (
	// MachinePending: no provider has begun.
	MachinePending MachinePhase = "Pending"
	// MachineProvisioning: the provider is at work.
	MachineProvisioning MachinePhase = "Provisioning"
	// MachineRunning: the machine is powered on and has an address.
	MachineRunning MachinePhase = "Running"
	// MachineFailed: the provider gave up; the conditions say why.
	MachineFailed MachinePhase = "Failed"
	// MachineDeleting: the provider takes the infrastructure back.
	MachineDeleting MachinePhase = "Deleting"
)

// AddressType is the kind of an address, in the words of Kubernetes.
// +kubebuilder:validation:Enum=InternalIP;ExternalIP;Hostname
type AddressType string

// Address types.
const (
	// AddressInternalIP is what the operator connects to; the first one counts.
	AddressInternalIP AddressType = "InternalIP"
	// AddressExternalIP is used where there is no internal one.
	AddressExternalIP AddressType = "ExternalIP"
	// AddressHostname is for people.
	AddressHostname AddressType = "Hostname"
)

// MachineAddress is one address of a machine.
type MachineAddress struct {
	// type of the address.
	// +required
	Type AddressType `json:"type"`
	// address itself.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Address string `json:"address"`
}

// MachineConditionReady is set by the provider: the machine is powered on and its addresses are final.
const MachineConditionReady = "Ready"

// MachineStatus is the contract with infrastructure providers: the provider fills it in, the operator only reads it.
type MachineStatus struct {
	// conditions: Ready, set by the provider.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// phase of the machine.
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// addresses of the machine. The operator connects to the first InternalIP, else to the first ExternalIP.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []MachineAddress `json:"addresses,omitempty"`
	// nodeRef names the TalosMachine that runs on this machine; the operator fills it in.
	// +optional
	NodeRef *talosv1alpha1.ObjectReference `json:"nodeRef,omitempty"`
	// providerID identifies the infrastructure, in the words of the provider.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
	// observedGeneration is the generation of the spec that the provider acted on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Machine is one piece of infrastructure.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=m,categories=talos
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.metadata.labels.cluster\.vitistack\.io/role`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider.name`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.addresses[0].address`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Machine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +optional
	Spec MachineSpec `json:"spec,omitzero"`
	// status is filled in by the provider.
	// +optional
	Status MachineStatus `json:"status,omitzero"`
}

// MachineList is a list of machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}
