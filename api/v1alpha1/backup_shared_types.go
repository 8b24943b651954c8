package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecretKeyReference names a key of a Secret in the same namespace.
type SecretKeyReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// key in the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// BackupStorage is where backups are kept: a bucket, or a folder that is mounted into the operator.
// +kubebuilder:validation:XValidation:rule="has(self.s3) != has(self.directory)",message="set s3 or directory"
type BackupStorage struct {
	// s3 is a bucket of S3 or of anything that is compatible with it.
	// +optional
	S3 *S3Storage `json:"s3,omitempty"`
	// directory is a folder that is mounted into the operator.
	// +optional
	Directory *DirectoryStorage `json:"directory,omitempty"`
}

// S3Storage is a bucket. It has to exist.
type S3Storage struct {
	// endpoint is https://host[:port], http://host[:port] or host[:port], which means https. Default: that of AWS in the
	// region.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Endpoint string `json:"endpoint,omitempty"`
	// region of the bucket. Default: us-east-1, which most compatible stores take.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// bucket name.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	Bucket string `json:"bucket,omitempty"`
	// prefix of all keys, without slashes at its ends.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Prefix string `json:"prefix,omitempty"`
	// addressing says where the bucket goes in a request: Path or VirtualHost. Default: VirtualHost for AWS, else Path.
	// +optional
	// +kubebuilder:validation:Enum=Path;VirtualHost
	Addressing string `json:"addressing,omitempty"`
	// caFrom names the certificates, in PEM, that that of the endpoint is checked against. Default: those of the system.
	// +optional
	CAFrom *SecretKeyReference `json:"caFrom,omitempty"`
	// credentialsRef names a Secret with the keys accessKeyID, secretAccessKey and, for temporary ones, sessionToken; it
	// is read anew whenever it is used. Default: the operator's own credentials (AWS_ACCESS_KEY_ID and so on, a web
	// identity token, the metadata service), where the operator was started with --allow-own-credentials for the namespace
	// and the bucket.
	// +optional
	CredentialsRef *ObjectReference `json:"credentialsRef,omitempty"`
	// serverSideEncryption that the store is asked for, in addition to our own.
	// +optional
	ServerSideEncryption *ServerSideEncryption `json:"serverSideEncryption,omitempty"`
	// objectLock protects each object from deletion for a while. The bucket must have it enabled.
	// +optional
	ObjectLock *ObjectLock `json:"objectLock,omitempty"`
}

// ServerSideEncryption by the store.
// +kubebuilder:validation:XValidation:rule="!has(self.kmsKeyID) || self.type == 'KMS'",message="kmsKeyID goes with type KMS"
type ServerSideEncryption struct {
	// type is AES256 (keys of the store) or KMS.
	// +required
	// +kubebuilder:validation:Enum=AES256;KMS
	Type string `json:"type,omitempty"`
	// kmsKeyID for type KMS. Default: the default key of the store.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	KMSKeyID string `json:"kmsKeyID,omitempty"`
}

// ObjectLock is the retention of S3 object lock.
type ObjectLock struct {
	// mode: Governance lets those with a special permission delete, Compliance nobody.
	// +required
	// +kubebuilder:validation:Enum=Governance;Compliance
	Mode string `json:"mode,omitempty"`
	// duration for which an object is kept at least.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="duration must be 1m at least"
	Duration metav1.Duration `json:"duration,omitzero"`
}

// DirectoryStorage is a folder below that of the namespace, which is below the one that the operator was started with
// (--backup-directory).
type DirectoryStorage struct {
	// path relative to the folder of the namespace, without dots. Default: that folder itself.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$`
	Path string `json:"path,omitempty"`
}

// BackupCompression of a snapshot.
// +kubebuilder:validation:Enum=Zstd;None
type BackupCompression string

// Compressions.
const (
	// CompressionZstd is the default.
	CompressionZstd BackupCompression = "Zstd"
	// CompressionNone stores the snapshot as it is.
	CompressionNone BackupCompression = "None"
)

// VerificationLevel says how thoroughly a backup is verified.
// +kubebuilder:validation:Enum=None;Checksum;Database;Drill
type VerificationLevel string

// Levels of verification, each with all that the ones before it do.
const (
	// VerificationNone trusts what was written. It is never enough for a restore of the newest verified backup.
	VerificationNone VerificationLevel = "None"
	// VerificationChecksum reads all objects back and compares them with what was written. It is the default.
	VerificationChecksum VerificationLevel = "Checksum"
	// VerificationDatabase decrypts the snapshot and checks the database in it. It needs an identity.
	VerificationDatabase VerificationLevel = "Database"
	// VerificationDrill restores the snapshot into an etcd of its own, starts it, and looks what is in it.
	VerificationDrill VerificationLevel = "Drill"
)

// BackupVerification of a backup.
// +kubebuilder:validation:XValidation:rule="!(self.level in ['Database', 'Drill']) || has(self.identitiesFrom) || self.plain",message="Database and Drill read the snapshot: name an identity, or set plain for backups that are not encrypted"
type BackupVerification struct {
	// level of the verification. Default: Checksum.
	// +required
	// +default="Checksum"
	Level VerificationLevel `json:"level,omitempty"`
	// identitiesFrom name age identities (private keys) to decrypt backups with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	IdentitiesFrom []SecretKeyReference `json:"identitiesFrom,omitempty"`
	// plain says that the backups are not encrypted, so that no identity is needed.
	// +optional
	// +default=false
	Plain bool `json:"plain,omitempty"`
}

// BackupDeletionPolicy says what becomes of the data in the store when the object is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type BackupDeletionPolicy string

// Deletion policies of backups.
const (
	// BackupRetain leaves the data where it is. It is the default.
	BackupRetain BackupDeletionPolicy = "Retain"
	// BackupDelete deletes snapshot, state and manifest together.
	BackupDelete BackupDeletionPolicy = "Delete"
)

// BackupBeforeDisruption demands a fresh backup before the operator takes a control-plane node away of its own accord.
type BackupBeforeDisruption struct {
	// scheduleRef names a TalosEtcdBackupSchedule of the control plane. A backup that it made counts, and when there is
	// none that is fresh, one is made from its template; also while it is suspended.
	// +required
	ScheduleRef ObjectReference `json:"scheduleRef,omitzero"`
	// maxAge is how old the backup may be when a disruption begins. Default: 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="maxAge must be 1m at least"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}
