package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	talosv1alpha1 "github.com/talos-operator/talos-operator/api/v1alpha1"
)

// ProviderStatic is the built-in provider for existing machines: it assigns the addresses of the template.
const ProviderStatic = "static"

// Provider determines which infrastructure provider supplies a machine.
// +kubebuilder:validation:XValidation:rule="!has(self.addresses) || (has(self.name) && self.name == 'static')",message="addresses are only valid for the static provider"
// +kubebuilder:validation:XValidation:rule="!has(self.maintenanceFingerprints) || (has(self.addresses) && size(self.maintenanceFingerprints) <= size(self.addresses))",message="maintenanceFingerprints must not have more entries than addresses"
type Provider struct {
	// name of the provider: static, or the name that another provider handles. Without a name, the machine waits until a
	// provider claims it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Name string `json:"name,omitempty"`
	// addresses of existing machines, for the static provider. In a template: one for each replica and each spare, in
	// index order. In a generated Machine: its own address.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	Addresses []string `json:"addresses,omitempty"`
	// maintenanceFingerprints are the expected fingerprints of the certificates that these machines present in maintenance
	// mode, in the order of addresses: the base64-encoded SHA-256 of the public key, as each machine prints it on its
	// console ("server certificate fingerprint"). Nothing is sent to a machine that presents another certificate; an empty
	// string accepts every certificate. Talos creates a new certificate at each boot into maintenance mode, so a value
	// applies to the current boot only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=44
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)?$`
	MaintenanceFingerprints []string `json:"maintenanceFingerprints,omitempty"`
	// parameters for the provider, which defines their meaning.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 253 && size(self[k]) <= 16384)",message="the name of a parameter must have at most 253 characters, and its value at most 16384"
	Parameters map[string]string `json:"parameters,omitempty"`
}

// Disk is a requested disk of a virtual machine. The first one is the boot disk.
type Disk struct {
	// size of the disk.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a quantity such as 16Gi"
	Size resource.Quantity `json:"size"`
	// class of the storage, as the provider names it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Class string `json:"class,omitempty"`
}

// Hardware is the requested size of a virtual machine. A provider of physical machines may ignore it.
type Hardware struct {
	// class of the machine, as the provider names it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Class string `json:"class,omitempty"`
	// cpus is the number of processors.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	CPUs int32 `json:"cpus,omitempty"`
	// memory of the machine.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a quantity such as 16Gi"
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

// MachineTalosSettings is written by the operator to a generated Machine and tells providers and users its purpose.
type MachineTalosSettings struct {
	// machineType is controlplane or worker.
	// +optional
	// +kubebuilder:validation:Enum=controlplane;worker
	MachineType string `json:"machineType,omitempty"`
	// clusterEndpoint is the Kubernetes API endpoint.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	ClusterEndpoint string `json:"clusterEndpoint,omitempty"`
	// installDisk is the target installation disk: the one that the spec of the cluster names, or else the one that was
	// chosen, once Talos is installed.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	InstallDisk string `json:"installDisk,omitempty"`
}

// ReclaimPolicy determines what a provider does with the infrastructure when the Machine is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type ReclaimPolicy string

// Reclaim policies.
const (
	// ReclaimDelete: the provider may reclaim the infrastructure. It is the default.
	ReclaimDelete ReclaimPolicy = "Delete"
	// ReclaimRetain: the provider leaves the machine running.
	ReclaimRetain ReclaimPolicy = "Retain"
)

// MachineSpec describes one piece of infrastructure that becomes one node.
type MachineSpec struct {
	// provider supplies the infrastructure of the machine and writes the status.
	// +optional
	Provider Provider `json:"provider,omitzero"`
	// hardware is the requested hardware, for providers of virtual machines.
	// +optional
	Hardware *Hardware `json:"hardware,omitempty"`
	// install determines how Talos is installed, in particular on which disk.
	// +optional
	Install *talosv1alpha1.InstallOptions `json:"install,omitempty"`
	// network configuration of this machine.
	// +optional
	Network *talosv1alpha1.MachineNetwork `json:"network,omitempty"`
	// nodeLabels are labels of the Kubernetes Node.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="the key of a label must have at most 317 characters, and its value at most 63"
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// nodeAnnotations are annotations of the Kubernetes Node. Do not put secrets here.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 2048)",message="the key of an annotation must have at most 317 characters, and its value at most 2048"
	NodeAnnotations map[string]string `json:"nodeAnnotations,omitempty"`
	// nodeTaints are taints of the Kubernetes Node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(t, size(t.key) <= 317 && (!has(t.value) || size(t.value) <= 63) && t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'] && !has(t.timeAdded))",message="the key of a taint must have at most 317 characters, its value at most 63, its effect must be NoSchedule, PreferNoSchedule or NoExecute, and timeAdded must not be set"
	NodeTaints []corev1.Taint `json:"nodeTaints,omitempty"`
	// ingressFirewall determines which packets from the network the machine accepts. Default: that of the cluster.
	// +optional
	IngressFirewall *talosv1alpha1.IngressFirewall `json:"ingressFirewall,omitempty"`
	// extensionServices configure services that system extensions of the installer image bring, by their names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	ExtensionServices []talosv1alpha1.ExtensionService `json:"extensionServices,omitempty"`
	// staticPods are Pods (v1) that the kubelet runs without the Kubernetes API, as soon as it runs itself. Fields
	// for which the operator has no rule are refused, and the others are checked. Do not put secrets here: everyone with
	// read access to the object can read them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Type=object
	// +kubebuilder:validation:items:XPreserveUnknownFields
	StaticPods []runtime.RawExtension `json:"staticPods,omitempty"`
	// volumes determine where the volumes of Talos are provisioned, how large they become, and how they are encrypted.
	// +optional
	Volumes *talosv1alpha1.Volumes `json:"volumes,omitempty"`
	// kernel configures the kernel, without its command line.
	// +optional
	Kernel *talosv1alpha1.KernelOptions `json:"kernel,omitempty"`
	// sysctls are parameters of the kernel below /proc/sys by their names, for example vm.max_map_count. Default: what
	// Talos sets.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 253 && size(self[k]) <= 1024)",message="the name of a parameter must have at most 253 characters, and its value at most 1024"
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// sysfs are files below /sys by their paths, with dots or slashes, and what is written into them, for example
	// devices.system.cpu.cpu0.cpufreq.scaling_governor. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 253 && size(self[k]) <= 1024)",message="the path of a file must have at most 253 characters, and its value at most 1024"
	Sysfs map[string]string `json:"sysfs,omitempty"`

	talosv1alpha1.SystemOptions `json:",inline"`

	// configPatches are applied to the machine configuration.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=65536
	ConfigPatches []string `json:"configPatches,omitempty"`
	// configPatchesFrom are further patches, in ConfigMaps and Secrets of the namespace. They are applied in order, after
	// configPatches.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ConfigPatchesFrom []talosv1alpha1.ConfigPatchSource `json:"configPatchesFrom,omitempty"`
	// reclaimPolicy determines what the provider does when the Machine is deleted. Default: Delete. The operator sets
	// Retain for clusters whose deletionPolicy is Preserve.
	// +optional
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// talosConfig is written by the operator.
	// +optional
	TalosConfig *MachineTalosSettings `json:"talosConfig,omitempty"`
}

// MachinePhase is the lifecycle phase of a machine, as its provider reports it.
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Failed;Deleting
type MachinePhase string

// Machine phases.
const (
	// MachinePending: no provider has started yet.
	MachinePending MachinePhase = "Pending"
	// MachineProvisioning: the provider is provisioning the machine.
	MachineProvisioning MachinePhase = "Provisioning"
	// MachineRunning: the machine is powered on and has an address.
	MachineRunning MachinePhase = "Running"
	// MachineFailed: the provider failed permanently; the conditions say why.
	MachineFailed MachinePhase = "Failed"
	// MachineDeleting: the provider is reclaiming the infrastructure.
	MachineDeleting MachinePhase = "Deleting"
)

// AddressType is the type of an address, as Kubernetes names it.
// +kubebuilder:validation:Enum=InternalIP;ExternalIP;Hostname
type AddressType string

// Address types.
const (
	// AddressInternalIP is an address that the operator connects to. It uses the first one.
	AddressInternalIP AddressType = "InternalIP"
	// AddressExternalIP is used if there is no internal address.
	AddressExternalIP AddressType = "ExternalIP"
	// AddressHostname is informational only.
	AddressHostname AddressType = "Hostname"
)

// MachineAddress is one address of a machine.
type MachineAddress struct {
	// type of the address.
	// +required
	Type AddressType `json:"type"`
	// address is the value of the address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Address string `json:"address"`
}

// Condition types of a Machine.
const (
	// MachineConditionReady: the machine is powered on and its addresses are final. Its provider sets the condition.
	//
	// On: Machine. Expected: True.
	//
	// Next: check the provider; the reason is one of its own, or of the static provider.
	MachineConditionReady = "Ready"
)

// MachineStatus is the contract with infrastructure providers: the provider writes it, the operator only reads it,
// except for consumerRef.
type MachineStatus struct {
	// conditions are Ready, set by the provider.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// phase of the machine.
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// addresses of the machine. The operator connects to the first InternalIP, or to the first ExternalIP if there is
	// none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Addresses []MachineAddress `json:"addresses,omitempty"`
	// consumerRef names the TalosMachine that uses this machine. The operator sets it.
	// +optional
	ConsumerRef *talosv1alpha1.ObjectReference `json:"consumerRef,omitempty"`
	// providerID identifies the infrastructure, in the format of the provider.
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
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the desired state.
	// +optional
	Spec MachineSpec `json:"spec,omitzero"`
	// status reports the observed state and is written by the provider.
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
