package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	talosv1alpha1 "github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Names that the objects of a cluster carry.
const (
	// ClusterFinalizer holds a KubernetesCluster until its objects and files are gone.
	ClusterFinalizer = "cluster.vitistack.io/finalizer"
	// DeleteAnnotation on a Machine, value "true", has it go first when its group shrinks.
	DeleteAnnotation = "cluster.vitistack.io/delete"
	// ClusterNameLabel names the cluster of a Machine.
	ClusterNameLabel = "cluster.vitistack.io/cluster-name"
	// RoleLabel is the role of a Machine: controlplane or worker.
	RoleLabel = "cluster.vitistack.io/role"
	// WorkerGroupLabel names the worker group of a Machine.
	WorkerGroupLabel = "cluster.vitistack.io/worker-group"
)

// MachineTemplate is the template of the machines of one group.
type MachineTemplate struct {
	// spec of the machines. An empty one is valid, also one that says nothing but "spec:": the machines wait for a
	// provider.
	// +optional
	// +nullable
	Spec MachineSpec `json:"spec,omitzero"`
}

// ControlPlaneTopology says how many control-plane nodes there are, and of what kind.
type ControlPlaneTopology struct {
	// replicas is the number of control plane nodes: odd, 1, 3 or 5.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	// +kubebuilder:validation:XValidation:rule="self % 2 == 1",message="replicas of the control plane must be odd: 1, 3 or 5"
	Replicas int32 `json:"replicas"`
	// spares is the number of machines that are kept beside the replicas, in maintenance mode, to take the place of one that
	// never comes back. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32
	Spares int32 `json:"spares,omitempty"`
	// machineTemplate is the template for control plane machines.
	// +optional
	MachineTemplate MachineTemplate `json:"machineTemplate,omitzero"`
}

// WorkerGroup is a group of workers that are alike.
type WorkerGroup struct {
	// name of the worker group, part of the names of its machines.
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
	// spares is the number of machines that are kept beside the replicas, in maintenance mode, to take the place of one that
	// never comes back. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32
	Spares int32 `json:"spares,omitempty"`
	// machineTemplate is the template for worker machines.
	// +optional
	MachineTemplate MachineTemplate `json:"machineTemplate,omitzero"`
}

// CertificateAuthority is a CA certificate with its key, both PEM, plain or base64.
// +kubebuilder:validation:XValidation:rule="has(self.crt) == has(self.key)",message="a CA certificate needs its key, and a key its certificate"
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

// KubeletConfig changes the kubelet.
type KubeletConfig struct {
	// image is the kubelet container image; its tag, if it has one, must be the Kubernetes version.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
	// extraArgs are additional kubelet arguments.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
}

// MachineTalosConfig is the machine part of a Talos config.
type MachineTalosConfig struct {
	// type of the machine: controlplane or worker. Each machine gets the type of its role; a value that is set has to be
	// one of the two and is otherwise without effect.
	// +optional
	// +kubebuilder:validation:Enum=controlplane;worker
	Type string `json:"type,omitempty"`
	// token is the bootstrap token for joining the cluster. Generated when empty.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Token string `json:"token,omitempty"`
	// ca is the certificate authority of the Talos API. Generated when empty.
	// +optional
	CA *CertificateAuthority `json:"ca,omitempty"`
	// certSANs are further names in the certificates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	CertSANs []string `json:"certSANs,omitempty"`
	// kubelet changes the kubelet.
	// +optional
	Kubelet *KubeletConfig `json:"kubelet,omitempty"`
}

// ControlPlaneEndpoint is where the Kubernetes API is.
type ControlPlaneEndpoint struct {
	// endpoint is the control plane endpoint, the same as spec.clusterEndpoint where both are set.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Endpoint string `json:"endpoint,omitempty"`
}

// ClusterNetworkConfig is the network inside the cluster.
type ClusterNetworkConfig struct {
	// dnsDomain is the cluster DNS domain.
	// +optional
	// +kubebuilder:default=cluster.local
	// +kubebuilder:validation:MaxLength=253
	DNSDomain string `json:"dnsDomain,omitempty"`
	// podSubnets are the pod CIDR ranges. Default: 10.244.0.0/16. They yield to spec.podSubnets.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	PodSubnets []string `json:"podSubnets,omitempty"`
	// serviceSubnets are the service CIDR ranges. Default: 10.96.0.0/12. They yield to spec.serviceSubnets.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	ServiceSubnets []string `json:"serviceSubnets,omitempty"`
}

// ClusterTalosConfig is the cluster part of a Talos config.
type ClusterTalosConfig struct {
	// name of the cluster, the same as spec.clusterName where both are set.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// controlPlane says where the Kubernetes API is.
	// +optional
	ControlPlane *ControlPlaneEndpoint `json:"controlPlane,omitempty"`
	// network inside the cluster.
	// +optional
	Network *ClusterNetworkConfig `json:"network,omitempty"`
}

// InstallConfig says how Talos is installed.
type InstallConfig struct {
	// disk is the installation disk. A machine template's own disk or selector wins.
	// +optional
	// +kubebuilder:default=/dev/sda
	// +kubebuilder:validation:MaxLength=253
	Disk string `json:"disk,omitempty"`
	// image is the Talos system image.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
	// bootloader installs a boot loader.
	// +optional
	// +kubebuilder:default=true
	Bootloader *bool `json:"bootloader,omitempty"`
	// wipe the disk before installation.
	// +optional
	// +kubebuilder:default=false
	Wipe *bool `json:"wipe,omitempty"`
	// extraKernelArgs are additional kernel arguments.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	ExtraKernelArgs []string `json:"extraKernelArgs,omitempty"`
}

// TalosConfig is what all machines of a cluster share in their Talos configs.
type TalosConfig struct {
	// machine configuration.
	// +optional
	Machine *MachineTalosConfig `json:"machine,omitempty"`
	// cluster configuration.
	// +optional
	Cluster *ClusterTalosConfig `json:"cluster,omitempty"`
	// install is the installation configuration.
	// +optional
	Install *InstallConfig `json:"install,omitempty"`
}

// KubernetesClusterSpec describes a whole cluster.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterName) || (has(self.clusterName) && self.clusterName == oldSelf.clusterName)",message="clusterName is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.clusterEndpoint) || (has(self.talosConfig) && has(self.talosConfig.cluster) && has(self.talosConfig.cluster.controlPlane) && has(self.talosConfig.cluster.controlPlane.endpoint))",message="clusterEndpoint is required: https, a host and a port"
type KubernetesClusterSpec struct {
	// clusterName is the Talos cluster name, and the first part of the names of the machines. Immutable. Default: the
	// name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterName string `json:"clusterName,omitempty"`
	// kubernetesVersion, for example v1.36.2.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	KubernetesVersion string `json:"kubernetesVersion"`
	// talosVersion is the Talos Linux version, for example v1.13.9.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	TalosVersion string `json:"talosVersion"`
	// clusterEndpoint is the Kubernetes API server endpoint: https, a host and a port. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getPort() != ''",message="clusterEndpoint must be a URL with https, a host and a port"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterEndpoint is immutable"
	ClusterEndpoint string `json:"clusterEndpoint,omitempty"`
	// podSubnets are the pod CIDR ranges. Default: 10.244.0.0/16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, isCIDR(s))",message="podSubnets must be networks in CIDR notation"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="podSubnets are immutable"
	PodSubnets []string `json:"podSubnets,omitempty"`
	// serviceSubnets are the service CIDR ranges. Default: 10.96.0.0/12.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, isCIDR(s))",message="serviceSubnets must be networks in CIDR notation"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="serviceSubnets are immutable"
	ServiceSubnets []string `json:"serviceSubnets,omitempty"`
	// controlPlane topology.
	// +required
	ControlPlane ControlPlaneTopology `json:"controlPlane"`
	// workers by group.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Workers []WorkerGroup `json:"workers,omitempty"`
	// talosConfig is what all machines share in their Talos configs.
	// +optional
	TalosConfig *TalosConfig `json:"talosConfig,omitempty"`
	// deletionPolicy says what becomes of the nodes when the cluster is deleted: Preserve leaves them running, Reset wipes
	// them. Default: Preserve.
	// +optional
	DeletionPolicy talosv1alpha1.DeletionPolicy `json:"deletionPolicy,omitempty"`
	// rollout says how config changes reach the machines.
	// +optional
	Rollout *talosv1alpha1.RolloutOptions `json:"rollout,omitempty"`
	// drift says what happens to a machine config that somebody else changed: Report shows it (default), Enforce plans
	// a change back, Adopt keeps it.
	// +optional
	Drift talosv1alpha1.DriftPolicy `json:"drift,omitempty"`
	// remediation of machines that never come back, in each group: its spares take their place. Without it they are waited
	// for.
	// +optional
	Remediation *talosv1alpha1.RemediationOptions `json:"remediation,omitempty"`
	// backupBeforeDisruption demands a fresh backup of etcd before a node of the control plane whose member works is
	// rebooted, removed or replaced. Default: none is demanded.
	// +optional
	BackupBeforeDisruption *talosv1alpha1.BackupBeforeDisruption `json:"backupBeforeDisruption,omitempty"`
}

// ClusterPhase is a one-word summary of a cluster.
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Failed
type ClusterPhase string

// Cluster phases.
const (
	// PhasePending: nothing has been created yet.
	PhasePending ClusterPhase = "Pending"
	// PhaseProvisioning: machines exist, the cluster is not complete yet.
	PhaseProvisioning ClusterPhase = "Provisioning"
	// PhaseRunning: control plane and workers are ready.
	PhaseRunning ClusterPhase = "Running"
	// PhaseFailed: a person has to act; the conditions say on what.
	PhaseFailed ClusterPhase = "Failed"
)

// KubernetesClusterStatus is what was seen of a cluster.
type KubernetesClusterStatus struct {
	// conditions: Ready, MachinesCreated, FilesGenerated, TopologyValid.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// phase is a one-word summary: Pending, Provisioning, Running, Failed.
	// +optional
	Phase ClusterPhase `json:"phase,omitempty"`
	// controlPlaneReady is true when every control plane node is a healthy etcd member and the API answers.
	// +optional
	ControlPlaneReady bool `json:"controlPlaneReady"`
	// workersReady is the number of ready worker nodes.
	// +optional
	WorkersReady int32 `json:"workersReady"`
	// machineCount is the total of generated machines.
	// +optional
	MachineCount int32 `json:"machineCount"`
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastUpdated is when something in this status last changed.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
}

// KubernetesCluster is a whole Talos Linux Kubernetes cluster.
//
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
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec KubernetesClusterSpec `json:"spec"`
	// status is what was seen.
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
