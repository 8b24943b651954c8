package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TalosEtcdRestoreSpec describes one restore of a cluster's etcd from a backup.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a restore does not change: make another one"
type TalosEtcdRestoreSpec struct {
	// controlPlaneRef names the TalosControlPlane whose etcd is restored. When it has no state Secret yet, that of the
	// backup becomes its own. The object may come later.
	// +required
	ControlPlaneRef ObjectReference `json:"controlPlaneRef,omitzero"`
	// source is the backup.
	// +required
	Source RestoreSource `json:"source,omitzero"`
	// identitiesFrom name age identities (private keys) to decrypt the backup with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	IdentitiesFrom []SecretKeyReference `json:"identitiesFrom,omitempty"`
	// verification of the backup before anything is touched. Default: Database. Checksum does as much: without a look into
	// the database nothing proves that what runs in the end is what was restored.
	// +optional
	// +kubebuilder:validation:Enum=Checksum;Database;Drill
	Verification VerificationLevel `json:"verification,omitempty"`
	// discardNewerData says that what the cluster wrote after the backup is to be lost. It is needed where etcd still has
	// data, on any control-plane node that can be asked or that cannot.
	// +optional
	DiscardNewerData bool `json:"discardNewerData,omitempty"`
	// lastSnapshot says what happens with the data that etcd still has before it is wiped: Require refuses to go on without
	// a copy of it, Try goes on when none can be taken, Skip takes none. Default: Require where etcd has quorum, else Try.
	// +optional
	// +kubebuilder:validation:Enum=Require;Try;Skip
	LastSnapshot LastSnapshotPolicy `json:"lastSnapshot,omitempty"`
	// allowMissingChecksum accepts a snapshot without the checksum at its end: a database that was copied from a node.
	// +optional
	AllowMissingChecksum bool `json:"allowMissingChecksum,omitempty"`
	// allowForeign accepts a snapshot that another tool wrote: nothing tells which cluster it is of.
	// +optional
	AllowForeign bool `json:"allowForeign,omitempty"`
	// lostMachines names control-plane machines that will never come back. The restore does not wait for them. Reset one
	// before it is powered on again: it has the old etcd.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MaxLength=253
	LostMachines []string `json:"lostMachines,omitempty"`
	// revisionBump raises the revision of the restored etcd by that much and marks all before as compacted, so that
	// watchers notice that what they know is old. Default: 0. etcd's own advice is 1000000000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	RevisionBump int64 `json:"revisionBump,omitempty"`
	// isolate restores into another cluster than the one that was backed up, with a PKI of its own, to look at what is in
	// it. Secrets are readable: the keys that they are encrypted with are taken over.
	// +optional
	Isolate bool `json:"isolate,omitempty"`
}

// LastSnapshotPolicy says what happens with the data that is about to be wiped.
type LastSnapshotPolicy string

// Policies of the last snapshot.
const (
	// LastSnapshotRequire refuses to go on without a copy.
	LastSnapshotRequire LastSnapshotPolicy = "Require"
	// LastSnapshotTry goes on when none can be taken.
	LastSnapshotTry LastSnapshotPolicy = "Try"
	// LastSnapshotSkip takes none.
	LastSnapshotSkip LastSnapshotPolicy = "Skip"
)

// RestoreSource is the backup that is restored.
// +kubebuilder:validation:XValidation:rule="(has(self.backupRef) ? 1 : 0) + (has(self.storage) ? 1 : 0) == 1",message="set backupRef or storage"
// +kubebuilder:validation:XValidation:rule="!has(self.backupRef) || (!has(self.before) && !has(self.key) && !has(self.cluster))",message="before, key and cluster go with storage"
// +kubebuilder:validation:XValidation:rule="!has(self.before) || !has(self.key)",message="set before or key, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.allowUnauthenticated) || !self.allowUnauthenticated || has(self.key) || has(self.backupRef)",message="allowUnauthenticated accepts one backup: name it with key or backupRef"
type RestoreSource struct {
	// backupRef names a TalosEtcdBackup.
	// +optional
	BackupRef *ObjectReference `json:"backupRef,omitempty"`
	// storage is where the backup lies. Without before and key, the newest verified backup is taken.
	// +optional
	Storage *BackupStorage `json:"storage,omitempty"`
	// cluster is the name under which the backups lie in the store. Default: the name of the control plane's cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster,omitempty"`
	// before takes the newest verified backup that was begun before this time.
	// +optional
	Before *metav1.Time `json:"before,omitempty"`
	// key is the ID of a backup, or the key of any of its objects, or that of a file of another tool.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Key string `json:"key,omitempty"`
	// verificationKeys are public keys that check the signature of the backup, as status.backupVerificationKey of the
	// TalosControlPlane had it. They are needed where the cluster has no state Secret any more, and with isolate; else the
	// key follows from the state Secret, and these are not looked at.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=52
	// +kubebuilder:validation:items:Pattern=`^ed25519:[A-Za-z0-9+/]{43}=$`
	VerificationKeys []string `json:"verificationKeys,omitempty"`
	// allowUnauthenticated accepts a backup that has no signature, or one that cannot be checked because no verification key
	// is known: anyone who can write to the store can have made it. It has to be named by key or backupRef. A signature that
	// is wrong is refused all the same.
	// +optional
	AllowUnauthenticated bool `json:"allowUnauthenticated,omitempty"`
}

// RestoreStep is where a restore is.
type RestoreStep string

// Steps of a restore, in their order.
const (
	// RestorePreflight: nothing has been touched.
	RestorePreflight RestoreStep = "Preflight"
	// RestoreSaving: the data that etcd still has is copied.
	RestoreSaving RestoreStep = "SavingCurrentData"
	// RestoreWiping: the etcd data of the control-plane nodes is wiped.
	RestoreWiping RestoreStep = "Wiping"
	// RestorePreparing: the nodes come up without etcd data.
	RestorePreparing RestoreStep = "Preparing"
	// RestoreUploading: the snapshot goes to one node.
	RestoreUploading RestoreStep = "Uploading"
	// RestoreRecovering: that node starts etcd from it.
	RestoreRecovering RestoreStep = "Recovering"
	// RestoreProving: what was restored is looked at.
	RestoreProving RestoreStep = "Proving"
	// RestoreJoining: the other members join.
	RestoreJoining RestoreStep = "Joining"
	// RestoreComplete: the cluster runs from the backup.
	RestoreComplete RestoreStep = "Complete"
	// RestoreStopped: it was refused or failed for good. Make another one.
	RestoreStopped RestoreStep = "Stopped"
)

// RestoreStepStatus is when a step began and ended.
type RestoreStepStatus struct {
	// step that it speaks of.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Step RestoreStep `json:"step,omitempty"`
	// startedAt is when it began.
	// +required
	StartedAt metav1.MicroTime `json:"startedAt,omitzero"`
	// completedAt is when it ended.
	// +optional
	CompletedAt *metav1.MicroTime `json:"completedAt,omitempty"`
	// message tells what came of it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// RestoredBackup is the backup that was chosen; it stays the same from then on.
type RestoredBackup struct {
	// id of the backup, or the key of a file of another tool.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	ID string `json:"id,omitempty"`
	// cluster that it is of, as the store says.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`
	// location in the store, as a URL without credentials.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Location string `json:"location,omitempty"`
	// time when it was taken.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// revision that is in it.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// totalKeys that are in it.
	// +optional
	TotalKeys int64 `json:"totalKeys,omitempty"`
	// size of the plain snapshot in bytes.
	// +optional
	Size int64 `json:"size,omitempty"`
	// sha256 of the plain snapshot, hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`
	// storageVersion of the etcd that wrote it; empty before etcd 3.6.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	StorageVersion string `json:"storageVersion,omitempty"`
	// copied says that it is the copy of a database, without a checksum at its end.
	// +optional
	Copied bool `json:"copied,omitempty"`
	// authenticity: Authentic (signed with the key of the cluster), Unchecked (signed, and there was no key to check that
	// with), Unsigned, or Foreign (of another tool).
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Authenticity string `json:"authenticity,omitempty"`
}

// RestoreNodeStatus is what a restore did to one control-plane node.
type RestoreNodeStatus struct {
	// machine is the TalosMachine.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`
	// wipedBoot is the boot ID that the node had when its wipe was recorded, before it was asked for.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WipedBoot string `json:"wipedBoot,omitempty"`
	// wipes is how often it was wiped.
	// +optional
	Wipes int32 `json:"wipes,omitempty"`
	// boot ID that the node had when its etcd data was copied, or, without a copy, when the restore left Preflight.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Boot string `json:"boot,omitempty"`
}

// RunAgainAnnotation on a TalosEtcdRestore, with the UID of that object as its value, lets it run although the state
// Secret records that a restore of its name has run. It is taken off once it is at work.
const RunAgainAnnotation = "talos-operator.io/run-again"

// TalosEtcdRestoreStatus is how far a restore is.
type TalosEtcdRestoreStatus struct {
	// conditions: Ready (complete and proven), BackupAuthenticated once a backup was chosen, and Reconciling, Stalled, Deleting while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// step that the restore is at.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Step RestoreStep `json:"step,omitempty"`
	// steps so far.
	// +optional
	// +listType=map
	// +listMapKey=step
	// +kubebuilder:validation:MaxItems=16
	Steps []RestoreStepStatus `json:"steps,omitempty"`
	// backup that was chosen.
	// +optional
	Backup *RestoredBackup `json:"backup,omitempty"`
	// lastSnapshot is where the data that was wiped was copied to, as a URL without credentials.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	LastSnapshot string `json:"lastSnapshot,omitempty"`
	// bootsAt is when boot IDs were last recorded in nodes, or the machine was chosen. An etcd with quorum is not wiped when
	// that is more than an hour ago.
	// +optional
	BootsAt *metav1.Time `json:"bootsAt,omitempty"`
	// nodes of the control plane.
	// +optional
	// +listType=map
	// +listMapKey=machine
	// +kubebuilder:validation:MaxItems=16
	Nodes []RestoreNodeStatus `json:"nodes,omitempty"`
	// machine that etcd is restored on; recorded before the snapshot is sent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`
	// boot ID of that machine when the snapshot was sent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Boot string `json:"boot,omitempty"`
	// tries is how often the snapshot was sent.
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// memberID of the first member, hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	MemberID string `json:"memberID,omitempty"`
	// sentAt is when the snapshot was sent last.
	// +optional
	SentAt *metav1.Time `json:"sentAt,omitempty"`
	// savingID names the copy of the data that is about to be wiped, recorded before it is made.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SavingID string `json:"savingID,omitempty"`
	// saveFailures counts tries to copy the data that was wiped.
	// +optional
	SaveFailures int32 `json:"saveFailures,omitempty"`
	// hadQuorum: etcd was seen with quorum before anything was wiped. From then on a moment without a leader is no reason
	// to go on without a copy of its data.
	// +optional
	HadQuorum bool `json:"hadQuorum,omitempty"`
	// leaderlessAt is since when etcd is seen to run without a leader, before anything was wiped.
	// +optional
	LeaderlessAt *metav1.Time `json:"leaderlessAt,omitempty"`
	// revision that etcd had when it was first seen after the restore.
	// +optional
	Revision int64 `json:"revision,omitempty"`
}

// TalosEtcdRestore brings the etcd of a cluster back from a backup, and the whole cluster when its PKI is lost too.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ter,categories=talos
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Control Plane",type=string,JSONPath=`.spec.controlPlaneRef.name`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Backup",type=string,JSONPath=`.status.backup.id`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type TalosEtcdRestore struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec TalosEtcdRestoreSpec `json:"spec,omitzero"`
	// status is what was seen.
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
