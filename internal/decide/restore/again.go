package restore

import (
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// maxNoted is how long the record from before a wipe counts as current. A status may come from a backup of the
// management plane, and the cluster may have worked for weeks since then.
const maxNoted = time.Hour

// RunsAgain reports whether etcd may be another one than the record allows to be wiped: it has quorum, and no node is
// in the recorded boot; or the record is old, and either etcd has quorum or there is no evidence that a wipe has ever
// begun.
func RunsAgain(r Record, nodes []Node) bool {
	nodes = listed(nodes)

	if r.Noted > maxNoted {
		return HasQuorum(nodes) || slices.ContainsFunc(nodes, Node.hasData) && !slices.ContainsFunc(nodes, Node.bare)
	}

	// A node that returned from its wipe while a quorum of the others was still running has joined them again. In that
	// case, one of the others is still in the recorded boot.
	return slices.ContainsFunc(nodes, r.otherBoot) && !slices.ContainsFunc(nodes, r.recordedBoot)
}

// bare reports whether the node has no data, as after a wipe.
func (n Node) bare() bool { return n.empty() || n.Answer == safety.AnswerMaintenance }

// otherBoot reports whether etcd of the node has quorum in a boot that was not recorded.
func (r Record) otherBoot(n Node) bool {
	return n.Serves() && n.Leader != 0 && n.Boot != r.Wipes[n.Name].Boot && n.Boot != r.Boots[n.Name]
}

// recordedBoot reports whether the node has not rebooted since its wipe, or the boot of its data, was recorded.
func (r Record) recordedBoot(n Node) bool {
	if n.Boot == "" {
		return false
	}

	return n.Boot == r.Wipes[n.Name].Boot || n.hasData() && n.Boot == r.Boots[n.Name]
}

// runsAgain prevents the wipe of an etcd whose data is neither the data that was copied nor the data that the user
// agreed to lose. A missing leader may be temporary, and an unreachable node may run the recorded etcd.
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

// restored reports whether an etcd that was taken for the remains of the operator's own attempt runs after all. Others
// may have joined it, including unlisted ones, because all were empty when the snapshot was sent. Its members must then
// be known nodes, and no other node may have data.
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
