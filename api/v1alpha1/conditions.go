package v1alpha1

// Condition types. Ready is the summary; Reconciling and Stalled exist only while they are true, as kstatus expects.
const (
	// ConditionReady: everything the object describes is there and works.
	ConditionReady = "Ready"
	// ConditionAvailable: the Kubernetes API of the cluster answers and etcd has quorum.
	ConditionAvailable = "Available"
	// ConditionReachable: every node answers.
	ConditionReachable = "Reachable"
	// ConditionConfigured: the node ran under the cluster's PKI when it last answered.
	ConditionConfigured = "Configured"
	// ConditionBootstrapped: etcd was bootstrapped, or answers with a member list. It says what happened: an etcd that has
	// lost its quorum was bootstrapped all the same.
	ConditionBootstrapped = "Bootstrapped"
	// ConditionEtcdHealthy: every control-plane node is a voting, healthy member and all agree on the member list.
	ConditionEtcdHealthy = "EtcdHealthy"
	// ConditionUpToDate: the live machine config equals the one that the spec asks for.
	ConditionUpToDate = "UpToDate"
	// ConditionDrifted: somebody else changed the machine config; the message names the fields.
	ConditionDrifted = "Drifted"
	// ConditionCertificatesValid: the client certificates that were handed out and the CAs of the cluster do not end soon.
	ConditionCertificatesValid = "CertificatesValid"
	// ConditionRemediating: a machine is to be replaced; the message says which, and what that waits for.
	ConditionRemediating = "Remediating"
	// ConditionFencing: a machine that was given up is back with its old data; the message says what becomes of it.
	ConditionFencing = "Fencing"
	// ConditionStateAtRisk: the state Secret is being deleted, and only its finalizer keeps it; the message says what to do.
	ConditionStateAtRisk = "StateAtRisk"
	// ConditionWouldChange: in a dry run, what the operator would write; the message names it.
	ConditionWouldChange = "WouldChange"
	// ConditionPaused: the paused annotation or the reconcile mode holds the object.
	ConditionPaused = "Paused"
	// ConditionVerified: the backup was read back from the store, as thoroughly as its spec says.
	ConditionVerified = "Verified"
	// ConditionRecoveryPointMet: the last good backup is not older than the schedule allows.
	ConditionRecoveryPointMet = "RecoveryPointMet"
	// ConditionBackupAuthenticated: the backup that is restored is signed with the key of its cluster.
	ConditionBackupAuthenticated = "BackupAuthenticated"
	// ConditionRetentionApplied: what the store need not keep was deleted when it was last looked at.
	ConditionRetentionApplied = "RetentionApplied"
	// ConditionDeleting: the object is being deleted; the message says what it waits for.
	ConditionDeleting = "Deleting"
	// ConditionReconciling: work is under way.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: a person has to act; nothing is written until the spec or the named object changes. What the nodes
	// say is observed all the same. What an object below is stalled for shows here too, with its name, and a
	// KubernetesCluster is in the phase Failed.
	ConditionStalled = "Stalled"
)

// Reasons of conditions. The same word is the reason of the event on a transition.
const (
	// ReasonReady: as wanted.
	ReasonReady = "Ready"
	// ReasonReconciling: work is under way.
	ReasonReconciling = "Reconciling"
	// ReasonPaused: the paused annotation is set.
	ReasonPaused = "Paused"
	// ReasonDryRun: the reconcile mode is DryRun; only status is written.
	ReasonDryRun = "DryRun"
	// ReasonDisabled: the reconcile mode is Disabled; nothing is done, and the status is not kept.
	ReasonDisabled = "Disabled"
	// ReasonInvalidReconcileMode: the reconcile mode is none that exists; it counts as DryRun.
	ReasonInvalidReconcileMode = "InvalidReconcileMode"
	// ReasonUnknown: not yet observed.
	ReasonUnknown = "Unknown"
	// ReasonNotObserved: what the condition is decided from could not be observed for a while; the message says since
	// when.
	ReasonNotObserved = "NotObserved"
	// ReasonInvalidSpec: the spec breaks a rule; the message names field and remedy.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonUnsupportedVersion: this pair of Talos and Kubernetes versions is unknown or unsupported.
	ReasonUnsupportedVersion = "UnsupportedVersion"
	// ReasonDowngradeRefused: the spec asks for an older version than the one that runs.
	ReasonDowngradeRefused = "DowngradeRefused"
	// ReasonImmutableField: a field changed that cannot change once the cluster exists.
	ReasonImmutableField = "ImmutableField"
	// ReasonInvalidPatch: a config patch does not parse or makes an invalid config.
	ReasonInvalidPatch = "InvalidPatch"
	// ReasonAddressConflict: another machine has the same address.
	ReasonAddressConflict = "AddressConflict"
	// ReasonNameConflict: an object of the name that is needed belongs to somebody else.
	ReasonNameConflict = "NameConflict"
	// ReasonStateSecretInvalid: the state Secret cannot be read, is incomplete, or is of another cluster.
	ReasonStateSecretInvalid = "StateSecretInvalid"
	// ReasonStateSecretDeleting: the state Secret is being deleted while it is needed.
	ReasonStateSecretDeleting = "StateSecretDeleting"
	// ReasonOwnedElsewhere: another TalosControlPlane, of another management plane or an earlier one of the name, managed
	// the cluster last, and nothing is sent to its nodes until a person confirms the change.
	ReasonOwnedElsewhere = "OwnedElsewhere"
	// ReasonTakenOver: the cluster was taken over from another TalosControlPlane, as the annotation said.
	ReasonTakenOver = "TakenOver"
	// ReasonBootstrapSecretsInvalid: the Secret named by bootstrapSecretsRef is missing or incomplete.
	ReasonBootstrapSecretsInvalid = "BootstrapSecretsInvalid"
	// ReasonImportSecretInvalid: the Secret named by import is missing, incomplete, or of another cluster than the nodes.
	ReasonImportSecretInvalid = "ImportSecretInvalid"
	// ReasonImportRefused: a cluster that runs already cannot be taken over as it is; the message says why.
	ReasonImportRefused = "ImportRefused"
	// ReasonImported: a cluster or a machine that was made elsewhere was taken over with what it runs.
	ReasonImported = "Imported"
	// ReasonForeignNode: the machine runs under the CA of another cluster; nothing was sent to it.
	ReasonForeignNode = "ForeignNode"
	// ReasonWrongMachine: another machine of the cluster, or one that nobody knows, answers at the address; nothing was
	// sent to it.
	ReasonWrongMachine = "WrongMachine"
	// ReasonMaintenanceCertificateMismatch: a machine in maintenance mode shows another certificate than the one whose
	// fingerprint its maintenanceFingerprint names; nothing was sent to it. The message names both fingerprints.
	ReasonMaintenanceCertificateMismatch = "MaintenanceCertificateMismatch"
	// ReasonWaitingForControlPlane: the TalosControlPlane is not there yet or has no PKI yet.
	ReasonWaitingForControlPlane = "WaitingForControlPlane"
	// ReasonWaitingForAddress: no provider has given the machine an address yet.
	ReasonWaitingForAddress = "WaitingForAddress"
	// ReasonWaitingForMachines: machines are not configured yet.
	ReasonWaitingForMachines = "WaitingForMachines"
	// ReasonWaitingForEvidence: a control-plane node does not answer, and without its answer the step is not safe.
	ReasonWaitingForEvidence = "WaitingForEvidence"
	// ReasonBootstrapping: the bootstrap of etcd is under way.
	ReasonBootstrapping = "Bootstrapping"
	// ReasonBootstrapped: etcd answers.
	ReasonBootstrapped = "Bootstrapped"
	// ReasonEtcdLost: no control-plane node of an established cluster has etcd data any more.
	ReasonEtcdLost = "EtcdLost"
	// ReasonEtcdSplit: control-plane nodes answer with member lists of different etcd clusters.
	ReasonEtcdSplit = "EtcdSplit"
	// ReasonEtcdUnhealthy: a member is missing, not voting, alarmed or silent.
	ReasonEtcdUnhealthy = "EtcdUnhealthy"
	// ReasonQuorumLost: more members of etcd are missing than it can do without; the message names them, and says what
	// brings the quorum back.
	ReasonQuorumLost = "QuorumLost"
	// ReasonEtcdImagePull: a node has been pulling the image of etcd for longer than five minutes; the message says since
	// when, and what to do.
	ReasonEtcdImagePull = "EtcdImagePull"
	// ReasonEtcdHealthy: all members vote and agree.
	ReasonEtcdHealthy = "EtcdHealthy"
	// ReasonAPIServerUnavailable: no API server of the cluster answers.
	ReasonAPIServerUnavailable = "APIServerUnavailable"
	// ReasonAvailable: the API answers and etcd has quorum.
	ReasonAvailable = "Available"
	// ReasonNodeUnreachable: the node does not answer.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonNodeDiskFull: the node answers that nothing more fits on its disk.
	ReasonNodeDiskFull = "NodeDiskFull"
	// ReasonAnswerTooLarge: the node answers with more than any Talos node has to say; its answer was not read to the end.
	ReasonAnswerTooLarge = "AnswerTooLarge"
	// ReasonReachable: answers.
	ReasonReachable = "Reachable"
	// ReasonAuthFailed: the node refuses our credentials.
	ReasonAuthFailed = "AuthFailed"
	// ReasonMaintenance: the node is in maintenance mode, without a config.
	ReasonMaintenance = "Maintenance"
	// ReasonConfigured: the node runs under the cluster's PKI.
	ReasonConfigured = "Configured"
	// ReasonConfigRefused: the node refused the config.
	ReasonConfigRefused = "ConfigRefused"
	// ReasonInstallDisk: no install disk could be chosen safely; the message says what was found.
	ReasonInstallDisk = "InstallDisk"
	// ReasonBooting: the node is on its way.
	ReasonBooting = "Booting"
	// ReasonNodeNotReady: the node runs but is not ready; the message names what it waits for.
	ReasonNodeNotReady = "NodeNotReady"
	// ReasonUpToDate: the live config is the wanted one.
	ReasonUpToDate = "UpToDate"
	// ReasonConfigDiffers: the live config differs from the wanted one; the message names the fields.
	ReasonConfigDiffers = "ConfigDiffers"
	// ReasonAwaitingApproval: a plan waits for a person.
	ReasonAwaitingApproval = "AwaitingApproval"
	// ReasonRollingOut: a config change is under way.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutWaiting: a config change waits; the message says for what.
	ReasonRolloutWaiting = "RolloutWaiting"
	// ReasonRolloutStopped: a machine did not get well after a config change, or did not take it; no other one begins.
	ReasonRolloutStopped = "RolloutStopped"
	// ReasonAwaitingReboot: a config is staged and takes effect at the next reboot.
	ReasonAwaitingReboot = "AwaitingReboot"
	// ReasonReverted: the machine runs the last config that worked, because a person asked for it.
	ReasonReverted = "Reverted"
	// ReasonUpgradePending: the versions that run are not those of the spec; a config change never moves them.
	ReasonUpgradePending = "UpgradePending"
	// ReasonDrifted: somebody else changed the machine config.
	ReasonDrifted = "Drifted"
	// ReasonChangeFailed: the node did not get well after a config change, or did not take it.
	ReasonChangeFailed = "ChangeFailed"
	// ReasonReplacing: a spare machine takes the place of another one.
	ReasonReplacing = "Replacing"
	// ReasonNoSpare: a machine is to be replaced, and no spare machine is free.
	ReasonNoSpare = "NoSpare"
	// ReasonTooManyUnhealthy: more machines are silent at once than maxUnhealthy allows, so none is replaced.
	ReasonTooManyUnhealthy = "TooManyUnhealthy"
	// ReasonMachinesForgotten: machines that are not listed any more were forgotten, because a person said that they are
	// wiped or destroyed.
	ReasonMachinesForgotten = "MachinesForgotten"
	// ReasonMachineReturned: a machine that was given up has come back to life, and is kept out of the cluster.
	ReasonMachineReturned = "MachineReturned"
	// ReasonScalingDown: a machine that left the list is being taken out of the cluster.
	ReasonScalingDown = "ScalingDown"
	// ReasonStaleNode: a Node object of the cluster belonged to no machine and was removed; an event names it.
	ReasonStaleNode = "StaleNode"
	// ReasonDraining: pods are leaving the node.
	ReasonDraining = "Draining"
	// ReasonDrainHeld: pods do not leave the node in time; the message names them.
	ReasonDrainHeld = "DrainHeld"
	// ReasonLeavingEtcd: the node's member is leaving etcd.
	ReasonLeavingEtcd = "LeavingEtcd"
	// ReasonResetting: a node is being wiped.
	ReasonResetting = "Resetting"
	// ReasonWaitingForWorkers: workers go before the control plane.
	ReasonWaitingForWorkers = "WaitingForWorkers"
	// ReasonDisruptionInProgress: another node of the control plane is being disrupted; one at a time.
	ReasonDisruptionInProgress = "DisruptionInProgress"
	// ReasonQuorumAtRisk: the step would cost etcd its quorum, or it has none to decide with.
	ReasonQuorumAtRisk = "QuorumAtRisk"
	// ReasonLastMember: the last member of etcd is never removed.
	ReasonLastMember = "LastMember"
	// ReasonMemberAlive: the member that was to be removed as dead answers.
	ReasonMemberAlive = "MemberAlive"
	// ReasonMachineAlive: the machine that was to be replaced as dead answers, or Kubernetes hears of its node.
	ReasonMachineAlive = "MachineAlive"
	// ReasonSafe: every control-plane node was asked, and nothing speaks against the step.
	ReasonSafe = "Safe"
	// ReasonCertificatesValid: client certificates renew by themselves, and no CA ends within half a year.
	ReasonCertificatesValid = "CertificatesValid"
	// ReasonCertificateDue: a client certificate is due and was not renewed; the message says which and when it ends.
	ReasonCertificateDue = "CertificateDue"
	// ReasonAuthorityEnding: a CA of the cluster ends within half a year; it has to be replaced before.
	ReasonAuthorityEnding = "AuthorityEnding"
	// ReasonCertificateExpired: a certificate has ended.
	ReasonCertificateExpired = "CertificateExpired"
	// ReasonBackingUp: a backup is being taken.
	ReasonBackingUp = "BackingUp"
	// ReasonBackupComplete: the backup is complete.
	ReasonBackupComplete = "BackupComplete"
	// ReasonBackupInProgress: another backup of the cluster is being taken, or as many as may be at once.
	ReasonBackupInProgress = "BackupInProgress"
	// ReasonBackupTimeout: a try took longer than its timeout.
	ReasonBackupTimeout = "BackupTimeout"
	// ReasonRestoreInProgress: etcd of the cluster is being restored, or a restore works from the backup.
	ReasonRestoreInProgress = "RestoreInProgress"
	// ReasonNoSnapshotSource: no etcd member is fit to give a snapshot; the message says why.
	ReasonNoSnapshotSource = "NoSnapshotSource"
	// ReasonVerifying: the backup is being read back.
	ReasonVerifying = "Verifying"
	// ReasonVerified: the backup was read back and is what it should be.
	ReasonVerified = "Verified"
	// ReasonNotVerified: the spec asks for no verification, or there was none yet.
	ReasonNotVerified = "NotVerified"
	// ReasonScheduled: the next backup begins at the time that the status names.
	ReasonScheduled = "Scheduled"
	// ReasonSuspended: the spec says that no new backups are made.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSchedule: the cron expression or its time zone cannot be used, or no date ever fits it.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonBackupFailed: the last backup failed for good; its object says why.
	ReasonBackupFailed = "BackupFailed"
	// ReasonWaitingForBackup: a node is held until there is a fresh backup, as the spec demands; the message names it.
	ReasonWaitingForBackup = "WaitingForBackup"
	// ReasonBackupSkipped: a backup was due while the one before still ran, and the schedule forbids two.
	ReasonBackupSkipped = "BackupSkipped"
	// ReasonBackupReplaced: a backup was ended because the next one was due, as the schedule says.
	ReasonBackupReplaced = "BackupReplaced"
	// ReasonBackupMissed: a backup could not be started before its deadline.
	ReasonBackupMissed = "BackupMissed"
	// ReasonNoBackupYet: no backup of the schedule has been complete yet.
	ReasonNoBackupYet = "NoBackupYet"
	// ReasonRecoveryPointMet: the last good backup is young enough.
	ReasonRecoveryPointMet = "RecoveryPointMet"
	// ReasonRecoveryPointMissed: the last good backup is older than maxAge; what is newer would be lost in a disaster.
	ReasonRecoveryPointMissed = "RecoveryPointMissed"
	// ReasonBackupDamaged: the newest backup in the store was found damaged when it was verified.
	ReasonBackupDamaged = "BackupDamaged"
	// ReasonRetentionApplied: the store keeps what the counts say, and what is never deleted.
	ReasonRetentionApplied = "RetentionApplied"
	// ReasonDeleting: the deletion is under way.
	ReasonDeleting = "Deleting"
	// ReasonRestoring: a TalosEtcdRestore works on the cluster; nothing else does until it is complete.
	ReasonRestoring = "Restoring"
	// ReasonRestored: etcd runs from the backup, and that was proven.
	ReasonRestored = "Restored"
	// ReasonRestoreRefused: the cluster cannot be restored as it is; nothing was touched.
	ReasonRestoreRefused = "RestoreRefused"
	// ReasonRestoreConflict: another TalosEtcdRestore works on the cluster.
	ReasonRestoreConflict = "RestoreConflict"
	// ReasonRestoreFailed: etcd does not start from the snapshot, or not as it should.
	ReasonRestoreFailed = "RestoreFailed"
	// ReasonRestoreAlreadyRan: the state Secret records that a restore of this name has run; its object came back without a
	// status, or with an old one. It does not run again without a person's word.
	ReasonRestoreAlreadyRan = "RestoreAlreadyRan"
	// ReasonEtcdRunsAgain: etcd serves with quorum where it was to be wiped, and it is not the one that was recorded before.
	ReasonEtcdRunsAgain = "EtcdRunsAgain"
	// ReasonDataWouldBeLost: etcd has data that is newer than the backup, and nobody said that it may be lost.
	ReasonDataWouldBeLost = "DataWouldBeLost"
	// ReasonBackupMismatch: the backup is of another cluster, or of a newer version than the nodes run.
	ReasonBackupMismatch = "BackupMismatch"
	// ReasonBackupAuthentic: the backup is signed with the key of its cluster.
	ReasonBackupAuthentic = "BackupAuthentic"
	// ReasonBackupNotFound: the store has no backup as the source asks for.
	ReasonBackupNotFound = "BackupNotFound"
)
