package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TalosEtcdRestoreSpec describes one restore of a cluster's etcd from a backup.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a restore is immutable: create another TalosEtcdRestore"
type TalosEtcdRestoreSpec struct {
	// controlPlaneRef names the TalosControlPlane whose etcd is restored. If it has no state Secret yet, it gets the one
	// in the backup. The TalosControlPlane may be created after the restore.
	// +required
	ControlPlaneRef ObjectReference `json:"controlPlaneRef,omitzero"`
	// source of the backup.
	// +required
	Source RestoreSource `json:"source,omitzero"`
	// identitiesFrom reference the age identities (private keys) that decrypt the backup.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	IdentitiesFrom []SecretKeyReference `json:"identitiesFrom,omitempty"`
	// verification of the backup before the cluster is changed. Default: Database. Checksum does the same: without reading
	// the database, the restore could not prove that the running data is the restored data.
	// +optional
	// +kubebuilder:validation:Enum=Checksum;Database;Drill
	Verification VerificationLevel `json:"verification,omitempty"`
	// discardNewerData accepts the loss of everything that the cluster wrote after the backup. It is required if any
	// control-plane node still has etcd data, or cannot be asked whether it has.
	// +optional
	DiscardNewerData bool `json:"discardNewerData,omitempty"`
	// lastSnapshot determines what happens with the data that etcd still has before it is wiped: Require does not continue
	// without a copy of it, Try continues if no copy can be taken, Skip takes none. Default: Require if etcd has quorum,
	// otherwise Try.
	// +optional
	// +kubebuilder:validation:Enum=Require;Try;Skip
	LastSnapshot LastSnapshotPolicy `json:"lastSnapshot,omitempty"`
	// allowMissingChecksum accepts a snapshot without a checksum at its end: a database file that was copied from a node.
	// +optional
	AllowMissingChecksum bool `json:"allowMissingChecksum,omitempty"`
	// allowForeign accepts a snapshot that another tool wrote: nothing proves which cluster it belongs to.
	// +optional
	AllowForeign bool `json:"allowForeign,omitempty"`
	// lostMachines names control-plane machines that will never come back. The restore does not wait for them. Reset such
	// a machine before it is powered on again, because it still has the old etcd data.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	LostMachines []string `json:"lostMachines,omitempty"`
	// revisionBump raises the revision of the restored etcd by this number and marks all earlier revisions as compacted,
	// so that watchers notice that their caches are outdated. Default: 0. etcd recommends 1000000000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	RevisionBump int64 `json:"revisionBump,omitempty"`
	// isolate restores into another cluster than the one that was backed up, with a PKI of its own, to inspect the data.
	// Secrets remain readable: their encryption keys are taken over.
	// +optional
	Isolate bool `json:"isolate,omitempty"`
}

// LastSnapshotPolicy determines what happens with the data that is about to be wiped.
type LastSnapshotPolicy string

// Policies of the last snapshot.
const (
	// LastSnapshotRequire does not continue without a copy of the data.
	LastSnapshotRequire LastSnapshotPolicy = "Require"
	// LastSnapshotTry continues if no copy can be taken.
	LastSnapshotTry LastSnapshotPolicy = "Try"
	// LastSnapshotSkip takes no copy.
	LastSnapshotSkip LastSnapshotPolicy = "Skip"
)

// RestoreSource is the backup that is restored.
// +kubebuilder:validation:XValidation:rule="(has(self.backupRef) ? 1 : 0) + (has(self.storage) ? 1 : 0) == 1",message="set exactly one of backupRef and storage"
// +kubebuilder:validation:XValidation:rule="!has(self.backupRef) || (!has(self.before) && !has(self.key) && !has(self.cluster))",message="before, key and cluster require storage"
// +kubebuilder:validation:XValidation:rule="!has(self.before) || !has(self.key)",message="set before or key, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.allowUnauthenticated) || !self.allowUnauthenticated || has(self.key) || has(self.backupRef)",message="allowUnauthenticated applies to one backup: set key or backupRef"
type RestoreSource struct {
	// backupRef names a TalosEtcdBackup.
	// +optional
	BackupRef *ObjectReference `json:"backupRef,omitempty"`
	// storage is where the backup is stored. Without before and key, the newest verified backup is restored.
	// +optional
	Storage *BackupStorage `json:"storage,omitempty"`
	// cluster is the name of the cluster under which the backups are stored. Default: the cluster name of the control
	// plane.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Cluster string `json:"cluster,omitempty"`
	// before selects the newest verified backup that began before this time.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Before *metav1.Time `json:"before,omitempty"`
	// key is the ID of a backup, or the key of any of its objects, or the key of a file that another tool wrote.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Key string `json:"key,omitempty"`
	// verificationKeys are the public keys that verify the signature of the backup, as in status.backupVerificationKey of
	// the TalosControlPlane. They are required if the cluster no longer has a state Secret, and with isolate. Otherwise
	// the key is derived from the state Secret and this field is ignored.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=52
	// +kubebuilder:validation:items:Pattern=`^ed25519:[A-Za-z0-9+/]{43}=$`
	VerificationKeys []string `json:"verificationKeys,omitempty"`
	// allowUnauthenticated accepts a backup without a signature, or one whose signature cannot be verified because no
	// verification key is known: everyone who can write to the store may have created it. The backup must be named by key
	// or backupRef. A wrong signature is always rejected.
	// +optional
	AllowUnauthenticated bool `json:"allowUnauthenticated,omitempty"`
}

// RestoreStep is a step of a restore.
type RestoreStep string

// Steps of a restore, in order.
const (
	// RestorePreflight: the restore is being checked; nothing has been changed.
	RestorePreflight RestoreStep = "Preflight"
	// RestoreSaving: the data that etcd still has is being copied.
	RestoreSaving RestoreStep = "SavingCurrentData"
	// RestoreWiping: the etcd data of the control-plane nodes is being wiped.
	RestoreWiping RestoreStep = "Wiping"
	// RestorePreparing: the nodes are booting without etcd data.
	RestorePreparing RestoreStep = "Preparing"
	// RestoreUploading: the snapshot is being sent to one node.
	RestoreUploading RestoreStep = "Uploading"
	// RestoreRecovering: that node is starting etcd from the snapshot.
	RestoreRecovering RestoreStep = "Recovering"
	// RestoreProving: the restored data is being verified.
	RestoreProving RestoreStep = "Proving"
	// RestoreJoining: the other members are joining.
	RestoreJoining RestoreStep = "Joining"
	// RestoreComplete: the cluster runs from the backup.
	RestoreComplete RestoreStep = "Complete"
	// RestoreStopped: the restore was refused or failed permanently. Create a new one.
	RestoreStopped RestoreStep = "Stopped"
)

// RestoreStepStatus records when a step began and ended.
type RestoreStepStatus struct {
	// step is the name of the step.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Step RestoreStep `json:"step,omitempty"`
	// startedAt is when the step began.
	// +required
	StartedAt metav1.MicroTime `json:"startedAt,omitzero"`
	// completedAt is when the step ended.
	// +optional
	CompletedAt *metav1.MicroTime `json:"completedAt,omitempty"`
	// message describes the result of the step.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// RestoredBackup is the backup that was chosen. It does not change afterwards.
type RestoredBackup struct {
	// id of the backup, or the key of a file that another tool wrote.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	ID string `json:"id,omitempty"`
	// cluster that the backup belongs to, according to the store.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`
	// location in the store, as a URL without credentials.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Location string `json:"location,omitempty"`
	// time when the backup was taken.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// revision of the snapshot.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// totalKeys in the snapshot.
	// +optional
	TotalKeys int64 `json:"totalKeys,omitempty"`
	// size of the plain snapshot, in bytes.
	// +optional
	Size int64 `json:"size,omitempty"`
	// sha256 of the plain snapshot, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`
	// storageVersion of the etcd that wrote the snapshot. Empty before etcd 3.6.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	StorageVersion string `json:"storageVersion,omitempty"`
	// copied is true if the snapshot is the copy of a database file, without a checksum at its end.
	// +optional
	Copied bool `json:"copied,omitempty"`
	// authenticity of the backup: Authentic (signed with the key of the cluster), Unchecked (signed, but no key was
	// available to verify the signature), Unsigned, or Foreign (written by another tool).
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Authenticity string `json:"authenticity,omitempty"`
}

// RestoreNodeStatus records what a restore did to one control-plane node.
type RestoreNodeStatus struct {
	// machine is the name of the TalosMachine.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`
	// wipedBoot is the boot ID of the node when its wipe was recorded, before the wipe was requested.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WipedBoot string `json:"wipedBoot,omitempty"`
	// wipes is how often the node was wiped.
	// +optional
	Wipes int32 `json:"wipes,omitempty"`
	// boot is the boot ID of the node when its etcd data was copied or, without a copy, when the restore left Preflight.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Boot string `json:"boot,omitempty"`
}

// RunAgainAnnotation on a TalosEtcdRestore, with the UID of that object as its value, lets it run although the state
// Secret records that a restore of its name has already run. The operator removes the annotation once the restore runs.
const RunAgainAnnotation = "talos-operator.io/run-again"

// RestoreRecord is what the operator remembers of a restore from one step to the next.
type RestoreRecord struct {
	// bootsAt is when boot IDs were last recorded in nodes, or when the machine was chosen. If that is more than an hour
	// ago, an etcd with quorum is not wiped.
	// +optional
	BootsAt *metav1.Time `json:"bootsAt,omitempty"`
	// nodes of the control plane.
	// +optional
	// +listType=map
	// +listMapKey=machine
	// +kubebuilder:validation:MaxItems=16
	Nodes []RestoreNodeStatus `json:"nodes,omitempty"`
	// boot is the boot ID of the machine when the snapshot was sent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Boot string `json:"boot,omitempty"`
	// sentAt is when the snapshot was last sent.
	// +optional
	SentAt *metav1.Time `json:"sentAt,omitempty"`
	// savingID is the ID of the copy of the data that is about to be wiped. It is recorded before the copy is made.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SavingID string `json:"savingID,omitempty"`
	// saveFailures is the number of failed attempts to copy the data that is about to be wiped.
	// +optional
	SaveFailures int32 `json:"saveFailures,omitempty"`
	// hadQuorum is true if etcd was observed with quorum before anything was wiped. From then on, a temporary loss of the
	// leader does not allow the restore to continue without a copy of the data.
	// +optional
	HadQuorum bool `json:"hadQuorum,omitempty"`
	// leaderlessAt is since when etcd has been observed without a leader, before anything was wiped.
	// +optional
	LeaderlessAt *metav1.Time `json:"leaderlessAt,omitempty"`
}

// TalosEtcdRestoreStatus is the observed state of a restore.
type TalosEtcdRestoreStatus struct {
	// conditions are Complete, BackupAuthenticated once a backup was chosen; Paused, Reconciling, Stalled and
	// Deleting only while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// step is the current step of the restore.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Step RestoreStep `json:"step,omitempty"`
	// steps that have begun so far.
	// +optional
	// +listType=map
	// +listMapKey=step
	// +kubebuilder:validation:MaxItems=16
	Steps []RestoreStepStatus `json:"steps,omitempty"`
	// backup that was chosen to restore.
	// +optional
	Backup *RestoredBackup `json:"backup,omitempty"`
	// lastSnapshot is where the wiped data was copied to, as a URL without credentials.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	LastSnapshot string `json:"lastSnapshot,omitempty"`
	// machine on which etcd is restored. It is recorded before the snapshot is sent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`
	// tries is how often the snapshot was sent.
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// memberID is the ID of the first etcd member, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	MemberID string `json:"memberID,omitempty"`
	// revision of etcd when it was first observed after the restore.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// record is what the operator remembers from one step to the next. It is not meant for people: what it says about the
	// nodes is of the moment in which it was written.
	// +optional
	RestoreRecord `json:"record,omitzero"`
}

// TalosEtcdRestore restores the etcd of a cluster from a backup, and the whole cluster if its PKI is lost too.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ter,categories=talos
// +kubebuilder:printcolumn:name="Complete",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].status`
// +kubebuilder:printcolumn:name="Control Plane",type=string,JSONPath=`.spec.controlPlaneRef.name`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Backup",type=string,JSONPath=`.status.backup.id`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].message`
type TalosEtcdRestore struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the desired state.
	// +required
	Spec TalosEtcdRestoreSpec `json:"spec,omitzero"`
	// status reports the observed state.
	// +optional
	Status TalosEtcdRestoreStatus `json:"status,omitzero"`
}

// TalosEtcdRestoreList is a list of restores.
//
// +kubebuilder:object:root=true
type TalosEtcdRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosEtcdRestore `json:"items"`
}
