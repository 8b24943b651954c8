package v1alpha1

// Reasons are those of conditions; the event of a transition has the same reason. A reason keeps its meaning once it is
// released: alerts depend on it.

// Reasons of any kind of object.
const (
	// ReasonReady: the observed state matches the desired state.
	ReasonReady = "Ready"
	// ReasonReconciling: work is in progress.
	ReasonReconciling = "Reconciling"
	// ReasonUnknown: not yet observed.
	ReasonUnknown = "Unknown"
	// ReasonNotObserved: the state that the condition depends on has not been observed recently; the message says since
	// when.
	ReasonNotObserved = "NotObserved"
	// ReasonPaused: the paused annotation is set.
	ReasonPaused = "Paused"
	// ReasonDryRun: the reconcile mode is DryRun; only status is written.
	ReasonDryRun = "DryRun"
	// ReasonDisabled: the reconcile mode is Disabled; the operator does nothing and does not update the status.
	ReasonDisabled = "Disabled"
	// ReasonInvalidReconcileMode: the reconcile mode has an unknown value, which is treated as DryRun.
	ReasonInvalidReconcileMode = "InvalidReconcileMode"
	// ReasonDeleting: the deletion is in progress.
	ReasonDeleting = "Deleting"
	// ReasonInvalidSpec: the spec violates a rule; the message names the field and the remedy.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonImmutableField: a field was changed that cannot change once the cluster exists.
	ReasonImmutableField = "ImmutableField"
	// ReasonUnsupportedVersion: this combination of Talos and Kubernetes versions is unknown or unsupported.
	ReasonUnsupportedVersion = "UnsupportedVersion"
	// ReasonDowngradeRefused: the spec names an older version than the running one.
	ReasonDowngradeRefused = "DowngradeRefused"
	// ReasonInvalidPatch: a configuration patch does not parse or results in an invalid machine configuration.
	ReasonInvalidPatch = "InvalidPatch"
	// ReasonAddressConflict: another machine has the same address.
	ReasonAddressConflict = "AddressConflict"
	// ReasonNameConflict: an object with the required name exists and is controlled by another owner.
	ReasonNameConflict = "NameConflict"
)

// Reasons about the state Secret, the owner of a cluster, and its import.
const (
	// ReasonStateSecretInvalid: the state Secret cannot be read, is incomplete, or belongs to another cluster.
	ReasonStateSecretInvalid = "StateSecretInvalid"
	// ReasonStateSecretDeleting: the state Secret is being deleted while it is still needed.
	ReasonStateSecretDeleting = "StateSecretDeleting"
	// ReasonOwnedElsewhere: the cluster was last managed by another TalosControlPlane: one of another management plane, or
	// an earlier object with the same name. The operator sends nothing to the nodes until a user confirms the change.
	ReasonOwnedElsewhere = "OwnedElsewhere"
	// ReasonTakenOver: the cluster was taken over from another TalosControlPlane, as confirmed by the annotation.
	ReasonTakenOver = "TakenOver"
	// ReasonBootstrapSecretsInvalid: the Secret named by bootstrapSecretsRef is missing or incomplete.
	ReasonBootstrapSecretsInvalid = "BootstrapSecretsInvalid"
	// ReasonImportSecretInvalid: the Secret named by import is missing, incomplete, or belongs to another cluster than the
	// nodes.
	ReasonImportSecretInvalid = "ImportSecretInvalid"
	// ReasonImportRefused: a running cluster cannot be imported in its current state; the message says why.
	ReasonImportRefused = "ImportRefused"
	// ReasonImported: a cluster or machine that was created elsewhere was imported together with its live configuration.
	ReasonImported = "Imported"
)

// Reasons about certificates.
const (
	// ReasonCertificatesValid: client certificates are renewed automatically, and no CA expires within half a year.
	ReasonCertificatesValid = "CertificatesValid"
	// ReasonCertificateDue: a client certificate is due for renewal and was not renewed; the message names it and its
	// expiry.
	ReasonCertificateDue = "CertificateDue"
	// ReasonAuthorityEnding: a CA of the cluster expires within half a year and has to be replaced before then.
	ReasonAuthorityEnding = "AuthorityEnding"
	// ReasonCertificateExpired: a certificate has expired.
	ReasonCertificateExpired = "CertificateExpired"
)

// Reasons about one machine: whether it responds, which machine it is, and what it runs.
const (
	// ReasonWaitingForControlPlane: the TalosControlPlane does not exist yet or has no PKI yet.
	ReasonWaitingForControlPlane = "WaitingForControlPlane"
	// ReasonOtherShard: an object, or one that it belongs to, carries the label of another shard than the one that asks,
	// or none yet. Nothing is decided about a cluster that is not wholly in one shard.
	ReasonOtherShard = "OtherShard"
	// ReasonWaitingForAddress: no provider has assigned an address to the machine yet.
	ReasonWaitingForAddress = "WaitingForAddress"
	// ReasonReachable: the Talos API responds.
	ReasonReachable = "Reachable"
	// ReasonNodeUnreachable: the Talos API of the node does not respond.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonAuthFailed: the node rejects the operator's credentials.
	ReasonAuthFailed = "AuthFailed"
	// ReasonAnswerTooLarge: the response of the node exceeds the size that any Talos node needs; it was not read to the
	// end.
	ReasonAnswerTooLarge = "AnswerTooLarge"
	// ReasonNodeDiskFull: the node reports that its disk is out of space.
	ReasonNodeDiskFull = "NodeDiskFull"
	// ReasonMaintenance: the node is in maintenance mode and has no machine configuration.
	ReasonMaintenance = "Maintenance"
	// ReasonMaintenanceCertificateMismatch: the certificate that a machine presents in maintenance mode does not match its
	// maintenanceFingerprint; nothing was sent to it. The message names both fingerprints.
	ReasonMaintenanceCertificateMismatch = "MaintenanceCertificateMismatch"
	// ReasonForeignNode: the machine runs under the CA of another cluster; nothing was sent to it.
	ReasonForeignNode = "ForeignNode"
	// ReasonWrongMachine: the machine that responds at the address is another machine of the cluster, or an unknown one;
	// nothing was sent to it.
	ReasonWrongMachine = "WrongMachine"
	// ReasonInstallDisk: no install disk could be chosen safely; the message lists the disks that were found.
	ReasonInstallDisk = "InstallDisk"
	// ReasonConfigured: the node runs under the cluster's PKI.
	ReasonConfigured = "Configured"
	// ReasonConfigRefused: the node rejected the machine configuration.
	ReasonConfigRefused = "ConfigRefused"
	// ReasonBooting: the node is booting.
	ReasonBooting = "Booting"
	// ReasonNodeNotReady: the node runs but is not ready; the message names the conditions that are not met.
	ReasonNodeNotReady = "NodeNotReady"
)

// Reasons about etcd and the Kubernetes API.
const (
	// ReasonWaitingForMachines: some machines are not configured yet.
	ReasonWaitingForMachines = "WaitingForMachines"
	// ReasonWaitingForEvidence: a control-plane node is unreachable, and the step is not known to be safe without its
	// state.
	ReasonWaitingForEvidence = "WaitingForEvidence"
	// ReasonBootstrapping: the bootstrap of etcd is in progress.
	ReasonBootstrapping = "Bootstrapping"
	// ReasonBootstrapped: etcd responds.
	ReasonBootstrapped = "Bootstrapped"
	// ReasonEtcdHealthy: all members are voting and agree on the member list.
	ReasonEtcdHealthy = "EtcdHealthy"
	// ReasonEtcdUnhealthy: a member is missing, not voting, unreachable, or has an alarm.
	ReasonEtcdUnhealthy = "EtcdUnhealthy"
	// ReasonEtcdLost: no control-plane node of an established cluster has etcd data any more.
	ReasonEtcdLost = "EtcdLost"
	// ReasonEtcdSplit: control-plane nodes report member lists of different etcd clusters.
	ReasonEtcdSplit = "EtcdSplit"
	// ReasonQuorumLost: too many etcd members are missing for a quorum; the message names them and says how to regain the
	// quorum.
	ReasonQuorumLost = "QuorumLost"
	// ReasonEtcdImagePull: a node has been pulling the etcd image for more than five minutes; the message says since when,
	// and what to do.
	ReasonEtcdImagePull = "EtcdImagePull"
	// ReasonAvailable: the API responds and etcd has quorum.
	ReasonAvailable = "Available"
	// ReasonAPIServerUnavailable: no API server of the cluster responds.
	ReasonAPIServerUnavailable = "APIServerUnavailable"
)

// Reasons about disruptions: why one is permitted, waits, or is refused.
const (
	// ReasonSafe: every control-plane node was queried, and no evidence speaks against the step.
	ReasonSafe = "Safe"
	// ReasonDisruptionInProgress: another control-plane node is being disrupted; only one may be disrupted at a time.
	ReasonDisruptionInProgress = "DisruptionInProgress"
	// ReasonQuorumAtRisk: the step would cost etcd its quorum, or etcd has no quorum to decide with.
	ReasonQuorumAtRisk = "QuorumAtRisk"
	// ReasonLastMember: the last member of etcd is never removed.
	ReasonLastMember = "LastMember"
	// ReasonMemberAlive: the member to be removed as dead responds.
	ReasonMemberAlive = "MemberAlive"
	// ReasonMachineAlive: the machine to be replaced as dead responds, or its Node still reports to Kubernetes.
	ReasonMachineAlive = "MachineAlive"
	// ReasonWaitingForBackup: the disruption of a node is blocked until a fresh backup exists, as the spec demands; the
	// message names the node.
	ReasonWaitingForBackup = "WaitingForBackup"
)

// Reasons about configuration changes.
const (
	// ReasonUpToDate: the live configuration is the desired configuration.
	ReasonUpToDate = "UpToDate"
	// ReasonConfigDiffers: the live configuration differs from the desired one; the message names the fields.
	ReasonConfigDiffers = "ConfigDiffers"
	// ReasonAwaitingApproval: a plan waits for the approval of a user.
	ReasonAwaitingApproval = "AwaitingApproval"
	// ReasonRollingOut: a configuration change is in progress.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutWaiting: a configuration change is waiting; the message says for what.
	ReasonRolloutWaiting = "RolloutWaiting"
	// ReasonRolloutStopped: a machine did not become healthy after a configuration change, or rejected it; no further
	// machine begins its change.
	ReasonRolloutStopped = "RolloutStopped"
	// ReasonAwaitingReboot: a machine configuration is staged and takes effect at the next reboot.
	ReasonAwaitingReboot = "AwaitingReboot"
	// ReasonReverted: the machine runs the last working configuration because a user requested it.
	ReasonReverted = "Reverted"
	// ReasonChangeFailed: the node did not become healthy after a configuration change, or rejected it.
	ReasonChangeFailed = "ChangeFailed"
	// ReasonUpgradePending: the running versions differ from those in the spec; a configuration change never upgrades
	// them.
	ReasonUpgradePending = "UpgradePending"
	// ReasonDrifted: the machine configuration was changed outside of the operator.
	ReasonDrifted = "Drifted"
)

// Reasons about upgrades of Talos.
const (
	// ReasonInstalling: an installer runs on the node.
	ReasonInstalling = "Installing"
	// ReasonInstallFailed: an installer ended with an error; the node boots what it ran before.
	ReasonInstallFailed = "InstallFailed"
	// ReasonImagePull: the node cannot pull an installer image; the message names it and says why.
	ReasonImagePull = "ImagePull"
	// ReasonUpgradeUnsupported: the node runs a Talos that cannot be upgraded by the operator.
	ReasonUpgradeUnsupported = "UpgradeUnsupported"
)

// Reasons why an upgrade waits for a user.
const (
	// ReasonInsufficientDiskSpace: an upgrade does not begin, because machines have too little disk space for its images;
	// the message names them.
	ReasonInsufficientDiskSpace = "InsufficientDiskSpace"
	// ReasonManifestsRefused: an upgrade waits, because the API server refuses bootstrap manifests; the message names them.
	ReasonManifestsRefused = "ManifestsRefused"
)

// Reasons about the hooks of upgrades.
const (
	// ReasonUpgradeHookRunning: an upgrade waits for the Job of a hook.
	ReasonUpgradeHookRunning = "UpgradeHookRunning"
	// ReasonUpgradeHookSucceeded: the Job of a hook has completed.
	ReasonUpgradeHookSucceeded = "UpgradeHookSucceeded"
	// ReasonUpgradeHookFailed: the Job of a hook failed, took longer than its timeout, or could not be created; the message
	// names it and says why.
	ReasonUpgradeHookFailed = "UpgradeHookFailed"
)

// Reasons of the records of upgrades.
const (
	// ReasonUpgrading: machines are being brought to the version of the run.
	ReasonUpgrading = "Upgrading"
	// ReasonUpgradeWaiting: no machine is being upgraded; the message says what the run waits for.
	ReasonUpgradeWaiting = "UpgradeWaiting"
	// ReasonUpgradeStopped: more machines of a group failed than it tolerates; a retry of the machine continues the run.
	ReasonUpgradeStopped = "UpgradeStopped"
	// ReasonUpgraded: each machine of the cluster runs the version.
	ReasonUpgraded = "Upgraded"
	// ReasonUpgradeFailed: the spec of the cluster changed after the upgrade of a machine had failed.
	ReasonUpgradeFailed = "UpgradeFailed"
	// ReasonUpgradeCalledOff: the spec of the cluster changed before each machine had the version.
	ReasonUpgradeCalledOff = "UpgradeCalledOff"
)

// Reasons of events about notifications of upgrades.
const (
	// ReasonNotificationFailed: a notification was not delivered, and is not tried again.
	ReasonNotificationFailed = "NotificationFailed"
	// ReasonNotificationAddress: the address of a webhook cannot be used; the message says why.
	ReasonNotificationAddress = "NotificationAddressUnusable"
)

// Reasons about machines that leave a cluster, are replaced, or return.
const (
	// ReasonScalingDown: a machine that was removed from the machine list is being removed from the cluster.
	ReasonScalingDown = "ScalingDown"
	// ReasonWaitingForWorkers: the workers are removed before the control plane.
	ReasonWaitingForWorkers = "WaitingForWorkers"
	// ReasonDraining: pods are being evicted from the node.
	ReasonDraining = "Draining"
	// ReasonDrainHeld: pods were not evicted in time, and the drain is blocked; the message names them.
	ReasonDrainHeld = "DrainHeld"
	// ReasonLeavingEtcd: the node's member is leaving etcd.
	ReasonLeavingEtcd = "LeavingEtcd"
	// ReasonResetting: a node is being wiped.
	ReasonResetting = "Resetting"
	// ReasonStaleNode: an orphaned Node object of the cluster was removed; an event names it.
	ReasonStaleNode = "StaleNode"
	// ReasonReplacing: a spare machine is replacing another machine.
	ReasonReplacing = "Replacing"
	// ReasonNoSpare: a machine needs to be replaced, and no spare machine is available.
	ReasonNoSpare = "NoSpare"
	// ReasonTooManyUnhealthy: more machines are unreachable at once than maxUnhealthy allows, so none is replaced.
	ReasonTooManyUnhealthy = "TooManyUnhealthy"
	// ReasonMachinesForgotten: machines that are no longer listed were forgotten, because a user confirmed that they are
	// wiped or destroyed.
	ReasonMachinesForgotten = "MachinesForgotten"
	// ReasonMachineReturned: an abandoned machine has returned and is kept out of the cluster.
	ReasonMachineReturned = "MachineReturned"
)

// Reasons of backups.
const (
	// ReasonBackingUp: a backup is being taken.
	ReasonBackingUp = "BackingUp"
	// ReasonBackupComplete: the backup is complete.
	ReasonBackupComplete = "BackupComplete"
	// ReasonBackupInProgress: another backup of the cluster is running, or the limit of concurrent backups is reached.
	ReasonBackupInProgress = "BackupInProgress"
	// ReasonBackupTimeout: an attempt took longer than its timeout.
	ReasonBackupTimeout = "BackupTimeout"
	// ReasonNoSnapshotSource: no etcd member can provide a snapshot; the message says why.
	ReasonNoSnapshotSource = "NoSnapshotSource"
	// ReasonVerifying: the backup is being read back and verified.
	ReasonVerifying = "Verifying"
	// ReasonVerified: the backup was read back and is correct.
	ReasonVerified = "Verified"
	// ReasonNotVerified: the spec requests no verification, or none has run yet.
	ReasonNotVerified = "NotVerified"
	// ReasonBackupDamaged: verification found the newest backup in the store damaged.
	ReasonBackupDamaged = "BackupDamaged"
)

// Reasons of backup schedules.
const (
	// ReasonScheduled: the next backup starts at the time given in the status.
	ReasonScheduled = "Scheduled"
	// ReasonSuspended: the spec suspends new backups.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSchedule: the cron expression or its time zone is invalid, or the expression matches no date.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonBackupFailed: the last backup failed permanently; its object says why.
	ReasonBackupFailed = "BackupFailed"
	// ReasonBackupSkipped: a backup was due while the previous one was still running, and the schedule forbids two at
	// once.
	ReasonBackupSkipped = "BackupSkipped"
	// ReasonBackupReplaced: a backup was cancelled because the next one was due, as the schedule demands.
	ReasonBackupReplaced = "BackupReplaced"
	// ReasonBackupMissed: a backup could not be started before its deadline.
	ReasonBackupMissed = "BackupMissed"
	// ReasonNoBackupYet: no backup of the schedule has completed yet.
	ReasonNoBackupYet = "NoBackupYet"
	// ReasonRecoveryPointMet: the last good backup is recent enough.
	ReasonRecoveryPointMet = "RecoveryPointMet"
	// ReasonRecoveryPointMissed: the last good backup is older than maxAge; a disaster would lose all later data.
	ReasonRecoveryPointMissed = "RecoveryPointMissed"
	// ReasonRetentionApplied: the store holds the backups that the retention counts keep, and those that are never
	// deleted.
	ReasonRetentionApplied = "RetentionApplied"
)

// Reasons of restores.
const (
	// ReasonRestoring: a TalosEtcdRestore is working on the cluster; all other changes wait until it is complete.
	ReasonRestoring = "Restoring"
	// ReasonRestored: etcd runs from the backup, and this was verified.
	ReasonRestored = "Restored"
	// ReasonRestoreInProgress: etcd of the cluster is being restored, or a restore is using the backup.
	ReasonRestoreInProgress = "RestoreInProgress"
	// ReasonRestoreRefused: the cluster cannot be restored in its current state; nothing was changed.
	ReasonRestoreRefused = "RestoreRefused"
	// ReasonRestoreConflict: another TalosEtcdRestore is working on the cluster.
	ReasonRestoreConflict = "RestoreConflict"
	// ReasonRestoreFailed: etcd does not start from the snapshot, or not with the expected data.
	ReasonRestoreFailed = "RestoreFailed"
	// ReasonRestoreAlreadyRan: the state Secret records that a restore of this name has already run; its object was
	// recreated without a status or with an old one. It does not run again unless a user confirms it.
	ReasonRestoreAlreadyRan = "RestoreAlreadyRan"
	// ReasonEtcdRunsAgain: etcd has quorum on nodes that were about to be wiped, and it is not the etcd cluster that was
	// recorded before.
	ReasonEtcdRunsAgain = "EtcdRunsAgain"
	// ReasonDataWouldBeLost: etcd has data that is newer than the backup, and the spec does not allow it to be lost.
	ReasonDataWouldBeLost = "DataWouldBeLost"
	// ReasonBackupMismatch: the backup belongs to another cluster, or to a newer version than the nodes run.
	ReasonBackupMismatch = "BackupMismatch"
	// ReasonBackupAuthentic: the backup is signed with the key of its cluster.
	ReasonBackupAuthentic = "BackupAuthentic"
	// ReasonBackupNotFound: the store has no backup that matches the source.
	ReasonBackupNotFound = "BackupNotFound"
)
