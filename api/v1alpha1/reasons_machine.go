package v1alpha1

// Reasons about one machine. They say whether it responds, which machine it is, and what it runs.
const (
	// ReasonWaitingForControlPlane: the TalosControlPlane does not exist yet or has no PKI yet.
	//
	// Next: wait; if it stays, check the TalosControlPlane that the message names.
	ReasonWaitingForControlPlane = "WaitingForControlPlane"
	// ReasonOtherShard: an object, or one that it belongs to, carries the label of another shard than the one that asks,
	// or none yet. Nothing is decided about a cluster that is not wholly in one shard.
	//
	// Next: wait for a new object, which gets its label within seconds. Otherwise give all objects of the cluster the
	// same label while it is paused: see the section about shards in the operations guide.
	ReasonOtherShard = "OtherShard"
	// ReasonWaitingForAddress: no provider has assigned an address to the machine yet.
	//
	// Next: check `spec.provider` of the Machine and the provider; a static provider needs `addresses`.
	ReasonWaitingForAddress = "WaitingForAddress"
	// ReasonReachable: the Talos API responds.
	//
	// Next: nothing to do.
	ReasonReachable = "Reachable"
	// ReasonNodeUnreachable: the Talos API of the node does not respond.
	//
	// Next: power the node on, or repair its network or a firewall; nothing else is needed. If its address has changed,
	// correct the machine list. If it is no longer listed, and wiped or destroyed, annotate the TalosControlPlane with
	// `talos-operator.io/forget-machines=NAME`.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonAuthFailed: the node rejects the operator's credentials.
	//
	// Next: check which cluster the node belongs to: it has another CA, or its clock is wrong. Correct the address, or
	// the clock. The operator never falls back to a connection without credentials.
	ReasonAuthFailed = "AuthFailed"
	// ReasonAnswerTooLarge: the response of the node exceeds the size that any Talos node needs; it was not read to the
	// end.
	//
	// Next: the system at the address is not a healthy Talos node. Correct the address, or wipe the machine and boot it
	// again. No field changes the limits; the machine is retried at increasing intervals, up to five minutes.
	ReasonAnswerTooLarge = "AnswerTooLarge"
	// ReasonAnswerInvalid: the node responded with a resource other than the requested one, or with one that cannot be
	// decoded. Nothing of the response was used.
	//
	// Next: if the node runs a Talos that is newer than what the operator supports, update the operator, and do not wipe
	// the machine. Otherwise the system at the address is not a healthy Talos node: correct the address.
	ReasonAnswerInvalid = "AnswerInvalid"
	// ReasonNodeDiskFull: the node reports that its disk is out of space.
	//
	// Next: free space in the EPHEMERAL partition of the node that the message names: images and logs, `talosctl usage
	// /var`. The refused request is retried automatically.
	ReasonNodeDiskFull = "NodeDiskFull"
	// ReasonMaintenance: the node is in maintenance mode and has no machine configuration.
	//
	// Next: wait for its configuration. If it stays, follow the reason of Ready.
	ReasonMaintenance = "Maintenance"
	// ReasonMaintenanceCertificateMismatch: the certificate that a machine presents in maintenance mode does not match its
	// maintenanceFingerprint; nothing was sent to it. The message names both fingerprints.
	//
	// Next: compare the fingerprint in the message to `server certificate fingerprint` on the console of the machine. If
	// they are the same, the machine has booted again: put the new one into `maintenanceFingerprint` (of a template:
	// `provider.maintenanceFingerprints`). If they differ, another machine responds at the address: find it before
	// anything else.
	ReasonMaintenanceCertificateMismatch = "MaintenanceCertificateMismatch"
	// ReasonForeignNode: the machine runs under the CA of another cluster; nothing was sent to it.
	//
	// Next: correct the address, apply the state Secret of its cluster, or reset the machine manually with its own
	// talosconfig.
	ReasonForeignNode = "ForeignNode"
	// ReasonWrongMachine: the machine that responds at the address is another machine of the cluster, or an unknown one;
	// nothing was sent to it.
	//
	// Next: the message has the UUID of the machine that responds. Correct the address, or both where two were swapped.
	// If the hardware was exchanged, annotate the TalosMachine with `talos-operator.io/accept-machine={UUID}`.
	ReasonWrongMachine = "WrongMachine"
	// ReasonInstallDisk: no install disk could be chosen safely; the message lists the disks that were found.
	//
	// Next: set `install.disk`, `install.diskSelector` or `install.wipe`. If a machine reports no disks for 15 seconds,
	// `install.disk` is used as it is; without it nothing is sent.
	ReasonInstallDisk = "InstallDisk"
	// ReasonSecureBootOff: install.secureBoot asks for Secure Boot, and the machine was booted without it. A machine in
	// maintenance mode waits. A member of a cluster keeps the installer that its config names, and gets its other changes.
	//
	// Next: put the firmware of the machine into setup mode, boot an image for Secure Boot, and let it enroll the keys:
	// `talos-operator image url MACHINE` has its address. A member has to be wiped for that. Or remove
	// `install.secureBoot`.
	ReasonSecureBootOff = "SecureBootOff"
	// ReasonImageUnknown: the machine does not report whether it was booted with Secure Boot, or which extensions it has,
	// or what is in its schematic, so that it is unknown whether the installer of the spec takes that away, or does not
	// boot; the message says which. A machine in maintenance mode waits. A member of a cluster keeps the installer that
	// its config names, and gets its other changes. A machine that has just booted reports what it knows within seconds.
	//
	// Next: wait. If it stays, `talosctl -n ADDRESS get securitystate` and `get extensions` show what it reports (with
	// `--insecure` in maintenance mode); reboot it, or name an installer of a factory with its schematic.
	ReasonImageUnknown = "ImageUnknown"
	// ReasonSecureBootMismatch: the installer of the spec is not signed for Secure Boot, and the machine was booted with
	// it, or is to be. A machine in maintenance mode waits. A member of a cluster keeps the installer that its config
	// names, and gets its other changes.
	//
	// Next: set `install.secureBoot` with `install.schematic`, or name the installer whose name ends with `-secureboot`.
	// To go without Secure Boot, switch it off in the firmware of a machine in maintenance mode; a member has to be wiped
	// and installed anew.
	ReasonSecureBootMismatch = "SecureBootMismatch"
	// ReasonPlatformMismatch: the installer of the spec is for another platform than the one that the machine was booted
	// on, whose network it would lose. A machine in maintenance mode waits. A member of a cluster keeps the installer that
	// its config names, and gets its other changes.
	//
	// Next: set `install.platform` to the platform that the message names, or boot the image of the other one.
	ReasonPlatformMismatch = "PlatformMismatch"
	// ReasonExtensionsLost: what the machine runs has system extensions, or the overlay of a single-board computer, that
	// the installer of the spec does not have; the message names them. A machine in maintenance mode waits. A member of a
	// cluster keeps the installer that its config names, and gets its other changes.
	//
	// Next: add them to `install.schematic`, or name those that the machine may lose in `install.dropExtensions`.
	ReasonExtensionsLost = "ExtensionsLost"
	// ReasonConfigured: the node runs under the cluster's PKI.
	//
	// Next: nothing to do.
	ReasonConfigured = "Configured"
	// ReasonConfigRefused: the node rejected the machine configuration.
	//
	// Next: the message has the words of the node. Correct the spec or the patch that it is about.
	ReasonConfigRefused = "ConfigRefused"
	// ReasonBooting: the node is booting.
	//
	// Next: wait. If it stays, read the console of the machine.
	ReasonBooting = "Booting"
	// ReasonNodeNotReady: the node runs but is not ready; the message names the conditions that are not met.
	//
	// Next: wait; if it stays, check what the message names: `talosctl -n ADDRESS services`, `talosctl -n ADDRESS
	// dmesg`.
	ReasonNodeNotReady = "NodeNotReady"
	// ReasonExtensionServiceMissing: the machine has no such service, because no extension of its installer image brings
	// it. Talos accepts the configuration and does nothing with it.
	//
	// Next: add the extension to the schematic of the installer image, correct the name, or remove the entry from
	// `extensionServices`. `talosctl -n ADDRESS get extensions` lists what the machine has.
	ReasonExtensionServiceMissing = "ExtensionServiceMissing"
	// ReasonExtensionServiceNotRunning: the service of an extension has not run for a minute; the message says what it
	// waits for, or how it ended.
	//
	// Next: `talosctl -n ADDRESS logs ext-NAME`, and correct its files or variables in `extensionServices`.
	ReasonExtensionServiceNotRunning = "ExtensionServiceNotRunning"
	// ReasonStaticPodNotRunning: a static pod does not run; the message has the words of the kubelet. A control-plane
	// machine is not Ready meanwhile. Where the kubelet reports none of several pods, it may have refused them as a whole.
	//
	// Next: correct or remove the pod in `staticPods`. `talosctl -n ADDRESS logs kubelet` says more.
	ReasonStaticPodNotRunning = "StaticPodNotRunning"
	// ReasonTalosTooNew: the machine runs a minor version of Talos that is newer than this version of the operator knows.
	//
	// Next: upgrade the operator. `talos-operator version` lists the versions that it knows.
	ReasonTalosTooNew = "TalosTooNew"
	// ReasonNeighbourShutOut: the firewall that the machine runs closes a port to a machine of the cluster that needs it;
	// the message names both. Nothing is refused for it: the machine came later, or has another address now.
	//
	// Next: add the address in the message to a rule of `ingressFirewall` for that port.
	ReasonNeighbourShutOut = "NeighbourShutOut"
	// ReasonLinkMissing: the machine has no link of a name or an alias that its configuration has it bring up.
	//
	// Next: correct the name or the selector in `network.interfaces`, or check the hardware. `talos-operator network
	// MACHINE` lists the links that there are.
	ReasonLinkMissing = "LinkMissing"
	// ReasonLinkDown: a link that the configuration has the machine bring up carries nothing.
	//
	// Next: check its cable, the port of the switch, and the mode of its bond.
	ReasonLinkDown = "LinkDown"
	// ReasonNetworkNotReady: Talos waits for a part of the network: addresses, connectivity, the hostname, or files in
	// /etc.
	//
	// Next: check DHCP, addresses and routes of the machine: `talos-operator network MACHINE`.
	ReasonNetworkNotReady = "NetworkNotReady"
	// ReasonResolversMissing: the machine has no DNS servers, and finds no registry, time server or discovery service by
	// name.
	//
	// Next: set `network.nameservers`, or `machineNetwork.nameservers` of its group, or provide them by DHCP.
	ReasonResolversMissing = "ResolversMissing"
	// ReasonResolversFailing: DNS servers do not respond to the machine; the message names them.
	//
	// Next: check that they run, and that the machine reaches their port; or correct `network.nameservers` or
	// `machineNetwork.nameservers`.
	ReasonResolversFailing = "ResolversFailing"
	// ReasonKubeSpanPeersDown: the machine has no tunnel of KubeSpan to reachable machines: none is up, and the last
	// handshake is older than 275 seconds; the message names them, and `talos-operator network MACHINE` shows the endpoint
	// that it tries just now.
	//
	// Next: open the UDP port 51820 between them in one direction at least, also in firewalls between the machines, or set
	// `network.kubeSpanEndpoints`.
	ReasonKubeSpanPeersDown = "KubeSpanPeersDown"
	// ReasonDiscoveryIncomplete: the machine does not know reachable machines of its cluster from discovery.
	//
	// Next: check that all of them reach the discovery service: `talosctl -n ADDRESS get affiliates` on both.
	ReasonDiscoveryIncomplete = "DiscoveryIncomplete"
	// ReasonVolumeFailed: Talos cannot use a volume; the message has its words. A machine without its volume EPHEMERAL
	// does not become Ready.
	//
	// Next: an encrypted volume that does not open needs what its key depends on: the firmware and Secure Boot as they were
	// for a TPM, the network for a key management service. Restore that, or add a key in another slot before you remove
	// one. Wiping the machine is the last resort, and loses its data.
	ReasonVolumeFailed = "VolumeFailed"
	// ReasonVolumeKeysNotWritten: an encrypted volume was opened, and not all of its keys could be written or removed.
	//
	// Next: keep the key that opened it (`status.volumes[].keySlot`), and correct what the message says about the others.
	// Talos tries again at the next boot.
	ReasonVolumeKeysNotWritten = "VolumeKeysNotWritten"
	// ReasonVolumeChangeRefused: the spec changes a volume in a way that Talos accepts, and that has no effect, or locks the
	// volume at the next boot. Nothing is sent to the machine; it keeps its configuration.
	//
	// Next: the message says what to restore, or in which order to change keys.
	ReasonVolumeChangeRefused = "VolumeChangeRefused"
)

// Reasons about machines that leave a cluster, are replaced, or return.
const (
	// ReasonScalingDown: a machine that was removed from the machine list is being removed from the cluster.
	//
	// Next: wait.
	ReasonScalingDown = "ScalingDown"
	// ReasonWaitingForWorkers: the workers are removed before the control plane.
	//
	// Next: wait for the workers; if it does not end, follow their reasons.
	ReasonWaitingForWorkers = "WaitingForWorkers"
	// ReasonDraining: pods are being evicted from the node, or it is not known yet which Node is that of the machine.
	//
	// Next: wait.
	ReasonDraining = "Draining"
	// ReasonDrainHeld: pods were not evicted in time, or it is unknown which Node the machine has, or which pods it runs
	// without one, and the drain is blocked; the message says which.
	//
	// Next: move the named pods, relax the PodDisruptionBudgets that block them, or set `drain.onTimeout` of the group
	// to Force or Skip: it takes effect at once. If the Node or the pods are unknown, do what the message says, or set
	// Skip: Force does not help.
	ReasonDrainHeld = "DrainHeld"
	// ReasonLeavingEtcd: the node's member is leaving etcd.
	//
	// Next: wait.
	ReasonLeavingEtcd = "LeavingEtcd"
	// ReasonResetting: a node is being wiped.
	//
	// Next: wait.
	ReasonResetting = "Resetting"
	// ReasonStaleNode: an orphaned Node object of the cluster was removed; an event names it.
	//
	// Next: nothing to do.
	ReasonStaleNode = "StaleNode"
	// ReasonReplacing: a spare machine is replacing another machine.
	//
	// Next: wait.
	ReasonReplacing = "Replacing"
	// ReasonNoSpare: a machine needs to be replaced, and no spare machine is available.
	//
	// Next: boot a spare into maintenance mode. The message lists the spares and why they cannot be used.
	ReasonNoSpare = "NoSpare"
	// ReasonTooManyUnhealthy: more machines are unreachable at once than maxUnhealthy allows, so none is replaced.
	//
	// Next: look for what the machines have in common, a network for example. Raise `remediation.maxUnhealthy`, or
	// `talos-operator replace MACHINE --gone` for each that will not return.
	ReasonTooManyUnhealthy = "TooManyUnhealthy"
	// ReasonMachinesForgotten: machines that are no longer listed were forgotten, because a user confirmed that they are
	// wiped or destroyed.
	//
	// Next: nothing to do.
	ReasonMachinesForgotten = "MachinesForgotten"
	// ReasonMachineReturned: an abandoned machine has returned and is kept out of the cluster.
	//
	// Next: nothing to do, unless the message gives a reason against wiping it or says that it is left as it is. Then
	// annotate the TalosControlPlane with `talos-operator.io/wipe-machines=NAME`, or the TalosMachine, if it is listed
	// again, with `talos-operator.io/accept-machine={UUID}`; or wipe the machine yourself, or switch it off. If it waits
	// for the confirmation that the machine has no member: make a majority of the members reachable, correct the address
	// under which it is listed, or boot it into maintenance mode.
	ReasonMachineReturned = "MachineReturned"
)
