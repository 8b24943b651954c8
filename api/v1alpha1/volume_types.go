package v1alpha1

// Volumes are the volumes that Talos needs itself, by what they hold, and those of users. A volume is provisioned once, when the
// machine is installed: what is set for it later is refused until the machine is wiped, except for keys and grow.
type Volumes struct {
	// ephemeral is the volume of /var: images and logs of containers, data of Pods and of etcd.
	// +optional
	Ephemeral *VolumeOptions `json:"ephemeral,omitempty"`
	// state is the volume of the machine configuration and the identity of the node. Its place and size are fixed.
	// +optional
	State *StateVolume `json:"state,omitempty"`
	// imageCache is the volume of container images that an installation medium brings along.
	// +optional
	ImageCache *VolumeOptions `json:"imageCache,omitempty"`
	// user are volumes with a file system, mounted at /var/mnt/NAME, by their names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	User []UserVolume `json:"user,omitempty"`
	// raw are partitions without a file system, for storage that formats them itself, by their names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Raw []PartitionVolume `json:"raw,omitempty"`
	// swap are partitions for swap space, by their names. The kubelet has to be configured for it, too.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Swap []PartitionVolume `json:"swap,omitempty"`
	// existing are volumes that something else has made, mounted at /var/mnt/NAME, by their names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Existing []ExistingVolume `json:"existing,omitempty"`
	// external are file systems that the host of a virtual machine shares with it, mounted at /var/mnt/NAME, by their names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	External []ExternalVolume `json:"external,omitempty"`
}

// VolumeOptions determine where a volume is provisioned, how large it becomes, and how it is encrypted.
type VolumeOptions struct {
	// diskSelector is an expression (CEL) over the disks of the machine, the first match of which gets the volume, for
	// example disk.transport == "nvme" && !system_disk. Default: the disk that Talos is installed on.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	DiskSelector string `json:"diskSelector,omitempty"`
	// minSize of the volume, for example 50GiB. Default: that of Talos.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	MinSize string `json:"minSize,omitempty"`
	// maxSize of the volume, in the format of minSize, or a percentage of the disk such as 80%. Default: what the disk
	// has.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	MaxSize string `json:"maxSize,omitempty"`
	// grow lets the volume grow with its disk, at a boot. Default: that of Talos.
	// +optional
	Grow *bool `json:"grow,omitempty"`
	// encryption of the volume. Default: none.
	// +optional
	Encryption *VolumeEncryption `json:"encryption,omitempty"`
}

// StateVolume determines how the volume of the machine configuration is encrypted.
type StateVolume struct {
	// encryption of the volume. Default: none.
	// +optional
	Encryption *VolumeEncryption `json:"encryption,omitempty"`
}

// VolumeEncryption encrypts a volume with LUKS2.
type VolumeEncryption struct {
	// keys that open the volume, by their slots. A boot tries them from the lowest slot on. A change takes effect at the
	// next boot, and needs a key that the volume has already: add one, reboot, and remove the other one then.
	// +required
	// +listType=map
	// +listMapKey=slot
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Keys []VolumeKey `json:"keys,omitempty"`
	// cipher of the volume. Default: aes-xts-plain64.
	// +optional
	// +kubebuilder:validation:Enum=aes-xts-plain64;"xchacha12,aes-adiantum-plain64";"xchacha20,aes-adiantum-plain64"
	Cipher string `json:"cipher,omitempty"`
	// keySize of the volume in bits. Default: that of the cipher.
	// +optional
	// +kubebuilder:validation:Enum=256;512
	KeySize int32 `json:"keySize,omitempty"`
	// blockSize of the volume in bytes. Default: that of the disk.
	// +optional
	// +kubebuilder:validation:Enum=512;1024;2048;4096
	BlockSize int32 `json:"blockSize,omitempty"`
	// options for the speed of the volume. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=no_read_workqueue;no_write_workqueue;same_cpu_crypt;submit_from_crypt_cpus
	Options []string `json:"options,omitempty"`
}

// VolumeKeyType is where the key of a volume comes from.
// +kubebuilder:validation:Enum=tpm;nodeID;kms;static
type VolumeKeyType string

// Types of keys.
const (
	// VolumeKeyTPM is a random key that the TPM of the machine seals. It needs an installer for Secure Boot.
	VolumeKeyTPM VolumeKeyType = "tpm"
	// VolumeKeyNodeID follows from the UUID of the machine. It protects only a disk that is taken out of its machine.
	VolumeKeyNodeID VolumeKeyType = "nodeID"
	// VolumeKeyKMS is a random key that a key management service seals.
	VolumeKeyKMS VolumeKeyType = "kms"
	// VolumeKeyStatic is a passphrase, which is a part of the machine configuration.
	VolumeKeyStatic VolumeKeyType = "static"
)

// VolumeKey opens an encrypted volume.
// +kubebuilder:validation:XValidation:rule="(self.type == 'kms') == has(self.kms)",message="kms is required for keys of the type kms, and only valid for them"
// +kubebuilder:validation:XValidation:rule="(self.type == 'static') == has(self.static)",message="static is required for keys of the type static, and only valid for them"
// +kubebuilder:validation:XValidation:rule="self.type == 'tpm' || !has(self.tpm)",message="tpm is only valid for keys of the type tpm"
type VolumeKey struct {
	// slot of the key in the volume. The key of a slot is never replaced by another one: use another slot.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31
	Slot *int32 `json:"slot,omitempty"`
	// type of the key: tpm, nodeID, kms or static.
	// +required
	Type VolumeKeyType `json:"type,omitempty"`
	// tpm are the options of a key of the type tpm.
	// +optional
	TPM *VolumeKeyTPMOptions `json:"tpm,omitempty"`
	// kms is the service of a key of the type kms.
	// +optional
	KMS *VolumeKeyKMSOptions `json:"kms,omitempty"`
	// static is the passphrase of a key of the type static.
	// +optional
	Static *VolumeKeyStaticOptions `json:"static,omitempty"`
	// lockToState makes the key useless without the state volume of the machine, and the volume unreadable once that is
	// wiped. Default: false.
	// +optional
	LockToState *bool `json:"lockToState,omitempty"`
}

// VolumeKeyTPMOptions are the options of a key that the TPM seals.
// +kubebuilder:validation:XValidation:rule="!has(self.pcrs) || !has(self.signedPolicyOnly)",message="set pcrs or signedPolicyOnly, not both"
type VolumeKeyTPMOptions struct {
	// pcrs are the registers of the TPM whose values the key is bound to, beside the signed policy of the boot image.
	// Default: 7, the keys and state of Secure Boot.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=24
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=23
	PCRs []int32 `json:"pcrs,omitempty"`
	// signedPolicyOnly binds the key to the signed policy of the boot image alone, so that an update of the firmware or of
	// the keys of Secure Boot does not lock the volume. Default: false.
	// +optional
	SignedPolicyOnly *bool `json:"signedPolicyOnly,omitempty"`
	// checkSecureBoot makes the key only while the firmware enforces Secure Boot. Default: false.
	// +optional
	CheckSecureBoot *bool `json:"checkSecureBoot,omitempty"`
}

// VolumeKeyKMSOptions name the service that seals a key.
type VolumeKeyKMSOptions struct {
	// endpoint of the service: https://HOST:PORT, or grpc://HOST:PORT without TLS. A machine that cannot reach it does not
	// boot: the service must not run on the cluster whose volumes it opens.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(https|grpc)://[^/?#@\s\pC]+$`
	Endpoint string `json:"endpoint,omitempty"`
}

// VolumeKeyStaticOptions name a passphrase.
type VolumeKeyStaticOptions struct {
	// passphraseFrom names the passphrase in a Secret of the namespace of the object: one line of at least 16 characters.
	// Each machine whose group names it has the same one. A change of what the Secret holds is refused: use another slot.
	// +required
	PassphraseFrom SecretKeyReference `json:"passphraseFrom,omitzero"`
}

// UserVolumeType is what a volume of a user consists of.
// +kubebuilder:validation:Enum=partition;disk;directory
type UserVolumeType string

// Types of volumes of users.
const (
	// UserVolumePartition is a partition of a disk. It is the default.
	UserVolumePartition UserVolumeType = "partition"
	// UserVolumeDisk is a whole disk.
	UserVolumeDisk UserVolumeType = "disk"
	// UserVolumeDirectory is a directory of the ephemeral volume.
	UserVolumeDirectory UserVolumeType = "directory"
)

// UserVolume is a volume with a file system that Talos mounts at /var/mnt/NAME. One that is no longer listed is not
// mounted any more; its data stays on the disk.
type UserVolume struct {
	// name of the volume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=34
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	Name string `json:"name,omitempty"`
	// type of the volume: partition (default), disk or directory.
	// +optional
	Type UserVolumeType `json:"type,omitempty"`
	// filesystem of the volume. Default: xfs.
	// +optional
	// +kubebuilder:validation:Enum=xfs;ext4
	Filesystem string `json:"filesystem,omitempty"`

	MountOptions  `json:",inline"`
	VolumeOptions `json:",inline"`
}

// MountOptions are how Talos mounts a volume.
type MountOptions struct {
	// secure mounts the volume without devices and without the set-user-ID and set-group-ID bits of programs (nodev,
	// nosuid). Talos 1.13 and later. Default: true.
	// +optional
	Secure *bool `json:"secure,omitempty"`
	// disableAccessTime mounts the volume without recording when files were last read (noatime). Talos 1.13 and later.
	// Default: false.
	// +optional
	DisableAccessTime *bool `json:"disableAccessTime,omitempty"`
}

// PartitionVolume is a partition without a file system. One that is no longer listed stays on its disk.
type PartitionVolume struct {
	// name of the volume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=34
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	Name string `json:"name,omitempty"`

	VolumeOptions `json:",inline"`
}

// ExistingVolume is a volume that something else has made, and that Talos mounts at /var/mnt/NAME.
type ExistingVolume struct {
	// name of the volume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=34
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	Name string `json:"name,omitempty"`
	// volumeSelector is an expression (CEL) over the volumes and disks of the machine, for example
	// volume.partition_label == "DATA".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	VolumeSelector string `json:"volumeSelector,omitempty"`
	// readOnly mounts the volume without write access. Default: false.
	// +optional
	ReadOnly *bool `json:"readOnly,omitempty"`

	MountOptions `json:",inline"`
}

// ExternalVolume is a file system that the host of a virtual machine shares with it by virtiofs, and that Talos mounts at
// /var/mnt/NAME.
type ExternalVolume struct {
	// name of the volume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=34
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	Name string `json:"name,omitempty"`
	// tag that the host gave the file system.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^\P{C}+$`
	Tag string `json:"tag,omitempty"`
	// readOnly mounts the volume without write access. Default: false.
	// +optional
	ReadOnly *bool `json:"readOnly,omitempty"`

	MountOptions `json:",inline"`
}

// MachineVolume is what a node reports about one of its volumes.
type MachineVolume struct {
	// name of the volume, as Talos calls it: STATE, EPHEMERAL, IMAGECACHE, and, if they failed, those of users.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`
	// opened is true if the machine has opened the volume since it was installed. Until it opens it again, encryption,
	// keySlot, keys, lockedToState, tpm and failedKeys are those of the last time.
	// +optional
	Opened bool `json:"opened,omitempty"`
	// phase of the volume, as Talos reports it: ready, failed, missing, …
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`
	// sizeMiB is the size in MiB.
	// +optional
	SizeMiB int64 `json:"sizeMiB,omitempty"`
	// encryption that the volume was opened with, such as luks2; empty if it is not encrypted.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Encryption string `json:"encryption,omitempty"`
	// keySlot is the slot of the key that opened the volume. Absent if the node does not tell.
	// +optional
	KeySlot *int32 `json:"keySlot,omitempty"`
	// keys are the types of the keys that the volume was configured for when it was opened.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=64
	Keys []string `json:"keys,omitempty"`
	// lockedToState is true if the keys are useless without the state volume of the machine. Absent if the volume is not
	// encrypted, or this has not been observed: a version of the operator that does not know it has read the volume.
	// +optional
	LockedToState *bool `json:"lockedToState,omitempty"`
	// tpm is what the key is bound to that the TPM seals. Absent if there is no such key, the node does not tell, or this
	// has not been observed, as for lockedToState.
	// +optional
	TPM *MachineVolumeTPM `json:"tpm,omitempty"`
	// failedKeys are keys that could not be written or removed when the volume was opened, and why.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=512
	FailedKeys []string `json:"failedKeys,omitempty"`
	// message of Talos about a volume that failed.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// MachineVolumeTPM is what a key is bound to that the TPM seals.
type MachineVolumeTPM struct {
	// pcrs are the registers whose values the key is bound to.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=24
	PCRs []int32 `json:"pcrs,omitempty"`
	// pubKeyPCRs are the registers that the signed policy of the boot image is about.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=24
	PubKeyPCRs []int32 `json:"pubKeyPCRs,omitempty"`
}

// BootVolumes are the keys that a machine had for its volumes at a boot. Only these can open them at the next one.
type BootVolumes struct {
	// bootID of the boot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// keys by VOLUME/SLOT: the type of each, and a hash of it with the secret of the cluster. With that secret, which the
	// configurations of all machines contain, passphrases can be tried against their hashes.
	// +optional
	// +kubebuilder:validation:MaxProperties=1024
	Keys map[string]string `json:"keys,omitempty"`
}
