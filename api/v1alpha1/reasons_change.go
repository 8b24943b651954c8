package v1alpha1

// Reasons about configuration changes.
const (
	// ReasonUpToDate: the live configuration is the desired configuration.
	//
	// Next: nothing to do.
	ReasonUpToDate = "UpToDate"
	// ReasonConfigDiffers: the live configuration differs from the desired one; the message names the fields.
	//
	// Next: `talos-operator plan CLUSTER` shows when it is applied, or why it is not.
	ReasonConfigDiffers = "ConfigDiffers"
	// ReasonAwaitingApproval: a plan waits for the approval of a user.
	//
	// Next: review `talos-operator plan CLUSTER`, then `talos-operator approve CLUSTER --plan ID`. With approval
	// Automatic it occurs because the change would undo a manual one; the message names the machines.
	ReasonAwaitingApproval = "AwaitingApproval"
	// ReasonRollingOut: a configuration change is in progress.
	//
	// Next: wait.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutWaiting: a configuration change is waiting; the message says for what.
	//
	// Next: resolve what the message names: a maintenance window, a machine that was not compared to the spec yet (its
	// Ready says why), a machine that is not ready, unhealthy etcd, the budget, a machine that soaks
	// (docs/upgrade-options.md#soak-time), or a check that is not satisfied (docs/upgrade-options.md#health-checks):
	// correct one that cannot be in `spec.upgrade.checks`.
	ReasonRolloutWaiting = "RolloutWaiting"
	// ReasonRolloutStopped: a machine did not become healthy after a configuration change, or rejected it; no further
	// machine begins its change.
	//
	// Next: correct the spec, or `talos-operator revert MACHINE`, or repair the node and `talos-operator retry MACHINE`.
	ReasonRolloutStopped = "RolloutStopped"
	// ReasonAwaitingReboot: a machine configuration is staged and takes effect at the next reboot.
	//
	// Next: reboot the node when convenient, or set `rollout.rebootPolicy` to Automatic or Window.
	ReasonAwaitingReboot = "AwaitingReboot"
	// ReasonReverted: the machine runs the last working configuration because a user requested it.
	//
	// Next: the rollout of the group stays stopped. Correct the spec, or remove the annotation
	// `talos-operator.io/revert` to try the rejected configuration or Talos again.
	ReasonReverted = "Reverted"
	// ReasonChangeFailed: the node did not become healthy after a configuration change, or rejected it.
	//
	// Next: correct the spec, or `talos-operator revert MACHINE`, or repair the node and `talos-operator retry MACHINE`.
	// "rolled the change of … back": the node was unreachable during the trial; check addresses, routes, firewall rules
	// and certificates in the plan. "has not been healthy … since it booted", after an upgrade: `talos-operator rollback
	// MACHINE`. "rolled back by itself": the new Talos does not run there; name another installer image or version.
	ReasonChangeFailed = "ChangeFailed"
	// ReasonUpgradePending: the running versions differ from those in the spec; a configuration change never upgrades
	// them.
	//
	// Next: set `upgrade: {talos: Automatic, kubernetes: Automatic}` to have the machines upgraded
	// (docs/upgrades.md#talos); the message then says what that waits for. "insufficient evidence": make the API servers
	// and the named machine respond again; `upgrade.removedAPIs: Ignore` begins nevertheless
	// (docs/upgrades.md#kubernetes). "waiting for the bootstrap manifests": see ManifestsRefused.
	ReasonUpgradePending = "UpgradePending"
	// ReasonDrifted: the machine configuration was changed outside of the operator.
	//
	// Next: `talos-operator plan CLUSTER` shows the fields. Undo the manual change, add it to the spec, or set `drift`
	// to Adopt or Enforce.
	ReasonDrifted = "Drifted"
)

// Reasons about upgrades of Talos.
const (
	// ReasonInstalling: an installer runs on the node.
	//
	// Next: wait for that installer to end.
	ReasonInstalling = "Installing"
	// ReasonInstallFailed: an installer ended with an error; the node boots what it ran before.
	//
	// Next: the message has the error; name another installer image or version, or fix the cause and `talos-operator
	// retry MACHINE`.
	ReasonInstallFailed = "InstallFailed"
	// ReasonImagePull: a node cannot pull an image of an upgrade; the message names it and says why.
	//
	// Next: check the image, the registry and its mirror in the machine configuration.
	ReasonImagePull = "ImagePull"
	// ReasonUpgradeUnsupported: the node runs a Talos that cannot be upgraded by the operator.
	//
	// Next: the message says why, and what would help.
	ReasonUpgradeUnsupported = "UpgradeUnsupported"
)

// Reasons of an upgrade that waits for a user.
const (
	// ReasonInsufficientDiskSpace: an upgrade does not begin, because machines have too little disk space for its images;
	// the message names them.
	//
	// Next: delete what is not needed on `/var` of the named machines, enlarge the volume, or leave the machines out
	// with `upgrade.machineSelector` (docs/upgrade-options.md#some-machines-first).
	ReasonInsufficientDiskSpace = "InsufficientDiskSpace"
	// ReasonRemovedAPIs: an upgrade does not begin, because the next minor of Kubernetes removes what is in use; the
	// message names it.
	//
	// Next: delete or migrate the objects, or remove the flags, feature gates and admission plugins.
	// `upgrade.removedAPIs: Ignore` begins nevertheless (docs/upgrades.md#kubernetes).
	ReasonRemovedAPIs = "RemovedAPIs"
	// ReasonNoUpgradePath: no path leads from the versions that run to those of the spec; the message says why.
	//
	// Next: ask for other versions, or name a release on the way with `upgrade.via`: `talos-operator upgrade plan CLUSTER`
	// shows the path.
	ReasonNoUpgradePath = "NoUpgradePath"
	// ReasonManifestsRefused: an upgrade waits, because the API server refuses bootstrap manifests; the message names them.
	//
	// Next: `talos-operator upgrade manifests CLUSTER` shows the words of the API server, and the reason in parentheses
	// is one of its own or one of those of refused manifests. Repair the manifest in the configuration, or set
	// `upgrade.manifests: Report` (docs/upgrade-options.md#bootstrap-manifests).
	ReasonManifestsRefused = "ManifestsRefused"
)

// Reasons about the hooks of upgrades.
const (
	// ReasonUpgradeHookRunning: an upgrade waits for the Job of a hook.
	//
	// Next: wait for the Job, or read its log: `kubectl describe job -n NAMESPACE JOB` in the cluster.
	ReasonUpgradeHookRunning = "UpgradeHookRunning"
	// ReasonUpgradeHookSucceeded: the Job of a hook has completed.
	//
	// Next: nothing to do.
	ReasonUpgradeHookSucceeded = "UpgradeHookSucceeded"
	// ReasonUpgradeHookFailed: the Job of a hook failed, took longer than its timeout, or could not be created; the message
	// names it and says why.
	//
	// Next: fix the cause in the Job, then `talos-operator retry CLUSTER` runs the hooks before the upgrade again; or
	// change or remove the hook (docs/upgrade-options.md#hooks).
	ReasonUpgradeHookFailed = "UpgradeHookFailed"
)

// Reasons of the records of upgrades.
const (
	// ReasonUpgrading: machines are being brought to the version of the run.
	//
	// Next: wait; `talos-operator upgrade status CLUSTER` shows each machine.
	ReasonUpgrading = "Upgrading"
	// ReasonUpgradeWaiting: no machine is being upgraded; the message says what the run waits for.
	//
	// Next: resolve what the message names.
	ReasonUpgradeWaiting = "UpgradeWaiting"
	// ReasonUpgradeStopped: more machines of a group failed than it tolerates; a retry of the machine continues the run.
	//
	// Next: repair the named machines, then `talos-operator retry MACHINE`.
	ReasonUpgradeStopped = "UpgradeStopped"
	// ReasonUpgraded: each machine of the cluster runs the version.
	//
	// Next: nothing to do.
	ReasonUpgraded = "Upgraded"
	// ReasonUpgradeFailed: the spec of the cluster changed after the upgrade of a machine had failed.
	//
	// Next: nothing to do for this record: the next one has the result of the new spec.
	ReasonUpgradeFailed = "UpgradeFailed"
	// ReasonUpgradeCalledOff: the spec of the cluster changed before each machine had the version.
	//
	// Next: nothing to do for this record: the next one has the result of the new spec.
	ReasonUpgradeCalledOff = "UpgradeCalledOff"
)

// Reasons of events about notifications of upgrades.
const (
	// ReasonNotificationFailed: a notification was not delivered, and is not tried again.
	//
	// Next: the message says why. Check the receiver; it is not sent again, the record of the upgrade has its content.
	ReasonNotificationFailed = "NotificationFailed"
	// ReasonNotificationAddress: the address of a webhook cannot be used; the message says why.
	//
	// Next: correct the address in the Secret: what waits is sent within ten minutes.
	ReasonNotificationAddress = "NotificationAddressUnusable"
)
