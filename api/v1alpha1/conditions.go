package v1alpha1

// Condition types. Ready is the summary. Reconciling and Stalled are present only while they are true, as kstatus
// expects.
const (
	// ConditionReady: everything that the object describes exists and is healthy.
	//
	// On: TalosControlPlane, TalosWorker, TalosMachine, TalosEtcdBackup, TalosEtcdBackupSchedule. Expected: True.
	//
	// Next: follow its reason; the message names the object or the machine that it waits for.
	ConditionReady = "Ready"
	// ConditionComplete: a run has ended with success: the backup is stored and verified as its spec demands, etcd runs from
	// the backup, or each machine of a cluster runs the version of an upgrade. A run that has failed for good is Stalled.
	// Ready of a backup is False if it is damaged later.
	//
	// On: TalosEtcdBackup, TalosEtcdRestore, TalosUpgrade, KubernetesUpgrade. Expected: True at the end.
	//
	// Next: while Reconciling is True, wait. Where Stalled is True, follow the reason of that.
	ConditionComplete = "Complete"
	// ConditionAvailable: the Kubernetes API of the cluster responds and etcd has quorum.
	//
	// On: TalosControlPlane. Expected: True.
	//
	// Next: follow its reason. Workloads run on without an API; they cannot be changed.
	ConditionAvailable = "Available"
	// ConditionReachable: the Talos API of every node responds.
	//
	// On: TalosControlPlane, TalosWorker, TalosMachine. Expected: True.
	//
	// Next: follow its reason. Without an answer of a node nothing is known about it.
	ConditionReachable = "Reachable"
	// ConditionConfigured: the node ran under the cluster's PKI when it last responded.
	//
	// On: TalosMachine. Expected: True.
	//
	// Next: wait, or follow the reason of Ready.
	ConditionConfigured = "Configured"
	// ConditionBootstrapped: etcd was bootstrapped, or responds with a member list. The condition records history: it
	// stays True when etcd later loses its quorum.
	//
	// On: TalosControlPlane. Expected: True.
	//
	// Next: follow its reason; there is no command that forces a bootstrap.
	ConditionBootstrapped = "Bootstrapped"
	// ConditionEtcdHealthy: every control-plane node is a healthy voting member and all nodes agree on the member list.
	//
	// On: TalosControlPlane. Expected: True.
	//
	// Next: follow its reason. No machine of the control plane is disrupted meanwhile.
	ConditionEtcdHealthy = "EtcdHealthy"
	// ConditionUpToDate: the live machine configuration equals the desired one. After an edit a group is Unknown until all
	// of its machines have been compared to the new spec.
	//
	// On: TalosControlPlane, TalosWorker, TalosMachine. Expected: True.
	//
	// Next: follow its reason; `talos-operator plan CLUSTER` shows what differs, and what happens next.
	ConditionUpToDate = "UpToDate"
	// ConditionDrifted: the machine configuration was changed outside of the operator; the message names the fields.
	//
	// On: TalosMachine. Expected: absent.
	//
	// Next: see the reason of the same name.
	ConditionDrifted = "Drifted"
	// ConditionExtensionServicesFailed: services of extensions that the machine is configured for do not run; the message
	// names them. Nothing waits for them.
	//
	// On: TalosMachine. Expected: absent.
	//
	// Next: follow its reason.
	ConditionExtensionServicesFailed = "ExtensionServicesFailed"
	// ConditionStaticPodsFailed: static pods that the control-plane machine is configured for do not run; the message names
	// them and says what the kubelet says.
	//
	// On: TalosMachine. Expected: absent.
	//
	// Next: follow its reason.
	ConditionStaticPodsFailed = "StaticPodsFailed"
	// ConditionTalosVersionUnknown: the machine runs a minor version of Talos that is newer than this version of the operator
	// knows. It is observed, and Talos is neither upgraded nor downgraded.
	//
	// On: TalosMachine. Expected: absent.
	//
	// Next: see the reason TalosTooNew.
	ConditionTalosVersionUnknown = "TalosVersionUnknown"
	// ConditionFirewallShutsOut: the firewall that the machine runs closes a port to machines of its cluster that need it.
	// A change that would close more is refused.
	//
	// On: TalosMachine. Expected: absent.
	//
	// Next: follow its reason.
	ConditionFirewallShutsOut = "FirewallShutsOut"
	// ConditionNetworkDegraded: the node reports that a part of its network does not work: a link, its DNS servers,
	// tunnels of KubeSpan, or discovery. Nothing waits for it. It is observed about every ten minutes, after a change of
	// the configuration, and every two minutes while it is True. Each fault is reported once it has lasted a minute. Of
	// several faults, the reason is the first of LinkMissing, LinkDown, NetworkNotReady, ResolversMissing,
	// ResolversFailing, KubeSpanPeersDown and DiscoveryIncomplete.
	//
	// On: TalosMachine. Expected: absent.
	//
	// Next: follow its reason; `talos-operator network MACHINE` shows the whole network.
	ConditionNetworkDegraded = "NetworkDegraded"
	// ConditionVolumesFailed: volumes of the machine could not be opened, or their keys not be written; the message names
	// them and says what Talos says. It is observed once in a boot, after a change of the configuration, and as long as it
	// is True.
	//
	// On: TalosMachine. Expected: absent.
	//
	// Next: follow its reason.
	ConditionVolumesFailed = "VolumesFailed"
	// ConditionCertificatesValid: neither the issued client certificates nor the CAs of the cluster expire soon.
	//
	// On: TalosControlPlane. Expected: True.
	//
	// Next: follow its reason before the date in the message.
	ConditionCertificatesValid = "CertificatesValid"
	// ConditionRemediating: a machine needs to be replaced; the message names it and says what the replacement waits for.
	//
	// On: TalosControlPlane, TalosWorker. Expected: absent.
	//
	// Next: follow its reason; `talos-operator replace MACHINE` begins the replacement of another machine.
	ConditionRemediating = "Remediating"
	// ConditionFencing: an abandoned machine has returned with its old data; the message says what happens to it.
	//
	// On: TalosControlPlane. Expected: absent.
	//
	// Next: follow its reason.
	ConditionFencing = "Fencing"
	// ConditionStateAtRisk: the state Secret is being deleted and only its finalizer keeps it; the message says what to
	// do.
	//
	// On: TalosControlPlane. Expected: absent.
	//
	// Next: see docs/state-secret.md#protection before anything else.
	ConditionStateAtRisk = "StateAtRisk"
	// ConditionHookFailed: hooks of the current or the last upgrade have failed; the message names them and their Jobs.
	//
	// On: TalosControlPlane. Expected: absent.
	//
	// Next: see the reason UpgradeHookFailed.
	ConditionHookFailed = "HookFailed"
	// ConditionWouldChange: in a dry run, the message names the changes that the operator would write.
	//
	// On: KubernetesCluster, TalosControlPlane, TalosWorker. Expected: absent, or True in a dry run.
	//
	// Next: read the message; without the annotation `talos-operator.io/reconcile-mode` the changes are made.
	ConditionWouldChange = "WouldChange"
	// ConditionPaused: the object is paused by the paused annotation or by the reconcile mode.
	//
	// On: KubernetesCluster, TalosControlPlane, TalosWorker, TalosMachine, TalosEtcdBackup, TalosEtcdBackupSchedule,
	// TalosEtcdRestore. Expected: absent.
	//
	// Next: remove the annotation that its reason names, here or on the object above it.
	ConditionPaused = "Paused"
	// ConditionVerified: the backup was read back from the store and verified at the level that its spec demands.
	//
	// On: TalosEtcdBackup, TalosEtcdBackupSchedule. Expected: True.
	//
	// Next: follow its reason. Do not rely on the backup before it is True.
	ConditionVerified = "Verified"
	// ConditionRecoveryPointMet: the last good backup is not older than the schedule allows.
	//
	// On: TalosEtcdBackupSchedule. Expected: True.
	//
	// Next: follow its reason.
	ConditionRecoveryPointMet = "RecoveryPointMet"
	// ConditionBackupAuthenticated: the backup that is restored is signed with the key of its cluster.
	//
	// On: TalosEtcdRestore. Expected: True.
	//
	// Next: a backup that is not known to be authentic was accepted explicitly. See
	// docs/restore.md#backups-without-a-signature.
	ConditionBackupAuthenticated = "BackupAuthenticated"
	// ConditionRetentionApplied: the last retention run deleted the backups that the store need not keep.
	//
	// On: TalosEtcdBackupSchedule. Expected: True.
	//
	// Next: nothing is lost, the store only grows. Follow its reason: credentials that may not delete, for example.
	ConditionRetentionApplied = "RetentionApplied"
	// ConditionDeleting: the object is being deleted; the message says what the deletion waits for.
	//
	// On: KubernetesCluster, TalosControlPlane, TalosWorker, TalosMachine, TalosEtcdBackup, TalosEtcdRestore. Expected:
	// absent.
	//
	// Next: follow its reason if the deletion does not end.
	ConditionDeleting = "Deleting"
	// ConditionReconciling: work is in progress.
	//
	// On: TalosControlPlane, TalosWorker, TalosMachine, TalosEtcdBackup, TalosEtcdBackupSchedule, TalosEtcdRestore,
	// TalosUpgrade, KubernetesUpgrade, KubernetesCluster. Expected: absent when idle.
	//
	// Next: wait. If it stays, follow its reason.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: the object needs user action. The operator writes nothing until the spec or the named object
	// changes, but keeps observing the nodes. A stalled child object is reported here too, with its name, and puts a
	// KubernetesCluster into the phase Failed.
	//
	// On: KubernetesCluster, TalosControlPlane, TalosWorker, TalosMachine, TalosEtcdBackup, TalosEtcdBackupSchedule,
	// TalosEtcdRestore, TalosUpgrade, KubernetesUpgrade. Expected: absent.
	//
	// Next: follow its reason, and correct what the message names.
	ConditionStalled = "Stalled"
)
