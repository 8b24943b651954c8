package restore

import (
	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// afterWipe holds every node against what a restore needs of it once the data of all of them is wiped: what is found
// missing only then leaves a cluster without data and without a way on. A wipe ends in a boot, which takes the config
// on the disk. A node without data is not wiped, and stays as it is. One that is being deleted need not be ready, but
// one that becomes of the type init founds an etcd of its own as soon as it is empty.
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

// unlessStuckAfter keeps a wipe from beginning that leads to where the restore does not go on, also one that is
// recorded and shows on no node yet. One that has begun goes on: a node that is empty while others still run joins them
// again.
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

// begun: some node on which a wipe was recorded is no longer as it was then, or does not show that it is.
func (r Record) begun(nodes []Node) bool {
	for name, w := range r.Wipes {
		n := find(nodes, name)
		if n == nil || n.Answer != safety.AnswerMember || n.Boot != w.Boot || !n.hasData() {
			return true
		}
	}

	return false
}

// unready says what a restore waits for on an empty node before the snapshot may go anywhere.
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

// isInit: the node is of the old type, and no other one is staged.
func (n Node) isInit() bool {
	return n.Type == typeInit && (n.Config != ConfigStaged || n.NextType != typeControlPlane)
}

// becomesInit: the next boot makes the node one of the old type.
func (n Node) becomesInit() bool {
	return n.Config == ConfigSettled && n.Type == typeInit || n.Config == ConfigStaged && n.NextType == typeInit
}

// wrongType: the next boot makes the node no machine of a control plane that recovers an etcd.
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

// unsettled: the next boot of the node takes another config than it runs, or may do so. What a person can do about a
// trial is not to wait: nothing tells that it is over.
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

// untold: the clock of the node is not in sync, without which it takes no bootstrap, or it does not tell its boot.
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
