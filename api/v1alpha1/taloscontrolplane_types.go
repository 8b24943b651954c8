package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TalosControlPlaneSpec describes a control plane: etcd, the PKI and the machines that run them.
// +kubebuilder:validation:XValidation:rule="(has(self.network) && has(self.network.podSubnets) ? self.network.podSubnets : ['10.244.0.0/16']) == (has(oldSelf.network) && has(oldSelf.network.podSubnets) ? oldSelf.network.podSubnets : ['10.244.0.0/16'])",message="podSubnets are immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.network) && has(self.network.serviceSubnets) ? self.network.serviceSubnets : ['10.96.0.0/12']) == (has(oldSelf.network) && has(oldSelf.network.serviceSubnets) ? oldSelf.network.serviceSubnets : ['10.96.0.0/12'])",message="serviceSubnets are immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.network) && has(self.network.dnsDomain) ? self.network.dnsDomain : 'cluster.local') == (has(oldSelf.network) && has(oldSelf.network.dnsDomain) ? oldSelf.network.dnsDomain : 'cluster.local')",message="dnsDomain is immutable"
// +kubebuilder:validation:XValidation:rule="self.machines.all(m, !has(m.address) || self.machines.exists_one(n, has(n.address) && n.address == m.address))",message="two machines have the same address"
// +kubebuilder:validation:XValidation:rule="!(has(self.import) && has(self.bootstrapSecretsRef))",message="set import or bootstrapSecretsRef, not both"
// +kubebuilder:validation:XValidation:rule="(has(self.kubePrism) && has(self.kubePrism.port) ? self.kubePrism.port : 7445) == (has(oldSelf.kubePrism) && has(oldSelf.kubePrism.port) ? oldSelf.kubePrism.port : 7445)",message="kubePrism is immutable: kube-proxy and flannel keep the address that they got when the cluster was created"
// +kubebuilder:validation:XValidation:rule="(has(self.kubePrism) && has(self.kubePrism.enabled) ? self.kubePrism.enabled : true) == (has(oldSelf.kubePrism) && has(oldSelf.kubePrism.enabled) ? oldSelf.kubePrism.enabled : true)",message="kubePrism is immutable: kube-proxy and flannel keep the address that they got when the cluster was created"
type TalosControlPlaneSpec struct {
	// clusterName is the name of the Talos cluster. Immutable. Default: the name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ClusterName string `json:"clusterName,omitempty"`
	// talosVersion of the cluster, for example v1.13.9.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	TalosVersion string `json:"talosVersion,omitempty"`
	// kubernetesVersion of the cluster, for example v1.36.2.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// endpoint is the URL of the Kubernetes API: https, a host and a port. The host is a load balancer, a virtual IP, or
	// the address of one machine. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getPort() != ''",message="endpoint must be a URL with https, a host and a port"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="endpoint is immutable"
	Endpoint string `json:"endpoint,omitempty"`
	// machines of the control plane: an odd number, 1, 3 or 5.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:XValidation:rule="size(self) % 2 == 1",message="a control plane must have an odd number of machines"
	Machines []MachineEntry `json:"machines,omitempty"`
	// network configuration inside the cluster. Its subnets and its DNS domain are immutable.
	// +optional
	Network ClusterNetwork `json:"network,omitzero"`
	// machineNetwork is the network configuration that the machines of the control plane share. A list in network
	// of a machine replaces it; hosts do so by their addresses.
	// +optional
	MachineNetwork *SharedNetwork `json:"machineNetwork,omitempty"`
	// kubeSpan connects all machines of the cluster by WireGuard. It needs discovery. Default: off.
	// +optional
	KubeSpan *KubeSpan `json:"kubeSpan,omitempty"`
	// kubePrism is the load balancer for the Kubernetes API on each machine of the cluster. Immutable. Default: on, with the
	// port 7445.
	// +optional
	KubePrism *KubePrism `json:"kubePrism,omitempty"`
	// discovery determines how the machines of the cluster find each other. Default: by the public discovery service.
	// +optional
	Discovery *Discovery `json:"discovery,omitempty"`
	// certSANs are additional names and addresses in the certificates of the Talos and Kubernetes APIs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	CertSANs []string `json:"certSANs,omitempty"`
	// allowSchedulingOnControlPlanes allows workloads on control-plane nodes. Default: false.
	// +optional
	AllowSchedulingOnControlPlanes *bool `json:"allowSchedulingOnControlPlanes,omitempty"`
	// clusterConfigPatches are applied to the machine configurations of all machines of the cluster, including workers,
	// before the patches of the group and of the machine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=65536
	ClusterConfigPatches []string `json:"clusterConfigPatches,omitempty"`
	// clusterImage determines the image of all machines of the cluster, including workers. What install of a group or of a
	// machine sets takes precedence, field by field; a schematic and an install.image replace each other.
	// +optional
	ClusterImage *ImageOptions `json:"clusterImage,omitempty"`
	// clusterConfigPatchesFrom are further patches for all machines of the cluster, in ConfigMaps and Secrets of the
	// namespace. They are applied in order, after clusterConfigPatches.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ClusterConfigPatchesFrom []ConfigPatchSource `json:"clusterConfigPatchesFrom,omitempty"`
	// bootstrapSecretsRef names a Secret with key material for the PKI: token (machine token), ca.crt and ca.key (the CA
	// of the Talos API). It is read once, when the PKI is created.
	// +optional
	BootstrapSecretsRef *ObjectReference `json:"bootstrapSecretsRef,omitempty"`
	// import takes over a running cluster that was created elsewhere. The cluster keeps its PKI, and its nodes are not
	// changed. The field is read once, while there is no state Secret yet.
	// +optional
	Import *ImportSource `json:"import,omitempty"`
	// deletionPolicy determines what happens to the nodes when the object is deleted. Default: Preserve.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// spares are machines in maintenance mode that are available to replace other machines. Nothing is sent to a spare
	// before it replaces a machine.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Spares []MachineEntry `json:"spares,omitempty"`
	// backupBeforeDisruption demands a fresh etcd backup before a control-plane node with a working etcd member is
	// rebooted, removed or replaced. Nodes with a dead member and workers do not need one. Default: no backup is demanded.
	// +optional
	BackupBeforeDisruption *BackupBeforeDisruption `json:"backupBeforeDisruption,omitempty"`

	GroupPolicy `json:",inline"`

	// upgrade determines how the cluster gets to other versions. Without it, they are only reported.
	// +optional
	Upgrade *UpgradeOptions `json:"upgrade,omitempty"`

	NodeOptions `json:",inline"`
}

// ImportSource is the source from which a cluster that was created elsewhere is imported.
type ImportSource struct {
	// secretRef names a Secret with the keys talosconfig and either secrets.yaml, a secrets bundle as written by talosctl
	// gen secrets, or controlplane.yaml, the machine configuration of a control-plane node. It is not needed after the
	// import.
	// +required
	SecretRef ObjectReference `json:"secretRef,omitzero"`
}

// SecretBundleStatus references the PKI of a cluster. It never contains key material.
type SecretBundleStatus struct {
	// secretRef names the state Secret.
	// +required
	SecretRef ObjectReference `json:"secretRef,omitzero"`
	// fingerprint is the SHA-256 over the public CA certificates of the cluster, in hexadecimal.
	// +required
	// +kubebuilder:validation:MaxLength=128
	Fingerprint string `json:"fingerprint,omitempty"`
	// clusterID is the ID that the nodes of the cluster share.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ClusterID string `json:"clusterID,omitempty"`
}

// BootstrapStatus records the only bootstrap of a cluster's etcd.
type BootstrapStatus struct {
	// machine that was chosen for the bootstrap. It is recorded before the bootstrap call.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`
	// requestedAt is when the choice was recorded.
	// +required
	RequestedAt metav1.Time `json:"requestedAt,omitzero"`
	// establishedAt is when etcd first responded with a member list.
	// +optional
	EstablishedAt *metav1.Time `json:"establishedAt,omitempty"`
}

// TalosControlPlaneStatus is the observed state of a control plane.
type TalosControlPlaneStatus struct {
	// conditions are Ready, Available, Reachable, Bootstrapped, EtcdHealthy, UpToDate and CertificatesValid; Paused,
	// Deleting, Reconciling and Stalled only while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// secretBundle references the PKI of the cluster.
	// +optional
	SecretBundle *SecretBundleStatus `json:"secretBundle,omitempty"`
	// backupVerificationKey is the public key that verifies the signatures of backups. It is derived from the PKI. Store
	// it together with the age identity: it is needed if the PKI is lost.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BackupVerificationKey string `json:"backupVerificationKey,omitempty"`
	// bootstrap records the only bootstrap of etcd.
	// +optional
	Bootstrap *BootstrapStatus `json:"bootstrap,omitempty"`
	// observedKubeVersion is the Kubernetes version that the API server last reported.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ObservedKubeVersion string `json:"observedKubeVersion,omitempty"`
	// replicas is the number of machines.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// readyReplicas is the number of ready machines that are healthy voting etcd members.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// etcdMembers is the number of etcd members, including learners.
	// +optional
	EtcdMembers int32 `json:"etcdMembers,omitempty"`
	// upgrade is the upgrade of Talos that is in progress, or that waits; absent if there is none.
	// +optional
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`
	// manifests tells how the cluster differs from the bootstrap manifests of Talos after an upgrade of Kubernetes; absent
	// if it does not differ, or was not compared.
	// +optional
	Manifests *ManifestsStatus `json:"manifests,omitempty"`
	// plan lists the configuration changes that the machines need; absent if there are none.
	// +optional
	Plan *PlanStatus `json:"plan,omitempty"`
	// replacements are spares that replace listed machines, until the machine list is updated accordingly.
	// +optional
	// +listType=map
	// +listMapKey=machine
	// +kubebuilder:validation:MaxItems=32
	Replacements []Replacement `json:"replacements,omitempty"`
}

// TalosControlPlane is the control plane of one Talos Linux Kubernetes cluster.
//
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self.metadata.name) <= 63",message="the name must have at most 63 characters, because labels contain it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="(has(self.spec.clusterName) ? self.spec.clusterName : self.metadata.name) == (has(oldSelf.spec.clusterName) ? oldSelf.spec.clusterName : oldSelf.metadata.name)",message="clusterName is immutable"
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tcp,categories=talos
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.talosVersion`
// +kubebuilder:printcolumn:name="Kubernetes",type=string,JSONPath=`.status.observedKubeVersion`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Paused",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Paused")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type TalosControlPlane struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the desired state.
	// +required
	Spec TalosControlPlaneSpec `json:"spec,omitzero"`
	// status reports the observed state.
	// +optional
	Status TalosControlPlaneStatus `json:"status,omitzero"`
}

// TalosControlPlaneList is a list of control planes.
//
// +kubebuilder:object:root=true
type TalosControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosControlPlane `json:"items"`
}
