package v1alpha1

// Condition types. Ready is the summary. Reconciling and Stalled are present only while they are true, as kstatus
// expects.
const (
	// ConditionReady: everything that the object describes exists and is healthy.
	ConditionReady = "Ready"
	// ConditionComplete: a run has ended with success: the backup is stored and verified as its spec demands, etcd runs from
	// the backup, or each machine of a cluster runs the version of an upgrade. A run that has failed for good is Stalled.
	// Ready of a backup is False if it is damaged later.
	ConditionComplete = "Complete"
	// ConditionAvailable: the Kubernetes API of the cluster responds and etcd has quorum.
	ConditionAvailable = "Available"
	// ConditionReachable: the Talos API of every node responds.
	ConditionReachable = "Reachable"
	// ConditionConfigured: the node ran under the cluster's PKI when it last responded.
	ConditionConfigured = "Configured"
	// ConditionBootstrapped: etcd was bootstrapped, or responds with a member list. The condition records history: it
	// stays True when etcd later loses its quorum.
	ConditionBootstrapped = "Bootstrapped"
	// ConditionEtcdHealthy: every control-plane node is a healthy voting member and all nodes agree on the member list.
	ConditionEtcdHealthy = "EtcdHealthy"
	// ConditionUpToDate: the live machine configuration equals the desired one.
	ConditionUpToDate = "UpToDate"
	// ConditionDrifted: the machine configuration was changed outside of the operator; the message names the fields.
	ConditionDrifted = "Drifted"
	// ConditionCertificatesValid: neither the issued client certificates nor the CAs of the cluster expire soon.
	ConditionCertificatesValid = "CertificatesValid"
	// ConditionRemediating: a machine needs to be replaced; the message names it and says what the replacement waits for.
	ConditionRemediating = "Remediating"
	// ConditionFencing: an abandoned machine has returned with its old data; the message says what happens to it.
	ConditionFencing = "Fencing"
	// ConditionStateAtRisk: the state Secret is being deleted and only its finalizer keeps it; the message says what to
	// do.
	ConditionStateAtRisk = "StateAtRisk"
	// ConditionHookFailed: hooks of the current or the last upgrade have failed; the message names them and their Jobs.
	ConditionHookFailed = "HookFailed"
	// ConditionWouldChange: in a dry run, the message names the changes that the operator would write.
	ConditionWouldChange = "WouldChange"
	// ConditionPaused: the object is paused by the paused annotation or by the reconcile mode.
	ConditionPaused = "Paused"
	// ConditionVerified: the backup was read back from the store and verified at the level that its spec demands.
	ConditionVerified = "Verified"
	// ConditionRecoveryPointMet: the last good backup is not older than the schedule allows.
	ConditionRecoveryPointMet = "RecoveryPointMet"
	// ConditionBackupAuthenticated: the backup that is restored is signed with the key of its cluster.
	ConditionBackupAuthenticated = "BackupAuthenticated"
	// ConditionRetentionApplied: the last retention run deleted the backups that the store need not keep.
	ConditionRetentionApplied = "RetentionApplied"
	// ConditionDeleting: the object is being deleted; the message says what the deletion waits for.
	ConditionDeleting = "Deleting"
	// ConditionReconciling: work is in progress.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: the object needs user action. The operator writes nothing until the spec or the named object
	// changes, but keeps observing the nodes. A stalled child object is reported here too, with its name, and puts a
	// KubernetesCluster into the phase Failed.
	ConditionStalled = "Stalled"
)
