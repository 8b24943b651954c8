package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	talosv1alpha1 "github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Finalizers, annotations and labels of a cluster's objects.
const (
	// ClusterFinalizer keeps a KubernetesCluster until its objects and files are deleted.
	ClusterFinalizer = "cluster.vitistack.io/finalizer"
	// DeleteAnnotation on a Machine, value "true", selects it to be deleted first when its group is scaled down.
	DeleteAnnotation = "cluster.vitistack.io/delete"
	// ClusterNameLabel names the cluster of a Machine.
	ClusterNameLabel = "cluster.vitistack.io/cluster-name"
	// RoleLabel is the role of a Machine: controlplane or worker.
	RoleLabel = "cluster.vitistack.io/role"
	// WorkerGroupLabel names the worker group of a Machine.
	WorkerGroupLabel = "cluster.vitistack.io/worker-group"
)

// Annotations returns the annotations of Vitistack on which the operator acts. The API server does not check them: other
// programs have annotations with the same prefix.
func Annotations() []talosv1alpha1.Annotation {
	return []talosv1alpha1.Annotation{{
		Name: DeleteAnnotation, Kinds: []string{"Machine"}, Value: "`true`",
		Effect: "the machine is removed first when its group is scaled down; the operator sets it on those that it removes",
	}}
}

// MachineTemplate is the template of the machines of one group.
type MachineTemplate struct {
	// spec of the machines. It may be empty, including a bare "spec:": the machines then wait for a provider.
	// +optional
	// +nullable
	Spec MachineSpec `json:"spec,omitzero"`
}

// ControlPlaneTopology is the number and the kind of the control-plane nodes.
type ControlPlaneTopology struct {
	// replicas is the number of control-plane nodes: an odd number up to 9, usually 1, 3 or 5.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	// +kubebuilder:validation:XValidation:rule="self % 2 == 1",message="replicas of the control plane must be odd: 1, 3, 5, 7 or 9"
	Replicas int32 `json:"replicas"`
	// spares is the number of additional machines that are kept in maintenance mode to replace a machine that does not
	// come back. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32
	Spares int32 `json:"spares,omitempty"`
	// machineTemplate is the template of the control-plane machines.
	// +optional
	MachineTemplate MachineTemplate `json:"machineTemplate,omitzero"`

	// A field that is set here replaces that of the cluster for the control plane.
	talosv1alpha1.GroupPolicy `json:",inline"`
}

// WorkerGroup is a group of identical workers.
type WorkerGroup struct {
	// name of the worker group. It becomes part of the names of its machines.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// replicas is the number of worker nodes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600
	Replicas int32 `json:"replicas"`
	// spares is the number of additional machines that are kept in maintenance mode to replace a machine that does not
	// come back. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32
	Spares int32 `json:"spares,omitempty"`
	// machineTemplate is the template of the worker machines.
	// +optional
	MachineTemplate MachineTemplate `json:"machineTemplate,omitzero"`

	// A field that is set here replaces that of the cluster for this group.
	talosv1alpha1.GroupPolicy `json:",inline"`
}

// CertificateAuthority is a CA certificate with its key, both in PEM format, plain or base64-encoded.
// +kubebuilder:validation:XValidation:rule="has(self.crt) == has(self.key)",message="set the certificate and the key of a CA together"
type CertificateAuthority struct {
	// crt is the CA certificate.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Crt string `json:"crt,omitempty"`
	// key is the CA private key.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Key string `json:"key,omitempty"`
}

// KubeletConfig customizes the kubelet.
type KubeletConfig struct {
	// image is the container image of the kubelet. If it has a tag, the tag must be the Kubernetes version.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Image string `json:"image,omitempty"`
	// extraArgs are additional kubelet arguments.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 253 && size(self[k]) <= 4096)",message="the name of an argument must have at most 253 characters, and its value at most 4096"
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
}

// MachineTalosConfig is the machine section of a Talos configuration.
type MachineTalosConfig struct {
	// type of the machine: controlplane or worker. Each machine gets the type of its role, so the field has no effect
	// beyond validation.
	// +optional
	// +kubebuilder:validation:Enum=controlplane;worker
	Type string `json:"type,omitempty"`
	// token is the bootstrap token for joining the cluster. Default: a generated token.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Token string `json:"token,omitempty"`
	// ca is the certificate authority of the Talos API. Default: a generated one.
	// +optional
	CA *CertificateAuthority `json:"ca,omitempty"`
	// certSANs are additional names and addresses in the certificates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	CertSANs []string `json:"certSANs,omitempty"`
	// kubelet customizes the kubelet.
	// +optional
	Kubelet *KubeletConfig `json:"kubelet,omitempty"`
	// registries configure where images are pulled from.
	// +optional
	Registries *talosv1alpha1.Registries `json:"registries,omitempty"`
	// network is the network configuration that all machines of the cluster share. A list in network of a
	// machine template replaces it; hosts do so by their addresses.
	// +optional
	Network *talosv1alpha1.SharedNetwork `json:"network,omitempty"`
}

// ControlPlaneEndpoint is the endpoint of the Kubernetes API.
type ControlPlaneEndpoint struct {
	// endpoint is the control-plane endpoint. It must equal spec.clusterEndpoint if both are set.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Endpoint string `json:"endpoint,omitempty"`
}

// ClusterNetworkConfig is the network configuration inside the cluster.
type ClusterNetworkConfig struct {
	// dnsDomain is the DNS domain of the cluster.
	// +optional
	// +default="cluster.local"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	DNSDomain string `json:"dnsDomain,omitempty"`
	// podSubnets are the pod CIDR ranges. Default: 10.244.0.0/16. spec.podSubnets takes precedence.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	PodSubnets []string `json:"podSubnets,omitempty"`
	// serviceSubnets are the service CIDR ranges. Default: 10.96.0.0/12. spec.serviceSubnets takes precedence.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	ServiceSubnets []string `json:"serviceSubnets,omitempty"`
	// cni of the cluster. Default: flannel.
	// +optional
	CNI *talosv1alpha1.CNI `json:"cni,omitempty"`
}

// ClusterTalosConfig is the cluster section of a Talos configuration.
type ClusterTalosConfig struct {
	// name of the cluster. It must equal spec.clusterName if both are set.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Name string `json:"name,omitempty"`
	// controlPlane is the endpoint of the Kubernetes API.
	// +optional
	ControlPlane *ControlPlaneEndpoint `json:"controlPlane,omitempty"`
	// network configuration inside the cluster.
	// +optional
	Network *ClusterNetworkConfig `json:"network,omitempty"`
	// kubeSpan connects all machines of the cluster by WireGuard. It needs discovery. Default: off.
	// +optional
	KubeSpan *talosv1alpha1.KubeSpan `json:"kubeSpan,omitempty"`
	// kubePrism is the load balancer for the Kubernetes API on each machine of the cluster. Immutable. Default: on, with the
	// port 7445.
	// +optional
	KubePrism *talosv1alpha1.KubePrism `json:"kubePrism,omitempty"`
	// discovery determines how the machines of the cluster find each other. Default: by the public discovery service.
	// +optional
	Discovery *talosv1alpha1.Discovery `json:"discovery,omitempty"`
	// allowSchedulingOnControlPlanes lets control-plane nodes run workloads. Default: false.
	// +optional
	AllowSchedulingOnControlPlanes *bool `json:"allowSchedulingOnControlPlanes,omitempty"`
}

// InstallConfig determines how Talos is installed.
// +kubebuilder:validation:XValidation:rule="!(has(self.image) && has(self.schematic))",message="set image or schematic, not both"
type InstallConfig struct {
	// disk is the installation disk. The disk or disk selector of a machine template takes precedence.
	// +optional
	// +default="/dev/sda"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Disk string `json:"disk,omitempty"`
	// image is the Talos installer image.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Image string `json:"image,omitempty"`
	// bootloader determines whether a boot loader is installed.
	// +optional
	// +default=true
	Bootloader *bool `json:"bootloader,omitempty"`
	// wipe determines whether the disk is wiped before the installation.
	// +optional
	// +default=false
	Wipe *bool `json:"wipe,omitempty"`
	// extraKernelArgs are additional kernel arguments.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	ExtraKernelArgs []string `json:"extraKernelArgs,omitempty"`

	talosv1alpha1.ImageOptions `json:",inline"`
}

// TalosConfig is the part of the Talos configuration that all machines of a cluster share.
type TalosConfig struct {
	// machine configuration.
	// +optional
	Machine *MachineTalosConfig `json:"machine,omitempty"`
	// cluster configuration.
	// +optional
	Cluster *ClusterTalosConfig `json:"cluster,omitempty"`
	// install determines how Talos is installed.
	// +optional
	Install *InstallConfig `json:"install,omitempty"`
	// configPatches are applied to the configuration of every machine, before those of its machine template: strategic
	// merge patches, or RFC 6902 JSON patches.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=65536
	ConfigPatches []string `json:"configPatches,omitempty"`
	// configPatchesFrom are further patches for every machine, in ConfigMaps and Secrets of the namespace. They are
	// applied in order, after configPatches.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ConfigPatchesFrom []talosv1alpha1.ConfigPatchSource `json:"configPatchesFrom,omitempty"`
}

// KubernetesClusterSpec describes a whole cluster.
// +kubebuilder:validation:XValidation:rule="has(self.clusterEndpoint) || (has(self.talosConfig) && has(self.talosConfig.cluster) && has(self.talosConfig.cluster.controlPlane) && has(self.talosConfig.cluster.controlPlane.endpoint))",message="clusterEndpoint is required: a URL with https, a host and a port"
// +kubebuilder:validation:XValidation:rule="(has(self.clusterEndpoint) ? self.clusterEndpoint : (has(self.talosConfig) && has(self.talosConfig.cluster) && has(self.talosConfig.cluster.controlPlane) && has(self.talosConfig.cluster.controlPlane.endpoint) ? self.talosConfig.cluster.controlPlane.endpoint : \"\")) == (has(oldSelf.clusterEndpoint) ? oldSelf.clusterEndpoint : (has(oldSelf.talosConfig) && has(oldSelf.talosConfig.cluster) && has(oldSelf.talosConfig.cluster.controlPlane) && has(oldSelf.talosConfig.cluster.controlPlane.endpoint) ? oldSelf.talosConfig.cluster.controlPlane.endpoint : \"\"))",message="clusterEndpoint is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.podSubnets) ? self.podSubnets : (has(self.talosConfig) && has(self.talosConfig.cluster) && has(self.talosConfig.cluster.network) && has(self.talosConfig.cluster.network.podSubnets) ? self.talosConfig.cluster.network.podSubnets : ['10.244.0.0/16'])) == (has(oldSelf.podSubnets) ? oldSelf.podSubnets : (has(oldSelf.talosConfig) && has(oldSelf.talosConfig.cluster) && has(oldSelf.talosConfig.cluster.network) && has(oldSelf.talosConfig.cluster.network.podSubnets) ? oldSelf.talosConfig.cluster.network.podSubnets : ['10.244.0.0/16']))",message="podSubnets are immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.serviceSubnets) ? self.serviceSubnets : (has(self.talosConfig) && has(self.talosConfig.cluster) && has(self.talosConfig.cluster.network) && has(self.talosConfig.cluster.network.serviceSubnets) ? self.talosConfig.cluster.network.serviceSubnets : ['10.96.0.0/12'])) == (has(oldSelf.serviceSubnets) ? oldSelf.serviceSubnets : (has(oldSelf.talosConfig) && has(oldSelf.talosConfig.cluster) && has(oldSelf.talosConfig.cluster.network) && has(oldSelf.talosConfig.cluster.network.serviceSubnets) ? oldSelf.talosConfig.cluster.network.serviceSubnets : ['10.96.0.0/12']))",message="serviceSubnets are immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.talosConfig) && has(self.talosConfig.cluster) && has(self.talosConfig.cluster.network) && has(self.talosConfig.cluster.network.dnsDomain) ? self.talosConfig.cluster.network.dnsDomain : 'cluster.local') == (has(oldSelf.talosConfig) && has(oldSelf.talosConfig.cluster) && has(oldSelf.talosConfig.cluster.network) && has(oldSelf.talosConfig.cluster.network.dnsDomain) ? oldSelf.talosConfig.cluster.network.dnsDomain : 'cluster.local')",message="dnsDomain is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.talosConfig) && has(self.talosConfig.cluster) && has(self.talosConfig.cluster.kubePrism) && has(self.talosConfig.cluster.kubePrism.port) ? self.talosConfig.cluster.kubePrism.port : 7445) == (has(oldSelf.talosConfig) && has(oldSelf.talosConfig.cluster) && has(oldSelf.talosConfig.cluster.kubePrism) && has(oldSelf.talosConfig.cluster.kubePrism.port) ? oldSelf.talosConfig.cluster.kubePrism.port : 7445)",message="kubePrism is immutable: kube-proxy and flannel keep the address that they got when the cluster was created"
// +kubebuilder:validation:XValidation:rule="(has(self.talosConfig) && has(self.talosConfig.cluster) && has(self.talosConfig.cluster.kubePrism) && has(self.talosConfig.cluster.kubePrism.enabled) ? self.talosConfig.cluster.kubePrism.enabled : true) == (has(oldSelf.talosConfig) && has(oldSelf.talosConfig.cluster) && has(oldSelf.talosConfig.cluster.kubePrism) && has(oldSelf.talosConfig.cluster.kubePrism.enabled) ? oldSelf.talosConfig.cluster.kubePrism.enabled : true)",message="kubePrism is immutable: kube-proxy and flannel keep the address that they got when the cluster was created"
type KubernetesClusterSpec struct {
	// clusterName is the name of the Talos cluster and the first part of the names of its machines. Immutable. Default:
	// the name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterName string `json:"clusterName,omitempty"`
	// kubernetesVersion of the cluster, for example v1.36.2.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	KubernetesVersion string `json:"kubernetesVersion"`
	// talosVersion is the Talos Linux version, for example v1.13.9.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	TalosVersion string `json:"talosVersion"`
	// upgrade determines how the cluster gets to other versions. Without it, they are only reported.
	// +optional
	Upgrade *talosv1alpha1.UpgradeOptions `json:"upgrade,omitempty"`
	// clusterEndpoint is the Kubernetes API server endpoint: https, a host and a port. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getPort() != ''",message="clusterEndpoint must be a URL with https, a host and a port"
	ClusterEndpoint string `json:"clusterEndpoint,omitempty"`
	// podSubnets are the pod CIDR ranges. Default: 10.244.0.0/16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, isCIDR(s))",message="podSubnets must be networks in CIDR notation"
	PodSubnets []string `json:"podSubnets,omitempty"`
	// serviceSubnets are the service CIDR ranges. Default: 10.96.0.0/12.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, isCIDR(s))",message="serviceSubnets must be networks in CIDR notation"
	ServiceSubnets []string `json:"serviceSubnets,omitempty"`
	// controlPlane is the number and the kind of the control-plane nodes.
	// +required
	ControlPlane ControlPlaneTopology `json:"controlPlane"`
	// workers are the worker groups.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Workers []WorkerGroup `json:"workers,omitempty"`
	// talosConfig is the part of the Talos configuration that all machines share.
	// +optional
	TalosConfig *TalosConfig `json:"talosConfig,omitempty"`
	// deletionPolicy determines what happens to the nodes when the cluster is deleted: Preserve leaves them running, Reset
	// wipes them. Lower case is accepted. Default: Preserve.
	// +optional
	DeletionPolicy talosv1alpha1.DeletionPolicy `json:"deletionPolicy,omitempty"`
	// backupBeforeDisruption demands a fresh etcd backup before a control-plane node with a working etcd member is
	// rebooted, removed or replaced. Default: no backup is demanded.
	// +optional
	BackupBeforeDisruption *talosv1alpha1.BackupBeforeDisruption `json:"backupBeforeDisruption,omitempty"`

	// The policy of every group that has none of its own.
	talosv1alpha1.GroupPolicy `json:",inline"`
}

// ClusterPhase is a one-word summary of a cluster.
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Failed
type ClusterPhase string

// Cluster phases.
const (
	// PhasePending: nothing has been created yet.
	PhasePending ClusterPhase = "Pending"
	// PhaseProvisioning: machines exist, but the cluster is not complete yet.
	PhaseProvisioning ClusterPhase = "Provisioning"
	// PhaseRunning: control plane and workers are ready.
	PhaseRunning ClusterPhase = "Running"
	// PhaseFailed: the cluster needs user action; the conditions say why.
	PhaseFailed ClusterPhase = "Failed"
)

// KubernetesClusterStatus is the observed state of a cluster.
type KubernetesClusterStatus struct {
	// conditions are Ready, MachinesCreated, FilesGenerated, TopologyValid.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// phase is a one-word summary: Pending, Provisioning, Running or Failed.
	// +optional
	Phase ClusterPhase `json:"phase,omitempty"`
	// controlPlaneReady is true if every control-plane node is a healthy etcd member and the Kubernetes API responds.
	// +optional
	ControlPlaneReady bool `json:"controlPlaneReady"`
	// workersReady is the number of ready worker nodes.
	// +optional
	WorkersReady int32 `json:"workersReady"`
	// machineCount is the total number of generated machines.
	// +optional
	MachineCount int32 `json:"machineCount"`
	// observedGeneration is the generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastUpdated is when this status last changed.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
}

// KubernetesCluster is a whole Talos Linux Kubernetes cluster.
//
// +kubebuilder:validation:XValidation:rule="(has(self.spec.clusterName) ? self.spec.clusterName : (has(self.spec.talosConfig) && has(self.spec.talosConfig.cluster) && has(self.spec.talosConfig.cluster.name) ? self.spec.talosConfig.cluster.name : self.metadata.name)) == (has(oldSelf.spec.clusterName) ? oldSelf.spec.clusterName : (has(oldSelf.spec.talosConfig) && has(oldSelf.spec.talosConfig.cluster) && has(oldSelf.spec.talosConfig.cluster.name) ? oldSelf.spec.talosConfig.cluster.name : oldSelf.metadata.name))",message="clusterName is immutable"
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kc,categories=talos
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Control Plane",type=boolean,JSONPath=`.status.controlPlaneReady`
// +kubebuilder:printcolumn:name="Workers",type=integer,JSONPath=`.status.workersReady`
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.machineCount`
// +kubebuilder:printcolumn:name="Talos",type=string,JSONPath=`.spec.talosVersion`
// +kubebuilder:printcolumn:name="Kubernetes",type=string,JSONPath=`.spec.kubernetesVersion`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type KubernetesCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the desired state.
	// +required
	Spec KubernetesClusterSpec `json:"spec"`
	// status reports the observed state.
	// +optional
	Status KubernetesClusterStatus `json:"status,omitzero"`
}

// KubernetesClusterList is a list of clusters.
//
// +kubebuilder:object:root=true
type KubernetesClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KubernetesCluster `json:"items"`
}
