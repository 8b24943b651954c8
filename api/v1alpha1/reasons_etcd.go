package v1alpha1

// Reasons about etcd and the Kubernetes API.
const (
	// ReasonWaitingForMachines: some machines are not configured yet, or not compared to the current spec.
	//
	// Next: wait; if it stays, follow the reasons of the machines that the message names.
	ReasonWaitingForMachines = "WaitingForMachines"
	// ReasonWaitingForEvidence: a control-plane node is unreachable, and the step is not known to be safe without its
	// state.
	//
	// Next: power the named node on, or make it reachable. If it is no longer listed, and wiped or destroyed, declare it
	// with `talos-operator.io/forget-machines=NAME`. Beside QuorumLost, no reachable machine has etcd data: if all are
	// empty, the reason becomes EtcdLost. On a TalosEtcdRestore, name a node that is gone for good in `lostMachines` of
	// another restore, see docs/restore.md#the-steps-and-what-to-do-when-one-stops.
	ReasonWaitingForEvidence = "WaitingForEvidence"
	// ReasonBootstrapping: the bootstrap of etcd is in progress.
	//
	// Next: wait.
	ReasonBootstrapping = "Bootstrapping"
	// ReasonBootstrapped: etcd responds.
	//
	// Next: nothing to do.
	ReasonBootstrapped = "Bootstrapped"
	// ReasonEtcdHealthy: all members are voting and agree on the member list.
	//
	// Next: nothing to do.
	ReasonEtcdHealthy = "EtcdHealthy"
	// ReasonEtcdUnhealthy: a member is missing, not voting, unreachable, or has an alarm.
	//
	// Next: power on the named machine, or clear the alarm. "is not the member of any node that responds": power on the
	// machines that may have that member, or list them again. A member of a machine that is no longer listed stays until
	// that is listed again or forgotten; one that no machine can have is removed automatically after a minute.
	ReasonEtcdUnhealthy = "EtcdUnhealthy"
	// ReasonEtcdLost: no control-plane node of an established cluster has etcd data any more.
	//
	// Next: restore a backup, see docs/restore.md#restore-an-older-state, or annotate with
	// `talos-operator.io/allow-new-etcd=true` to start empty; the annotation is valid once.
	ReasonEtcdLost = "EtcdLost"
	// ReasonEtcdSplit: control-plane nodes report member lists of different etcd clusters.
	//
	// Next: decide which etcd is right, and reset the other node.
	ReasonEtcdSplit = "EtcdSplit"
	// ReasonQuorumLost: too many etcd members are missing for a quorum; the message names them and says how to regain the
	// quorum.
	//
	// Next: power the named machines on, or restore their network: etcd continues by itself as soon as a majority runs.
	// Do not wipe or reset anything before: each disk may be needed. If too few return with their disks, only a restore
	// helps, see docs/restore.md#restore-an-older-state.
	ReasonQuorumLost = "QuorumLost"
	// ReasonEtcdImagePull: a node has been pulling the etcd image for more than five minutes; the message says since when,
	// and what to do.
	//
	// Next: check the registry, or the mirror in the machine configuration: `talosctl -n ADDRESS service etcd` shows
	// Preparing, `talosctl -n ADDRESS dmesg` the error. Apply no configuration meanwhile: it interrupts the pull, and
	// with a registry that does not support ranges that may never end. `talosctl -n ADDRESS reboot` starts it again;
	// etcd cannot be restarted alone.
	ReasonEtcdImagePull = "EtcdImagePull"
	// ReasonAvailable: the API responds and etcd has quorum.
	//
	// Next: nothing to do.
	ReasonAvailable = "Available"
	// ReasonAPIServerUnavailable: no API server of the cluster responds.
	//
	// Next: check the machines of the control plane: `talosctl -n ADDRESS containers -k`, and the logs of
	// kube-apiserver. If etcd has no quorum, follow EtcdHealthy first.
	ReasonAPIServerUnavailable = "APIServerUnavailable"
)

// Reasons about disruptions. They say why one is permitted, waits, or is refused.
const (
	// ReasonSafe: every control-plane node was queried, and no evidence speaks against the step.
	//
	// Next: nothing to do.
	ReasonSafe = "Safe"
	// ReasonDisruptionInProgress: another control-plane node is being disrupted; only one may be disrupted at a time.
	//
	// Next: wait for the node that the message names.
	ReasonDisruptionInProgress = "DisruptionInProgress"
	// ReasonQuorumAtRisk: the step would cost etcd its quorum, or etcd has no quorum to decide with.
	//
	// Next: repair the unhealthy members first; the step is done once etcd can spare the node.
	ReasonQuorumAtRisk = "QuorumAtRisk"
	// ReasonLastMember: the last member of etcd is never removed.
	//
	// Next: delete the cluster to give it up, or add control-plane machines first.
	ReasonLastMember = "LastMember"
	// ReasonMemberAlive: the member to be removed as dead responds.
	//
	// Next: the member is not dead, and is not removed as such; `talos-operator replace` removes its machine as a
	// running one.
	ReasonMemberAlive = "MemberAlive"
	// ReasonMachineAlive: the machine to be replaced as dead responds, or its Node still reports to Kubernetes.
	//
	// Next: the operator cannot reach the Talos API of a node that works: check firewalls and routes between the two.
	// `talos-operator replace` removes the machine as a running one.
	ReasonMachineAlive = "MachineAlive"
	// ReasonWaitingForBackup: the disruption of a node is blocked until a fresh backup exists, as the spec demands; the
	// message names the node.
	//
	// Next: wait; the TalosEtcdBackup that the message names reports its progress. The message also says if the schedule
	// does not exist, is paused or backs up another control plane.
	ReasonWaitingForBackup = "WaitingForBackup"
	// ReasonNoBackup: an upgrade goes on without a backup before it, and the message says why.
	//
	// Next: create a TalosEtcdBackupSchedule, or name one in `backupBeforeDisruption` (docs/backup.md). To upgrade
	// without one, set `upgrade.backup: None`.
	ReasonNoBackup = "NoBackup"
)
