package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TalosControlPlaneSpec describes a control plane: etcd, the PKI and the machines that run them.
// +kubebuilder:validation:XValidation:rule="has(self.clusterName) == has(oldSelf.clusterName) && (!has(self.clusterName) || self.clusterName == oldSelf.clusterName)",message="clusterName is immutable"
// +kubebuilder:validation:XValidation:rule="self.machines.all(m, !has(m.address) || self.machines.exists_one(n, has(n.address) && n.address == m.address))",message="two machines have the same address"
// +kubebuilder:validation:XValidation:rule="!(has(self.import) && has(self.bootstrapSecretsRef))",message="set import or bootstrapSecretsRef, not both"
type TalosControlPlaneSpec struct {
	// clusterName is the name of the Talos cluster. Immutable. Default: the name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ClusterName string `json:"clusterName,omitempty"`
	// talosVersion, for example v1.13.9.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	TalosVersion string `json:"talosVersion,omitempty"`
	// kubernetesVersion, for example v1.36.2.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// endpoint of the Kubernetes API: https, a host and a port. A load balancer, a virtual IP, or one machine's address.
	// Immutable.
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
	// +kubebuilder:validation:XValidation:rule="size(self) % 2 == 1",message="a control plane has an odd number of machines"
	Machines []MachineEntry `json:"machines,omitempty"`
	// network inside the cluster. Its subnets and domain are immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.podSubnets) ? self.podSubnets : []) == (has(oldSelf.podSubnets) ? oldSelf.podSubnets : [])",message="podSubnets are immutable"
	// +kubebuilder:validation:XValidation:rule="(has(self.serviceSubnets) ? self.serviceSubnets : []) == (has(oldSelf.serviceSubnets) ? oldSelf.serviceSubnets : [])",message="serviceSubnets are immutable"
	// +kubebuilder:validation:XValidation:rule="(has(self.dnsDomain) ? self.dnsDomain : 'cluster.local') == (has(oldSelf.dnsDomain) ? oldSelf.dnsDomain : 'cluster.local')",message="dnsDomain is immutable"
	Network ClusterNetwork `json:"network,omitzero"`
	// certSANs are further names and addresses in the certificates of the Talos and Kubernetes APIs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	CertSANs []string `json:"certSANs,omitempty"`
	// allowSchedulingOnControlPlanes lets workloads run on control-plane nodes. Default: false.
	// +optional
	AllowSchedulingOnControlPlanes *bool `json:"allowSchedulingOnControlPlanes,omitempty"`
	// clusterConfigPatches change the machine configs of all machines of the cluster, workers too, before those of the
	// group and of the machine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=65536
	ClusterConfigPatches []string `json:"clusterConfigPatches,omitempty"`
	// bootstrapSecretsRef names a Secret with material the PKI starts from: token (machine token), ca.crt and ca.key
	// (the CA of the Talos API). It is read once, when the PKI is made.
	// +optional
	BootstrapSecretsRef *ObjectReference `json:"bootstrapSecretsRef,omitempty"`
	// import takes over a cluster that runs already and that was made elsewhere, with its own PKI and without a change to
	// its nodes. It is read once, when there is no state Secret yet.
	// +optional
	Import *ImportSource `json:"import,omitempty"`
	// deletionPolicy says what becomes of the nodes when the object is deleted. Default: Preserve.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// rollout says how config changes reach the machines, those of the worker groups too unless they say otherwise.
	// +optional
	Rollout *RolloutOptions `json:"rollout,omitempty"`
	// drift says what happens to a machine config that somebody else changed: Report shows it (default), Enforce plans
	// a change back, Adopt keeps it; for the worker groups too unless
	// they say otherwise.
	// +optional
	Drift DriftPolicy `json:"drift,omitempty"`
	// spares are machines that wait in maintenance mode to take the place of one that is replaced. Nothing is sent to them
	// before that.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Spares []MachineEntry `json:"spares,omitempty"`
	// remediation of machines that never come back. Without it they are waited for.
	// +optional
	Remediation *RemediationOptions `json:"remediation,omitempty"`
	// backupBeforeDisruption demands a fresh backup of etcd before a node of the control plane whose member works is
	// rebooted, removed or replaced. Members that are dead, and workers, do not wait for one. Default: none is demanded.
	// +optional
	BackupBeforeDisruption *BackupBeforeDisruption `json:"backupBeforeDisruption,omitempty"`

	NodeOptions `json:",inline"`
}

// ImportSource is what a cluster that was made elsewhere is taken over with.
type ImportSource struct {
	// secretRef names a Secret with the keys talosconfig and either secrets.yaml, a secrets bundle as of talosctl gen
	// secrets, or controlplane.yaml, the machine config of a control-plane node. Nothing needs it after the import.
	// +required
	SecretRef ObjectReference `json:"secretRef,omitzero"`
}

// SecretBundleStatus points to the PKI of a cluster. It never holds key material.
type SecretBundleStatus struct {
	// secretRef names the state Secret.
	// +required
	SecretRef ObjectReference `json:"secretRef,omitzero"`
	// fingerprint is the SHA-256 over the public CA certificates of the cluster, hexadecimal.
	// +required
	// +kubebuilder:validation:MaxLength=128
	Fingerprint string `json:"fingerprint,omitempty"`
	// clusterID is the ID that the nodes of the cluster share.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ClusterID string `json:"clusterID,omitempty"`
}

// BootstrapStatus records the one bootstrap of a cluster's etcd.
type BootstrapStatus struct {
	// machine that was chosen; recorded before the call is made.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`
	// requestedAt is when the choice was recorded.
	// +required
	RequestedAt metav1.Time `json:"requestedAt,omitzero"`
	// establishedAt is when etcd first answered with a member list.
	// +optional
	EstablishedAt *metav1.Time `json:"establishedAt,omitempty"`
}

// TalosControlPlaneStatus is what was seen of a control plane.
type TalosControlPlaneStatus struct {
	// conditions: Ready, Available, Reachable, Bootstrapped, EtcdHealthy, UpToDate, CertificatesValid, and Paused,
	// Deleting, Reconciling, Stalled while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// secretBundle points to the PKI.
	// +optional
	SecretBundle *SecretBundleStatus `json:"secretBundle,omitempty"`
	// backupVerificationKey is the public key that checks the signatures of backups. It follows from the PKI. Keep it beside
	// the age identity: it is needed when the PKI is lost.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BackupVerificationKey string `json:"backupVerificationKey,omitempty"`
	// bootstrap records the one bootstrap of etcd.
	// +optional
	Bootstrap *BootstrapStatus `json:"bootstrap,omitempty"`
	// observedKubeVersion is the Kubernetes version that the API server last reported.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ObservedKubeVersion string `json:"observedKubeVersion,omitempty"`
	// replicas is the number of machines.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// readyReplicas is the number of machines that are ready, voting, healthy etcd members.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// etcdMembers is the number of etcd members, learners included.
	// +optional
	EtcdMembers int32 `json:"etcdMembers,omitempty"`
	// plan is the config changes that the machines need; absent when there are none.
	// +optional
	Plan *PlanStatus `json:"plan,omitempty"`
	// replacements are spares that stand in for listed machines, until the machine list says so itself.
	// +optional
	// +listType=map
	// +listMapKey=machine
	// +kubebuilder:validation:MaxItems=32
	Replacements []Replacement `json:"replacements,omitempty"`
}

// TalosControlPlane is the control plane of one Talos Linux Kubernetes cluster.
//
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
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec TalosControlPlaneSpec `json:"spec,omitzero"`
	// status is what was seen.
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
