package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Labels, annotations and finalizers of this group.
const (
	// Finalizer keeps an object until the operator has finished its part of the deletion.
	Finalizer = "talos-operator.io/finalizer"
	// StateFinalizer keeps a state Secret while its TalosControlPlane exists: without the Secret, the nodes continue to
	// run but can no longer be managed.
	StateFinalizer = "talos-operator.io/in-use-by-control-plane"
	// PausedAnnotation, with any value but "false", stops all writes to the nodes below an object, including deletions.
	PausedAnnotation = "talos-operator.io/paused"
	// ReconcileModeAnnotation sets the ReconcileMode of an object and of everything below it. An unknown value is treated
	// as DryRun.
	ReconcileModeAnnotation = "talos-operator.io/reconcile-mode"
	// SkipResetAnnotation on a TalosMachine, value "true", lets a deletion continue without resetting an unreachable node.
	// The node keeps its data and its credentials: wipe it before it is powered on again.
	SkipResetAnnotation = "talos-operator.io/skip-reset"
	// AllowBootstrapAnnotation on a TalosControlPlane, value "true", allows the bootstrap of a new, empty etcd after an
	// established cluster has lost the etcd data of every control-plane node. The operator removes the annotation once it
	// has chosen a node.
	AllowBootstrapAnnotation = "talos-operator.io/allow-new-etcd"
	// ForgetMachinesAnnotation on a TalosControlPlane, a comma-separated list of names, confirms that machines which are
	// no longer listed are wiped or destroyed: etcd data that they may still have is then ignored. The operator removes
	// the annotation once the machines are forgotten. A machine that is listed is not forgotten, nor is one that still
	// responds while it is being removed.
	ForgetMachinesAnnotation = "talos-operator.io/forget-machines"
	// WipeMachinesAnnotation on a TalosControlPlane, a comma-separated list of names, wipes abandoned machines that have
	// returned, even if their Nodes are Ready. The operator removes the annotation once it has recorded the request.
	WipeMachinesAnnotation = "talos-operator.io/wipe-machines"
	// ReleaseStateAnnotation on a TalosControlPlane that is being deleted, value "true", releases a state Secret that is
	// also being deleted, although machines may still run under its PKI. Set it only when a copy was saved or the machines
	// are gone.
	ReleaseStateAnnotation = "talos-operator.io/release-state"
	// TakeOverAnnotation on a TalosControlPlane confirms that it takes over a cluster that another TalosControlPlane
	// managed last; the value is the UID of that object. The operator removes the annotation once it has recorded the
	// takeover.
	TakeOverAnnotation = "talos-operator.io/take-over"
	// KeepNodeAnnotation, value "true", keeps a Node object of a managed cluster although it is orphaned and no longer
	// reports to Kubernetes. On a TalosControlPlane it keeps all Node objects of that cluster.
	KeepNodeAnnotation = "talos-operator.io/keep-node"
	// ControlPlaneLabel names the TalosControlPlane that an object belongs to.
	ControlPlaneLabel = "talos-operator.io/control-plane"
	// WorkerLabel names the TalosWorker that a TalosMachine belongs to.
	WorkerLabel = "talos-operator.io/worker"
	// RoleLabel is the role of a TalosMachine: controlplane or worker.
	RoleLabel = "talos-operator.io/role"
	// ShardLabel is the number of the shard that an object's cluster belongs to. Only an operator with several shards
	// (--shards) sets and reads it.
	ShardLabel = "talos-operator.io/shard"
)

// ReconcileMode determines what the operator may do for an object.
type ReconcileMode string

// Reconcile modes. If an object and its parents have different modes, the strictest applies.
const (
	// ReconcileModeReconcile observes and writes without restriction. It is the default.
	ReconcileModeReconcile ReconcileMode = "Reconcile"
	// ReconcileModeDryRun observes everything and writes only status: nothing to a node or to another object.
	ReconcileModeDryRun ReconcileMode = "DryRun"
	// ReconcileModeDisabled does nothing at all; the condition Paused reports this once.
	ReconcileModeDisabled ReconcileMode = "Disabled"
)

// Role is the role of a machine in its cluster, as Talos names it.
// +kubebuilder:validation:Enum=controlplane;worker
type Role string

// Roles.
const (
	// RoleControlPlane runs etcd and the Kubernetes control plane.
	RoleControlPlane Role = "controlplane"
	// RoleWorker runs workloads only.
	RoleWorker Role = "worker"
)

// DeletionPolicy determines what happens to the nodes when the object that describes them is deleted. Lower case is
// accepted, too.
// +kubebuilder:validation:Enum=Preserve;Reset;preserve;reset
type DeletionPolicy string

// Deletion policies.
const (
	// DeletionPreserve leaves the nodes running and removes only the operator's own objects. It is the default.
	DeletionPreserve DeletionPolicy = "Preserve"
	// DeletionReset removes the members from etcd, wipes the nodes and waits until they are back in maintenance mode.
	DeletionReset DeletionPolicy = "Reset"
)

// UnmarshalJSON reads a policy. The first documentation of this API printed the policies in lower case: an object
// keeps that spelling, and whatever decodes it sees one of the constants, so that no comparison can take "reset" for
// no policy.
func (p *DeletionPolicy) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("reading a deletion policy: %w", err)
	}

	*p = DeletionPolicy(text)

	for _, known := range []DeletionPolicy{DeletionPreserve, DeletionReset} {
		if text == strings.ToLower(string(known)) {
			*p = known
		}
	}

	return nil
}

// ObjectReference names an object in the same namespace.
type ObjectReference struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// DiskSelector selects an install disk by its properties; every property that is set must match. Strings may contain *
// as a wildcard.
// +kubebuilder:validation:MinProperties=1
type DiskSelector struct {
	// minSize is the minimum size of the disk, for example 100GB (decimal) or 100GiB (binary).
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	MinSize string `json:"minSize,omitempty"`
	// maxSize is the maximum size of the disk, in the format of minSize.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	MaxSize string `json:"maxSize,omitempty"`
	// type of the disk.
	// +optional
	// +kubebuilder:validation:Enum=ssd;hdd;nvme;sd
	Type string `json:"type,omitempty"`
	// model of the disk, as the node reports it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Model string `json:"model,omitempty"`
	// serial number of the disk.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Serial string `json:"serial,omitempty"`
	// wwid is the World Wide ID of the disk.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	WWID string `json:"wwid,omitempty"`
	// busPath of the disk.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	BusPath string `json:"busPath,omitempty"`
}

// InstallOptions determine how Talos is installed.
// +kubebuilder:validation:XValidation:rule="!(has(self.disk) && has(self.diskSelector))",message="set disk or diskSelector, not both"
// +kubebuilder:validation:XValidation:rule="!(has(self.image) && has(self.schematic))",message="set image or schematic, not both"
type InstallOptions struct {
	// disk is the device path to install to, for example /dev/sda. Without disk and diskSelector, the operator uses the
	// only suitable disk of the machine, and waits if there are several.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/dev/.+$`
	Disk string `json:"disk,omitempty"`
	// diskSelector selects the install disk by its properties.
	// +optional
	DiskSelector *DiskSelector `json:"diskSelector,omitempty"`
	// image is the installer image with its tag, if it is none of an image factory by schematic. Default:
	// ghcr.io/siderolabs/installer with the Talos version as tag.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Image string `json:"image,omitempty"`
	// bootloader determines whether a boot loader is installed. Default: true.
	// +optional
	Bootloader *bool `json:"bootloader,omitempty"`
	// wipe allows the installation to overwrite a disk that contains other data. Default: false.
	// +optional
	Wipe *bool `json:"wipe,omitempty"`
	// extraKernelArgs are added to the kernel command line.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	ExtraKernelArgs []string `json:"extraKernelArgs,omitempty"`

	ImageOptions `json:",inline"`
}

// KubeletOptions customize the kubelet.
type KubeletOptions struct {
	// image of the kubelet without a tag; the tag is the Kubernetes version. Default: ghcr.io/siderolabs/kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Image string `json:"image,omitempty"`
	// extraArgs are passed to the kubelet; names without leading dashes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 253 && size(self[k]) <= 4096)",message="the name of an argument must have at most 253 characters, and its value at most 4096"
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
}

// CNIName determines how the pod network of the cluster is installed.
// +kubebuilder:validation:Enum=flannel;custom;none
type CNIName string

// CNI names.
const (
	// CNIFlannel is the CNI that Talos installs by default.
	CNIFlannel CNIName = "flannel"
	// CNICustom applies the manifests named by urls.
	CNICustom CNIName = "custom"
	// CNINone installs no CNI.
	CNINone CNIName = "none"
)

// CNI is the pod network plugin of a cluster.
// +kubebuilder:validation:XValidation:rule="self.name == 'custom' ? has(self.urls) : !has(self.urls)",message="urls are required for the custom CNI, and only valid for it"
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
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	URLs []string `json:"urls,omitempty"`
}

// ClusterNetwork is the network configuration inside a cluster.
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
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	DNSDomain string `json:"dnsDomain,omitempty"`
	// cni of the cluster. Default: flannel.
	// +optional
	CNI *CNI `json:"cni,omitempty"`
}

// NodeOptions are settings of a group of machines. Settings of a single machine take precedence over those of its
// group.
type NodeOptions struct {
	// install determines how Talos is installed.
	// +optional
	Install *InstallOptions `json:"install,omitempty"`
	// kubelet customizes the kubelet.
	// +optional
	Kubelet *KubeletOptions `json:"kubelet,omitempty"`
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
	// registries configure where images are pulled from.
	// +optional
	Registries *Registries `json:"registries,omitempty"`
	// ingressFirewall determines which packets from the network a machine accepts. Default: all.
	// +optional
	IngressFirewall *IngressFirewall `json:"ingressFirewall,omitempty"`
	// extensionServices configure services that system extensions of the installer image bring, by their names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	ExtensionServices []ExtensionService `json:"extensionServices,omitempty"`
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
	Volumes *Volumes `json:"volumes,omitempty"`
	// kernel configures the kernel, without its command line.
	// +optional
	Kernel *KernelOptions `json:"kernel,omitempty"`
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

	SystemOptions `json:",inline"`

	// configPatches are applied to the generated machine configuration, in order: strategic merge patches (also
	// multi-document and with "$patch: delete"), or RFC 6902 JSON patches: a list of operations on the main document, or
	// target (kind and name of another document) and operations.
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
	ConfigPatchesFrom []ConfigPatchSource `json:"configPatchesFrom,omitempty"`
}

// GroupPolicy determines how the operator treats the machines of a group: a control plane or a group of workers.
type GroupPolicy struct {
	// rollout determines how configuration changes are rolled out to the machines.
	// +optional
	Rollout *RolloutOptions `json:"rollout,omitempty"`
	// drift determines how the operator handles a machine configuration that was changed outside of the operator: Report
	// (default) reports the change, Enforce plans a change back, Adopt keeps it.
	// +optional
	Drift DriftPolicy `json:"drift,omitempty"`
	// remediation determines when machines that do not come back are replaced by the spares of their group. Without it,
	// the operator waits for them.
	// +optional
	Remediation *RemediationOptions `json:"remediation,omitempty"`
	// drain determines how pods are evicted from a node before it is disrupted.
	// +optional
	Drain *DrainOptions `json:"drain,omitempty"`
}

// DrainOptions determine how pods are evicted from a node. Evictions respect PodDisruptionBudgets.
type DrainOptions struct {
	// timeout of the drain, after which onTimeout applies. Default: 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="timeout must not be negative"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// gracePeriodSeconds overrides the termination grace period of the pods. Default: the grace period of each pod.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`
	// onTimeout is Hold (default), which waits for user action, Force, which deletes the remaining pods regardless of
	// their PodDisruptionBudgets, or Skip, which continues and leaves the remaining pods running.
	// +optional
	OnTimeout DrainTimeout `json:"onTimeout,omitempty"`
}

// DrainTimeout determines what happens when a node cannot be drained in time.
// +kubebuilder:validation:Enum=Hold;Force;Skip
type DrainTimeout string

// Policies for a drain that exceeds its timeout.
const (
	// DrainHold waits for user action.
	DrainHold DrainTimeout = "Hold"
	// DrainForce deletes the remaining pods.
	DrainForce DrainTimeout = "Force"
	// DrainSkip continues without evicting the remaining pods.
	DrainSkip DrainTimeout = "Skip"
)

// MachineEntry is one machine of a control plane or a worker group.
// +kubebuilder:validation:XValidation:rule="has(self.address) != has(self.machineRef)",message="set exactly one of address and machineRef"
type MachineEntry struct {
	// name of the TalosMachine, and of the node unless network.hostname is set. Unique in the namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// address is the IP address of the machine's Talos API.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	Address string `json:"address,omitempty"`
	// machineRef names a Machine (vitistack.io) whose provider assigns the address.
	// +optional
	MachineRef *ObjectReference `json:"machineRef,omitempty"`
	// maintenanceFingerprint is the expected fingerprint of the certificate that this machine presents in maintenance
	// mode: the base64-encoded SHA-256 of its public key (SubjectPublicKeyInfo), 44 characters, as the machine prints it
	// on its console ("server certificate fingerprint") and as talosctl --cert-fingerprint accepts it. Nothing is sent to
	// a machine that presents another certificate. Talos creates a new certificate at each boot into maintenance mode and
	// when the addresses of the machine change, so the value applies to the current boot only. It has no effect once the
	// machine is configured. Default: every certificate is accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
	MaintenanceFingerprint string `json:"maintenanceFingerprint,omitempty"`
	// network configuration of this machine.
	// +optional
	Network *MachineNetwork `json:"network,omitempty"`
	// drain determines how pods are evicted from this node before it is disrupted. Default: that of the group.
	// +optional
	Drain *DrainOptions `json:"drain,omitempty"`

	NodeOptions `json:",inline"`
}
