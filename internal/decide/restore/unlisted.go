package restore

import (
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// listed removes the recorded machines that are not listed: they are evidence only, and nothing is done to them.
func listed(nodes []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Unlisted })
}

// joined returns unlisted machines that run etcd nevertheless: an empty, configured node joins the cluster that it
// finds.
func joined(nodes []Node) []safety.Node {
	var out []safety.Node

	for _, n := range nodes {
		if n.Unlisted && n.Serves() {
			out = append(out, n.Node)
		}
	}

	return out
}

// unlisted blocks a restore because of machines that were configured once and are not listed now. A machine that
// continues with the old etcd would split the cluster, and its disk has no record of the machine list. In maintenance
// mode it runs no etcd.
func unlisted(nodes []Node) (Decision, bool) {
	const owner = "the TalosControlPlane"

	with := pick(nodes, func(n Node) bool { return n.Unlisted && n.hasData() })
	mute := pick(nodes, func(n Node) bool {
		return n.Unlisted && !n.hasData() && n.EtcdData == safety.DataUnknown && n.Answer != safety.AnswerMaintenance
	})

	switch {
	case len(with) > 0:
		return wait(v1alpha1.ReasonWaitingForEvidence, "%s, no longer listed, has etcd data, and could keep running the "+
			"old etcd: %s", list(with), safety.AdviseUnlisted(owner, with)), true
	case len(mute) > 0:
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s, no longer listed, to respond: it could keep "+
			"running the old etcd; %s", list(mute), safety.AdviseUnlisted(owner, mute)), true
	}

	return Decision{}, false
}

// commits reports whether the decision makes the cluster lose its etcd or bootstrap one, and neither has begun.
func (d Decision) commits(r Record, nodes []Node) bool {
	switch d.Action {
	case Next:
		return r.Step == "" || r.Step == v1alpha1.RestorePreflight
	case IntendWipe, WipeData:
		return !r.begun(nodes)
	case Choose, Upload:
		return true
	case Wait, Save, Prove, Finish, Stop:
	}

	return false
}
