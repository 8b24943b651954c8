package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TalosEtcdBackupSpec describes one backup. What is stored, and where, is immutable in a TalosEtcdBackup:
// controlPlaneRef, storage, recipients, recipientsFrom, allowUnencrypted and compression. How it is done may change:
// timeout, stallTimeout and retries hold from the next attempt on. After each change of the spec, a backup that has
// failed begins anew. verification and deletionPolicy may change at any time.
// +kubebuilder:validation:XValidation:rule="self.allowUnencrypted || has(self.recipients) || has(self.recipientsFrom)",message="backups contain the root credentials of the cluster: set recipients, recipientsFrom or allowUnencrypted"
// +kubebuilder:validation:XValidation:rule="!self.allowUnencrypted || (!has(self.recipients) && !has(self.recipientsFrom))",message="set recipients or allowUnencrypted, not both"
type TalosEtcdBackupSpec struct {
	// controlPlaneRef names the TalosControlPlane.
	// +required
	ControlPlaneRef ObjectReference `json:"controlPlaneRef,omitzero"`
	// storage is where the backup is stored.
	// +required
	Storage BackupStorage `json:"storage,omitzero"`
	// recipients are age public keys (age1...). The identity of any of them can decrypt the backup.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:Pattern=`^age1[a-z0-9]+$`
	Recipients []string `json:"recipients,omitempty"`
	// recipientsFrom reference Secrets with further recipients. A key holds one or more of them, one per line.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	RecipientsFrom []SecretKeyReference `json:"recipientsFrom,omitempty"`
	// allowUnencrypted permits a backup without recipients: everyone who can read the store then has root access to the
	// cluster.
	// +optional
	// +default=false
	AllowUnencrypted bool `json:"allowUnencrypted,omitempty"`
	// compression of the snapshot. Default: Zstd.
	// +optional
	Compression BackupCompression `json:"compression,omitempty"`
	// timeout of one attempt. Default: 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="timeout must be at least 10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// stallTimeout is how long the node or the store may make no progress before the attempt is cancelled. Default: 2m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="stallTimeout must be at least 1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	StallTimeout *metav1.Duration `json:"stallTimeout,omitempty"`
	// retries is how often an attempt that failed for a transient reason is repeated. Default: 6.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Retries *int32 `json:"retries,omitempty"`
	// verification of the stored data, right after the backup. Default: Checksum.
	// +optional
	Verification *BackupVerification `json:"verification,omitempty"`
	// deletionPolicy determines what happens to the stored data when this object is deleted. Default: Retain.
	// +optional
	DeletionPolicy BackupDeletionPolicy `json:"deletionPolicy,omitempty"`
}

// BackupSource is the etcd member that provided a snapshot.
type BackupSource struct {
	// machine is the name of the TalosMachine.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`
	// memberID is the ID of the etcd member, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	MemberID string `json:"memberID,omitempty"`
	// leader is true if the member was the leader when the backup began.
	// +optional
	Leader bool `json:"leader,omitempty"`
	// withoutQuorum is true if etcd had no quorum when the backup began: unreachable members may have had newer data.
	// +optional
	WithoutQuorum bool `json:"withoutQuorum,omitempty"`
}

// VerificationStatus is the result of the last verification.
type VerificationStatus struct {
	// level that was reached.
	// +required
	Level VerificationLevel `json:"level,omitempty"`
	// time when the verification ended.
	// +required
	Time metav1.Time `json:"time,omitzero"`
	// revision of the database. Set by the levels Database and Drill.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// totalKeys of the database, as etcdutl counts them. Set by the levels Database and Drill.
	// +optional
	TotalKeys int64 `json:"totalKeys,omitempty"`
	// totalSize of the database, in bytes. Set by the levels Database and Drill.
	// +optional
	TotalSize int64 `json:"totalSize,omitempty"`
	// hash of the database, as etcdutl prints it. Set by the levels Database and Drill.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`
}

// TalosEtcdBackupStatus is the observed state of a backup.
type TalosEtcdBackupStatus struct {
	// conditions are Ready (the backup is there), Complete (and verified as demanded) and Verified; Paused, Reconciling,
	// Stalled and Deleting only while they are true.
	// Stalled means that the backup failed permanently.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// backupID is the ID of the backup in the store. It is recorded before the first byte is written.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BackupID string `json:"backupID,omitempty"`
	// tries is the number of attempts that have begun.
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// failures is the number of attempts that have failed since the last change of the spec.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// nextTryAt is when the next attempt may begin.
	// +optional
	NextTryAt *metav1.Time `json:"nextTryAt,omitempty"`
	// location of the manifest, as a URL without credentials.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Location string `json:"location,omitempty"`
	// key of the manifest in the store, below the prefix. It is recorded together with backupID.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Key string `json:"key,omitempty"`
	// startedAt is when the last attempt began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// completedAt is when the backup completed.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	// source is the etcd member that provided the snapshot.
	// +optional
	Source *BackupSource `json:"source,omitempty"`
	// revision of the database. Set once a verification of level Database or Drill has read it.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// size of the snapshot.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// storedSize is the size of the stored data, compressed and encrypted.
	// +optional
	StoredSize *resource.Quantity `json:"storedSize,omitempty"`
	// snapshotSHA256 is the SHA-256 of the plain snapshot, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SnapshotSHA256 string `json:"snapshotSHA256,omitempty"`
	// verificationKey is the public key that verifies the signature of the backup. Empty for a backup without a signature.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	VerificationKey string `json:"verificationKey,omitempty"`
	// talosVersion of the cluster when the backup was taken.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`
	// kubernetesVersion of the cluster when the backup was taken.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// verification is the last verification that succeeded.
	// +optional
	Verification *VerificationStatus `json:"verification,omitempty"`
}

// TalosEtcdBackup is one backup of a cluster: an etcd snapshot, the state Secret, and a manifest that ties them
// together.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=teb,categories=talos
// +kubebuilder:printcolumn:name="Complete",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Control Plane",type=string,JSONPath=`.spec.controlPlaneRef.name`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.storedSize`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=`.status.verification.level`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Location",type=string,priority=1,JSONPath=`.status.location`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.spec.controlPlaneRef == oldSelf.spec.controlPlaneRef && self.spec.storage == oldSelf.spec.storage && (has(self.spec.recipients) ? self.spec.recipients : []) == (has(oldSelf.spec.recipients) ? oldSelf.spec.recipients : []) && (has(self.spec.recipientsFrom) ? self.spec.recipientsFrom : []) == (has(oldSelf.spec.recipientsFrom) ? oldSelf.spec.recipientsFrom : []) && (has(self.spec.allowUnencrypted) ? self.spec.allowUnencrypted : false) == (has(oldSelf.spec.allowUnencrypted) ? oldSelf.spec.allowUnencrypted : false) && (has(self.spec.compression) ? self.spec.compression : 'Zstd') == (has(oldSelf.spec.compression) ? oldSelf.spec.compression : 'Zstd')",message="controlPlaneRef, storage, recipients, recipientsFrom, allowUnencrypted and compression are immutable: create another TalosEtcdBackup"
type TalosEtcdBackup struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the desired state.
	// +required
	Spec TalosEtcdBackupSpec `json:"spec,omitzero"`
	// status reports the observed state.
	// +optional
	Status TalosEtcdBackupStatus `json:"status,omitzero"`
}

// TalosEtcdBackupList is a list of backups.
//
// +kubebuilder:object:root=true
type TalosEtcdBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosEtcdBackup `json:"items"`
}
