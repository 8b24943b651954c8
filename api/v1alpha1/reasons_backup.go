package v1alpha1

// Reasons of backups.
const (
	// ReasonBackingUp: a backup is being taken.
	//
	// Next: wait; the message reports the progress.
	ReasonBackingUp = "BackingUp"
	// ReasonBackupComplete: the backup is complete.
	//
	// Next: nothing to do.
	ReasonBackupComplete = "BackupComplete"
	// ReasonBackupInProgress: another backup of the cluster is running, or the limit of concurrent backups is reached.
	//
	// Next: wait: this one is next.
	ReasonBackupInProgress = "BackupInProgress"
	// ReasonBackupTimeout: an attempt took longer than its timeout.
	//
	// Next: the next attempt starts from the beginning. Raise `timeout`, or check the speed of the store and of the
	// node.
	ReasonBackupTimeout = "BackupTimeout"
	// ReasonNoSnapshotSource: no etcd member can provide a snapshot; the message says why.
	//
	// Next: the message gives the reason for each member: make one of them healthy.
	ReasonNoSnapshotSource = "NoSnapshotSource"
	// ReasonVerifying: the backup is being read back and verified.
	//
	// Next: wait.
	ReasonVerifying = "Verifying"
	// ReasonVerified: the backup was read back and is correct.
	//
	// Next: nothing to do.
	ReasonVerified = "Verified"
	// ReasonNotVerified: the spec requests no verification, or none has run yet.
	//
	// Next: set `verification`, or wait for the first one (docs/backup.md#verification).
	ReasonNotVerified = "NotVerified"
	// ReasonBackupDamaged: verification found the newest backup in the store damaged.
	//
	// Next: take a backup now, and check the store. The newest TalosEtcdBackup of the schedule says what is damaged:
	// `kubectl get teb -l talos-operator.io/backup-schedule=NAME`.
	ReasonBackupDamaged = "BackupDamaged"
)

// Reasons of backup schedules.
const (
	// ReasonScheduled: the next backup starts at the time given in the status.
	//
	// Next: nothing to do.
	ReasonScheduled = "Scheduled"
	// ReasonSuspended: the spec suspends new backups.
	//
	// Next: set `suspend` to false to continue.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSchedule: the cron expression or its time zone is invalid, or the expression matches no date.
	//
	// Next: correct the expression or the time zone; the message says what is wrong. It takes effect at once.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonBackupFailed: the last backup failed permanently; its object says why.
	//
	// Next: fix the cause that the TalosEtcdBackup reports; the schedule continues with the next one. Of a
	// TalosControlPlane: a node is blocked because of it. Delete that TalosEtcdBackup, edit the schedule, or remove
	// `backupBeforeDisruption` to continue without one.
	ReasonBackupFailed = "BackupFailed"
	// ReasonBackupSkipped: a backup was due while the previous one was still running, and the schedule forbids two at
	// once.
	//
	// Next: give backups more time between each other, or see why the previous one is slow.
	ReasonBackupSkipped = "BackupSkipped"
	// ReasonBackupReplaced: a backup was cancelled because the next one was due, as the schedule demands.
	//
	// Next: the same as BackupSkipped.
	ReasonBackupReplaced = "BackupReplaced"
	// ReasonBackupMissed: a backup could not be started before its deadline.
	//
	// Next: check whether the operator was down, or raise `startingDeadline`. The next one is taken as scheduled.
	ReasonBackupMissed = "BackupMissed"
	// ReasonNoBackupYet: no backup of the schedule has completed yet.
	//
	// Next: wait for the first one; `status.nextScheduleTime` has its time.
	ReasonNoBackupYet = "NoBackupYet"
	// ReasonRecoveryPointMet: the last good backup is recent enough.
	//
	// Next: nothing to do.
	ReasonRecoveryPointMet = "RecoveryPointMet"
	// ReasonRecoveryPointMissed: the last good backup is older than maxAge; a disaster would lose all later data.
	//
	// Next: see why the newest TalosEtcdBackup of the schedule failed: `kubectl get teb -l
	// talos-operator.io/backup-schedule=NAME`, its Stalled or Complete. Take one manually until the cause is fixed.
	ReasonRecoveryPointMissed = "RecoveryPointMissed"
	// ReasonRetentionApplied: the store holds the backups that the retention counts keep, and those that are never
	// deleted.
	//
	// Next: nothing to do. "without a signature" in the message: an older version created these backups, or their
	// signature was removed; newer backups replace them over time. "not authentic": see BackupNotAuthentic.
	ReasonRetentionApplied = "RetentionApplied"
)

// Reasons of restores.
const (
	// ReasonRestoring: a TalosEtcdRestore is working on the cluster; all other changes wait until it is complete.
	//
	// Next: wait for the TalosEtcdRestore; check it if it does not continue. Deleting it releases the cluster.
	ReasonRestoring = "Restoring"
	// ReasonRestored: etcd runs from the backup, and this was verified.
	//
	// Next: nothing to do.
	ReasonRestored = "Restored"
	// ReasonRestoreInProgress: etcd of the cluster is being restored, or a restore is using the backup.
	//
	// Next: wait for the restore.
	ReasonRestoreInProgress = "RestoreInProgress"
	// ReasonRestoreRefused: the cluster cannot be restored in its current state; nothing was changed.
	//
	// Next: the message gives the cause: a node of the old type init has to become `controlplane` first, for example.
	ReasonRestoreRefused = "RestoreRefused"
	// ReasonRestoreConflict: another TalosEtcdRestore is working on the cluster.
	//
	// Next: wait for the other restore, or delete it.
	ReasonRestoreConflict = "RestoreConflict"
	// ReasonRestoreFailed: etcd does not start from the snapshot, or not with the expected data.
	//
	// Next: the message has the error of etcd. Check the node, then create another restore.
	ReasonRestoreFailed = "RestoreFailed"
	// ReasonRestoreAlreadyRan: the state Secret records that a restore of this name has already run; its object was
	// recreated without a status or with an old one. It does not run again unless a user confirms it.
	//
	// Next: give it another name, or annotate it with `talos-operator.io/run-again=UID`, the UID of this object.
	ReasonRestoreAlreadyRan = "RestoreAlreadyRan"
	// ReasonEtcdRunsAgain: etcd has quorum on nodes that were about to be wiped, and it is not the etcd cluster that was
	// recorded before.
	//
	// Next: delete the restore to keep the data, or create another one. The record may also be older than an hour.
	ReasonEtcdRunsAgain = "EtcdRunsAgain"
	// ReasonDataWouldBeLost: etcd has data that is newer than the backup, and the spec does not allow it to be lost.
	//
	// Next: set `discardNewerData` in another restore, if the loss is intended.
	ReasonDataWouldBeLost = "DataWouldBeLost"
	// ReasonBackupMismatch: the backup belongs to another cluster, or to a newer version than the nodes run.
	//
	// Next: correct `controlPlaneRef`, raise `talosVersion`, or set `isolate`.
	ReasonBackupMismatch = "BackupMismatch"
	// ReasonBackupAuthentic: the backup is signed with the key of its cluster.
	//
	// Next: nothing to do.
	ReasonBackupAuthentic = "BackupAuthentic"
	// ReasonBackupNotFound: the store has no backup that matches the source.
	//
	// Next: check the store, `cluster`, `before` and `key`; a backup without its manifest or state is not offered.
	ReasonBackupNotFound = "BackupNotFound"
)
