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
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// key in the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// BackupStorage is where backups are stored: a bucket, or a directory that is mounted into the operator.
// +kubebuilder:validation:XValidation:rule="has(self.s3) != has(self.directory)",message="set exactly one of s3 and directory"
type BackupStorage struct {
	// s3 is a bucket of S3 or of a compatible store.
	// +optional
	S3 *S3Storage `json:"s3,omitempty"`
	// directory is a directory that is mounted into the operator.
	// +optional
	Directory *DirectoryStorage `json:"directory,omitempty"`
}

// S3Storage is an S3 bucket. The bucket must exist.
type S3Storage struct {
	// endpoint is https://host[:port], http://host[:port], or host[:port], which means https. Default: the AWS endpoint of
	// the region.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Endpoint string `json:"endpoint,omitempty"`
	// region of the bucket. Default: us-east-1, which most compatible stores accept.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Region string `json:"region,omitempty"`
	// bucket is the name of the bucket.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Bucket string `json:"bucket,omitempty"`
	// prefix of all object keys, without leading or trailing slashes.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Prefix string `json:"prefix,omitempty"`
	// addressing is how requests name the bucket: Path or VirtualHost. Default: VirtualHost for AWS, otherwise Path.
	// +optional
	// +kubebuilder:validation:Enum=Path;VirtualHost
	Addressing string `json:"addressing,omitempty"`
	// caFrom references the PEM-encoded CA certificates that the certificate of the endpoint is verified against. Default:
	// the CA certificates of the system.
	// +optional
	CAFrom *SecretKeyReference `json:"caFrom,omitempty"`
	// credentialsRef names a Secret with the keys accessKeyID, secretAccessKey and, for temporary credentials,
	// sessionToken. The Secret is read each time it is used. Default: the operator's own credentials (AWS_ACCESS_KEY_ID
	// and so on, a web identity token, the metadata service), if the operator was started with --allow-own-credentials for
	// the namespace and the bucket.
	// +optional
	CredentialsRef *ObjectReference `json:"credentialsRef,omitempty"`
	// serverSideEncryption that is requested from the store, in addition to the operator's own encryption.
	// +optional
	ServerSideEncryption *ServerSideEncryption `json:"serverSideEncryption,omitempty"`
	// objectLock protects each object from deletion for a period of time. Object lock must be enabled on the bucket.
	// +optional
	ObjectLock *ObjectLock `json:"objectLock,omitempty"`
}

// ServerSideEncryption is encryption by the store.
// +kubebuilder:validation:XValidation:rule="!has(self.kmsKeyID) || self.type == 'KMS'",message="kmsKeyID requires the type KMS"
type ServerSideEncryption struct {
	// type is AES256 (keys of the store) or KMS.
	// +required
	// +kubebuilder:validation:Enum=AES256;KMS
	Type string `json:"type,omitempty"`
	// kmsKeyID is the key for type KMS. Default: the default key of the store.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	KMSKeyID string `json:"kmsKeyID,omitempty"`
}

// ObjectLock is the object-lock retention of S3.
type ObjectLock struct {
	// mode is Governance, which lets users with a special permission delete objects, or Compliance, which lets no user
	// delete them.
	// +required
	// +kubebuilder:validation:Enum=Governance;Compliance
	Mode string `json:"mode,omitempty"`
	// duration is the minimum time for which an object is kept.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="duration must be at least 1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Duration metav1.Duration `json:"duration,omitzero"`
}

// DirectoryStorage is a directory below the namespace's directory, which is below the directory that the operator was
// started with (--backup-directory).
type DirectoryStorage struct {
	// path relative to the directory of the namespace, without dots. Default: that directory itself.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$`
	Path string `json:"path,omitempty"`
}

// BackupCompression is the compression of a snapshot.
// +kubebuilder:validation:Enum=Zstd;None
type BackupCompression string

// Compressions.
const (
	// CompressionZstd is the default.
	CompressionZstd BackupCompression = "Zstd"
	// CompressionNone stores the snapshot uncompressed.
	CompressionNone BackupCompression = "None"
)

// VerificationLevel determines how thoroughly a backup is verified.
// +kubebuilder:validation:Enum=None;Checksum;Database;Drill
type VerificationLevel string

// Levels of verification. Each level includes the levels before it.
const (
	// VerificationNone does not read the backup back. Such a backup never counts as the newest verified backup of a
	// restore.
	VerificationNone VerificationLevel = "None"
	// VerificationChecksum reads all objects back and compares their checksums with what was written. It is the default.
	VerificationChecksum VerificationLevel = "Checksum"
	// VerificationDatabase decrypts the snapshot and checks the database in it. It needs an age identity.
	VerificationDatabase VerificationLevel = "Database"
	// VerificationDrill restores the snapshot into a temporary etcd, starts it, and checks its contents.
	VerificationDrill VerificationLevel = "Drill"
)

// BackupVerification is how backups are verified.
// +kubebuilder:validation:XValidation:rule="!(self.level in ['Database', 'Drill']) || has(self.identitiesFrom) || self.plain",message="Database and Drill read the snapshot: set identitiesFrom, or plain for backups that are not encrypted"
type BackupVerification struct {
	// level of the verification. Default: Checksum.
	// +optional
	// +default="Checksum"
	Level VerificationLevel `json:"level,omitempty"`
	// identitiesFrom reference the age identities (private keys) that decrypt the backups.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	IdentitiesFrom []SecretKeyReference `json:"identitiesFrom,omitempty"`
	// plain states that the backups are not encrypted, so that no identity is needed.
	// +optional
	// +default=false
	Plain bool `json:"plain,omitempty"`
}

// BackupDeletionPolicy determines what happens to the data in the store when the object is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type BackupDeletionPolicy string

// Deletion policies of backups.
const (
	// BackupRetain keeps the data in the store. It is the default.
	BackupRetain BackupDeletionPolicy = "Retain"
	// BackupDelete deletes the snapshot, the state and the manifest together.
	BackupDelete BackupDeletionPolicy = "Delete"
)

// BackupBeforeDisruption demands a fresh backup before the operator disrupts a control-plane node on its own
// initiative.
type BackupBeforeDisruption struct {
	// scheduleRef names a TalosEtcdBackupSchedule of the control plane. Backups of that schedule count. If none is fresh,
	// one is created from its template, even while the schedule is suspended.
	// +required
	ScheduleRef ObjectReference `json:"scheduleRef,omitzero"`
	// maxAge is the maximum age of the backup when a disruption begins. Default: 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="maxAge must be at least 1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}
