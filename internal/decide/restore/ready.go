package restore

import (
	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// afterWipe checks every node against the requirements of the restore after all data is wiped: a requirement that is
// found missing only then would leave a cluster without data and without a way to continue. A wipe ends in a boot,
// which uses the configuration on the disk. A node without data is not wiped and stays as it is. A node that is being
// deleted need not be ready, but one that becomes of type init bootstraps its own etcd as soon as it is empty.
func afterWipe(nodes []Node) (Decision, bool) {
	for _, n := range nodes {
		if n.Answer != safety.AnswerMember || n.Leaving && !n.becomesInit() {
			continue
		}

		if d, stuck := n.wrongType(); stuck {
			return d, true
		}

		if d, stuck := n.unsettled(); stuck && (n.Config != ConfigStaged || !n.hasData()) {
			return d, true
		}

		if d, stuck := n.untold(); stuck {
			return d, true
		}
	}

	return Decision{}, false
}

// unlessStuckAfter prevents a wipe from beginning if the restore could not continue afterwards, including a wipe that
// is recorded and visible on no node yet. A wipe that has begun continues: an empty node joins the others again while
// they are still running.
func (d Decision) unlessStuckAfter(r Record, nodes []Node) Decision {
	begun := r.begun(nodes)
	if d.Action != IntendWipe && (d.Action != WipeData || begun) {
		return d
	}

	if !begun {
		if mute, unknown := silent(nodes); unknown {
			return mute
		}
	}

	if stuck, held := afterWipe(nodes); held {
		return stuck
	}

	return d
}

// begun reports whether a node on which a wipe was recorded has changed since then, or cannot be shown to be unchanged.
func (r Record) begun(nodes []Node) bool {
	for name, w := range r.Wipes {
		n := find(nodes, name)
		if n == nil || n.Answer != safety.AnswerMember || n.Boot != w.Boot || !n.hasData() {
			return true
		}
	}

	return false
}

// unready says what a restore waits for on an empty node before the snapshot may be sent to any node.
func (n Node) unready() (Decision, bool) {
	switch n.Answer {
	case safety.AnswerUnknown:
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s to respond", n.Name), true
	case safety.AnswerMaintenance:
		return wait(v1alpha1.ReasonWaitingForMachines, "waiting for %s to get its config", n.Name), true
	case safety.AnswerMember:
	}

	if !n.waits() {
		return wait(v1alpha1.ReasonWaitingForMachines, "waiting for etcd on %s to be ready for a bootstrap", n.Name), true
	}

	for _, missing := range []func(Node) (Decision, bool){Node.wrongType, Node.unsettled, Node.untold} {
		if d, unready := missing(n); unready {
			return d, true
		}
	}

	return Decision{}, false
}

// isInit reports whether the node is of the old type init and no other type is staged.
func (n Node) isInit() bool {
	return n.Type == typeInit && (n.Config != ConfigStaged || n.NextType != typeControlPlane)
}

// becomesInit reports whether the node is of the old type init after its next boot.
func (n Node) becomesInit() bool {
	return n.Config == ConfigSettled && n.Type == typeInit || n.Config == ConfigStaged && n.NextType == typeInit
}

// wrongType reports whether the next boot turns the node into a machine that cannot recover an etcd as part of the
// control plane.
func (n Node) wrongType() (Decision, bool) {
	const advice = "send it one of the type controlplane (talosctl apply-config)"

	switch n.Config {
	case ConfigUnread:
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s to show its machine config: one of the type init "+
			"never recovers an etcd", n.Name), true
	case ConfigStaged:
		return wait(v1alpha1.ReasonWaitingForMachines, "the config that is staged on %s is of the type %s: "+advice,
			n.Name, n.NextType), n.NextType != typeControlPlane
	case ConfigSettled:
		return wait(v1alpha1.ReasonWaitingForMachines, "the config of %s is of the type %s: "+advice, n.Name,
			n.Type), n.Type != typeControlPlane
	case ConfigTried:
	}

	return Decision{}, false
}

// unsettled reports whether the node's next boot uses, or may use, another configuration than the live one. A user must
// not simply wait for a trial to end, because nothing shows its end.
func (n Node) unsettled() (Decision, bool) {
	switch n.Config {
	case ConfigTried:
		return wait(v1alpha1.ReasonWaitingForEvidence, "a config was tried on %s since it booted, and which one is on "+
			"its disk is unknown: reboot it, or send it the config to keep (talosctl apply-config)", n.Name), true
	case ConfigStaged:
		return wait(v1alpha1.ReasonWaitingForMachines, "a config waits for a reboot on %s: reboot it, or send it the "+
			"config to keep (talosctl apply-config)", n.Name), true
	case ConfigUnread, ConfigSettled:
	}

	return Decision{}, false
}

// untold reports whether the clock of the node is not in sync, without which it accepts no bootstrap, or whether its
// boot is unknown.
func (n Node) untold() (Decision, bool) {
	switch {
	case !n.TimeSynced:
		return wait(v1alpha1.ReasonWaitingForMachines, "waiting for the clock of %s to be in sync: it starts no etcd "+
			"before; are its time servers reachable?", n.Name), true
	case n.Boot == "":
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for the boot ID of %s", n.Name), true
	}

	return Decision{}, false
}
