package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels, annotations and finalizers of this group.
const (
	// Finalizer holds an object until the operator has finished its part of the deletion.
	Finalizer = "talos-operator.io/finalizer"
	// StateFinalizer on a state Secret holds it while its TalosControlPlane exists: without the Secret the nodes run on and
	// cannot be managed any more.
	StateFinalizer = "talos-operator.io/in-use-by-control-plane"
	// PausedAnnotation, with any value but "false", stops all writes to the nodes below an object, deletions included.
	PausedAnnotation = "talos-operator.io/paused"
	// ReconcileModeAnnotation on a KubernetesCluster, TalosControlPlane, TalosWorker or TalosMachine says how much is done
	// for it and for everything below it: a ReconcileMode. Another value counts as DryRun.
	ReconcileModeAnnotation = "talos-operator.io/reconcile-mode"
	// SkipResetAnnotation on a TalosMachine, value "true", lets a deletion go on without resetting a node that cannot
	// be reached. The node keeps its data and its credentials: wipe it before it is powered on again.
	SkipResetAnnotation = "talos-operator.io/skip-reset"
	// AllowBootstrapAnnotation on a TalosControlPlane, value "true", allows a new and empty etcd after a cluster that
	// was already established has lost the etcd data of every control-plane node. It is taken off once a node was chosen.
	AllowBootstrapAnnotation = "talos-operator.io/allow-new-etcd"
	// ForgetMachinesAnnotation on a TalosControlPlane, a list of names separated by commas, says of machines that are not
	// listed any more that they are wiped or destroyed: what they may hold of etcd's data does not count any more. It is
	// taken off once they are forgotten. A machine that is listed is not forgotten, nor is one that responds while it is
	// being taken out.
	ForgetMachinesAnnotation = "talos-operator.io/forget-machines"
	// WipeMachinesAnnotation on a TalosControlPlane, a list of names separated by commas, has machines wiped that were given
	// up and are back, although Kubernetes calls their Nodes ready. It is taken off once that is recorded.
	WipeMachinesAnnotation = "talos-operator.io/wipe-machines"
	// ReleaseStateAnnotation on a TalosControlPlane that is being deleted, value "true", lets a state Secret go that is being
	// deleted, too, although machines may still run under its PKI: a copy was saved, or the machines are gone.
	ReleaseStateAnnotation = "talos-operator.io/release-state"
	// TakeOverAnnotation on a TalosControlPlane confirms that it is to manage a cluster that another one managed last: its
	// value is the UID of that other one. It is taken off once that is recorded.
	TakeOverAnnotation = "talos-operator.io/take-over"
	// KeepNodeAnnotation, value "true", keeps a Node object of a managed cluster although it belongs to no machine and
	// nobody hears of it any more. On a TalosControlPlane it keeps all of that cluster.
	KeepNodeAnnotation = "talos-operator.io/keep-node"
	// ControlPlaneLabel names the TalosControlPlane that an object belongs to.
	ControlPlaneLabel = "talos-operator.io/control-plane"
	// WorkerLabel names the TalosWorker that a TalosMachine belongs to.
	WorkerLabel = "talos-operator.io/worker"
	// RoleLabel is the role of a TalosMachine: controlplane or worker.
	RoleLabel = "talos-operator.io/role"
)

// ReconcileMode says how much the operator does for an object.
type ReconcileMode string

// Reconcile modes. Of several, on an object and above it, the strictest counts.
const (
	// ReconcileModeReconcile does everything. It is the default.
	ReconcileModeReconcile ReconcileMode = "Reconcile"
	// ReconcileModeDryRun looks at everything and writes only status: nothing to a node or to another object.
	ReconcileModeDryRun ReconcileMode = "DryRun"
	// ReconcileModeDisabled does nothing at all; the condition Paused says so once.
	ReconcileModeDisabled ReconcileMode = "Disabled"
)

// Role is the part a machine plays in its cluster, in the words of Talos.
// +kubebuilder:validation:Enum=controlplane;worker
type Role string

// Roles.
const (
	// RoleControlPlane runs etcd and the Kubernetes control plane.
	RoleControlPlane Role = "controlplane"
	// RoleWorker runs workloads only.
	RoleWorker Role = "worker"
)

// DeletionPolicy says what becomes of the nodes when the object that describes them is deleted.
// +kubebuilder:validation:Enum=Preserve;Reset
type DeletionPolicy string

// Deletion policies.
const (
	// DeletionPreserve leaves the nodes running and removes only the operator's own objects. It is the default.
	DeletionPreserve DeletionPolicy = "Preserve"
	// DeletionReset leaves etcd properly, wipes the nodes and waits until they are back in maintenance mode.
	DeletionReset DeletionPolicy = "Reset"
)

// ObjectReference names an object in the same namespace.
type ObjectReference struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// DiskSelector picks an install disk by its properties; every property that is set must match. Texts may hold * as
// wildcard.
// +kubebuilder:validation:MinProperties=1
type DiskSelector struct {
	// minSize is the least size of the disk, for example 100GB (decimal) or 100GiB (binary).
	// +optional
	// +kubebuilder:validation:MaxLength=32
	MinSize string `json:"minSize,omitempty"`
	// maxSize is the greatest size of the disk, in the format of minSize.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	MaxSize string `json:"maxSize,omitempty"`
	// type of the disk.
	// +optional
	// +kubebuilder:validation:Enum=ssd;hdd;nvme;sd
	Type string `json:"type,omitempty"`
	// model of the disk, as the node reports it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Model string `json:"model,omitempty"`
	// serial number of the disk.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Serial string `json:"serial,omitempty"`
	// wwid is the World Wide ID of the disk.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	WWID string `json:"wwid,omitempty"`
	// busPath of the disk.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	BusPath string `json:"busPath,omitempty"`
}

// InstallOptions say how Talos is installed.
// +kubebuilder:validation:XValidation:rule="!(has(self.disk) && has(self.diskSelector))",message="set disk or diskSelector, not both"
type InstallOptions struct {
	// disk is the device path to install to, for example /dev/sda. Without disk and diskSelector the operator takes the
	// only sensible disk of the machine, and waits when there are several.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/dev/.+$`
	Disk string `json:"disk,omitempty"`
	// diskSelector picks the disk by its properties.
	// +optional
	DiskSelector *DiskSelector `json:"diskSelector,omitempty"`
	// image is the installer image with its tag. Default: ghcr.io/siderolabs/installer with the Talos version as tag.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
	// bootloader says whether a boot loader is installed. Default: true.
	// +optional
	Bootloader *bool `json:"bootloader,omitempty"`
	// wipe allows an installation over a disk that holds something else. Default: false.
	// +optional
	Wipe *bool `json:"wipe,omitempty"`
	// extraKernelArgs are added to the kernel command line.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	ExtraKernelArgs []string `json:"extraKernelArgs,omitempty"`
}

// KubeletOptions change the kubelet.
type KubeletOptions struct {
	// image of the kubelet without tag; the tag is the Kubernetes version. Default: ghcr.io/siderolabs/kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
	// extraArgs are passed to the kubelet, without leading dashes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
}

// RegistryMirror lists the endpoints that serve images of one registry.
type RegistryMirror struct {
	// registry host that is mirrored, or * for all others.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Registry string `json:"registry,omitempty"`
	// endpoints are tried in order.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	Endpoints []string `json:"endpoints,omitempty"`
	// overridePath uses the path of the endpoint as it stands. Default: false.
	// +optional
	OverridePath *bool `json:"overridePath,omitempty"`
	// skipFallback never asks the registry itself. Default: false.
	// +optional
	SkipFallback *bool `json:"skipFallback,omitempty"`
}

// Registries configure where nodes pull images.
type Registries struct {
	// mirrors by registry.
	// +optional
	// +listType=map
	// +listMapKey=registry
	// +kubebuilder:validation:MaxItems=64
	Mirrors []RegistryMirror `json:"mirrors,omitempty"`
}

// CNIName is how the cluster's pod network comes to be.
// +kubebuilder:validation:Enum=flannel;custom;none
type CNIName string

// CNI names.
const (
	// CNIFlannel is what Talos installs by default.
	CNIFlannel CNIName = "flannel"
	// CNICustom applies the manifests named by urls.
	CNICustom CNIName = "custom"
	// CNINone installs nothing.
	CNINone CNIName = "none"
)

// CNI of a cluster.
// +kubebuilder:validation:XValidation:rule="self.name == 'custom' ? has(self.urls) : !has(self.urls)",message="urls belong to the custom CNI, which needs them"
type CNI struct {
	// name of the CNI.
	// +required
	Name CNIName `json:"name,omitempty"`
	// urls of the manifests of a custom CNI.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=1024
	URLs []string `json:"urls,omitempty"`
}

// ClusterNetwork is the network inside a cluster.
type ClusterNetwork struct {
	// podSubnets are the pod networks: one IPv4 or IPv6 network, or one of each. Default: 10.244.0.0/16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, isCIDR(s))",message="podSubnets must be networks in CIDR notation"
	PodSubnets []string `json:"podSubnets,omitempty"`
	// serviceSubnets are the service networks: one IPv4 or IPv6 network, or one of each. Default: 10.96.0.0/12.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, isCIDR(s))",message="serviceSubnets must be networks in CIDR notation"
	ServiceSubnets []string `json:"serviceSubnets,omitempty"`
	// dnsDomain of the cluster. Default: cluster.local.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DNSDomain string `json:"dnsDomain,omitempty"`
	// cni of the cluster. Default: flannel.
	// +optional
	CNI *CNI `json:"cni,omitempty"`
}

// MachineNetwork is the network of one machine.
type MachineNetwork struct {
	// hostname of the machine. Default: the name of the TalosMachine.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Hostname string `json:"hostname,omitempty"`
	// nameservers by address.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=64
	Nameservers []string `json:"nameservers,omitempty"`
	// interfaces with their addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Interfaces []NetworkInterface `json:"interfaces,omitempty"`
}

// NetworkInterface is one interface, found by its name or its hardware address.
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.macAddress)",message="set name or macAddress, not both"
type NetworkInterface struct {
	// name of the interface, for example eth0.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Name string `json:"name,omitempty"`
	// macAddress of the interface.
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$`
	MACAddress string `json:"macAddress,omitempty"`
	// dhcp asks for an address. Default: false.
	// +optional
	DHCP *bool `json:"dhcp,omitempty"`
	// addresses in CIDR notation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses,omitempty"`
	// routes over this interface.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Routes []Route `json:"routes,omitempty"`
	// mtu in bytes. Default: what the kernel sets.
	// +optional
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
}

// Route is one static route.
type Route struct {
	// network is the destination in CIDR notation. Default: the default route of the gateway's family.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Network string `json:"network,omitempty"`
	// gateway address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Gateway string `json:"gateway,omitempty"`
}

// NodeOptions are settings of a group of machines; those of one machine win over those of its group.
type NodeOptions struct {
	// install says how Talos is installed.
	// +optional
	Install *InstallOptions `json:"install,omitempty"`
	// kubelet changes the kubelet.
	// +optional
	Kubelet *KubeletOptions `json:"kubelet,omitempty"`
	// nodeLabels of the Kubernetes Node.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// nodeTaints of the Kubernetes Node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeTaints []corev1.Taint `json:"nodeTaints,omitempty"`
	// registries configure where images are pulled.
	// +optional
	Registries *Registries `json:"registries,omitempty"`
	// configPatches change the generated machine config, in order: strategic merge patches (also multi-document and with
	// "$patch: delete"), or RFC 6902 where the config is a single document.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=65536
	ConfigPatches []string `json:"configPatches,omitempty"`
	// drain says how pods leave a node before it is disrupted.
	// +optional
	Drain *DrainOptions `json:"drain,omitempty"`
}

// DrainOptions say how pods leave a node. Evictions respect PodDisruptionBudgets.
type DrainOptions struct {
	// timeout after which onTimeout decides; 5m unless set.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// gracePeriodSeconds that pods get; their own unless set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`
	// onTimeout: Hold waits for a person (default), Force deletes the pods that are left without asking their
	// PodDisruptionBudgets, Skip goes on and leaves them.
	// +optional
	OnTimeout DrainTimeout `json:"onTimeout,omitempty"`
}

// DrainTimeout is what happens to a node that cannot be drained in time.
// +kubebuilder:validation:Enum=Hold;Force;Skip
type DrainTimeout string

// Outcomes of a drain that takes too long.
const (
	// DrainHold waits for a person.
	DrainHold DrainTimeout = "Hold"
	// DrainForce deletes the pods that are left.
	DrainForce DrainTimeout = "Force"
	// DrainSkip goes on without them.
	DrainSkip DrainTimeout = "Skip"
)

// MachineEntry is one machine of a control plane or a worker group.
// +kubebuilder:validation:XValidation:rule="has(self.address) != has(self.machineRef)",message="set address or machineRef, not both"
type MachineEntry struct {
	// name of the TalosMachine, and of the node unless network.hostname says otherwise. Unique in the namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// address of the machine's Talos API, an IP address.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	Address string `json:"address,omitempty"`
	// machineRef names a Machine (vitistack.io) whose provider fills in the address.
	// +optional
	MachineRef *ObjectReference `json:"machineRef,omitempty"`
	// maintenanceFingerprint is what the certificate of this machine in maintenance mode has to have: base64 of the SHA-256
	// of its public key (SubjectPublicKeyInfo), 44 characters, as the machine prints it on its console ("server certificate
	// fingerprint") and as talosctl --cert-fingerprint takes it. A machine that shows another certificate gets nothing.
	// Talos makes a new certificate with each boot into maintenance mode, and when the addresses of the machine change: the
	// value is that of the current boot, and without effect once the machine has its config. Default: every certificate is
	// accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`
	// network of this machine.
	// +optional
	Network *MachineNetwork `json:"network,omitempty"`

	NodeOptions `json:",inline"`
}
