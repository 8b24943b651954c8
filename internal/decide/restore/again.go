package restore

import (
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// maxNoted is how long what was recorded before a wipe is taken for the present. A status may come from a backup of the
// management plane, and the cluster may have worked for weeks since.
const maxNoted = time.Hour

// RunsAgain says whether etcd may be another one than the record allows to be wiped: it has quorum, and no node is in
// the boot that was recorded; or the record is old, and etcd has quorum or nothing shows that a wipe has ever begun.
func RunsAgain(r Record, nodes []Node) bool {
	nodes = listed(nodes)

	if r.Noted > maxNoted {
		return HasQuorum(nodes) || slices.ContainsFunc(nodes, Node.hasData) && !slices.ContainsFunc(nodes, Node.bare)
	}

	// A node that came back from its wipe while a quorum of the others still ran has joined them again. It shows in that
	// one of them is in the recorded boot still.
	return slices.ContainsFunc(nodes, r.otherBoot) && !slices.ContainsFunc(nodes, r.recordedBoot)
}

// bare: the node has no data, as after a wipe.
func (n Node) bare() bool { return n.empty() || n.Answer == safety.AnswerMaintenance }

// otherBoot: etcd of the node has quorum in a boot that was not recorded.
func (r Record) otherBoot(n Node) bool {
	return n.Serves() && n.Leader != 0 && n.Boot != r.Wipes[n.Name].Boot && n.Boot != r.Boots[n.Name]
}

// recordedBoot: the node has not rebooted since its wipe was recorded, or since its data was.
func (r Record) recordedBoot(n Node) bool {
	if n.Boot == "" {
		return false
	}

	return n.Boot == r.Wipes[n.Name].Boot || n.hasData() && n.Boot == r.Boots[n.Name]
}

// runsAgain keeps an etcd from being wiped whose data is neither what was copied nor what a person spoke of. A leader
// that is gone shows for a moment, and a node that is silent may run the recorded etcd.
func (r Record) runsAgain(nodes []Node) (Decision, bool) {
	if !RunsAgain(r, nodes) {
		return Decision{}, false
	}

	with := list(pick(nodes, Node.hasData))
	mute := pick(nodes, func(n Node) bool { return n.Answer == safety.AnswerUnknown })

	switch {
	case len(mute) > 0:
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s: %s has etcd data, which may be newer than what was "+
			"recorded before the wipe", list(mute), with), true
	case r.Again < election:
		return wait(v1alpha1.ReasonWaitingForEvidence, "%s has etcd data, which may be newer than what was recorded "+
			"before the wipe; waiting to find out whether etcd has quorum", with), true
	}

	return stop(v1alpha1.ReasonEtcdRunsAgain, "%s has etcd data and is not wiped: etcd has quorum since another boot "+
		"than was recorded before the wipe, or that was more than an hour ago; delete this restore to keep the data, or "+
		"create another one", with), true
}

// restored: what was taken for debris of our own try runs after all. Others may have joined it, those that are not
// listed too: all were empty when the snapshot was sent. Then its members are known nodes, and nobody else has data.
func restored(r Record, nodes []Node) bool {
	n := find(nodes, r.Machine)
	if n == nil || r.Tries == 0 || !r.Asked || !n.Serves() || n.Leader == 0 {
		return false
	}

	others := slices.DeleteFunc(slices.Clone(nodes), func(o Node) bool { return o.Name == r.Machine || !o.hasData() })

	return len(others) == 0 || n.Boot == r.Boot && !slices.ContainsFunc(others, func(o Node) bool {
		return !hasMember(*n, o.MemberID) || !hasMember(o, n.MemberID)
	}) && !slices.ContainsFunc(n.Members, func(m safety.Member) bool {
		return !slices.ContainsFunc(nodes, func(o Node) bool { return o.MemberID == m.ID })
	})
}

func hasMember(n Node, id uint64) bool {
	return id != 0 && slices.ContainsFunc(n.Members, func(m safety.Member) bool { return m.ID == id })
}
