package safety

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// snapshotLag is how many entries the database of a member may be behind the newest one. A busy cluster writes that
// many between the responses of two nodes.
const snapshotLag = 5000

// noLeader is the error that a member reports while its cluster has no quorum. It is no evidence against its database.
const noLeader = "no leader"

// SnapshotChoice is the member that provides a snapshot.
type SnapshotChoice struct {
	// Node that was chosen; the zero Node if none is suitable.
	Node Node
	// Leader: the member is the leader.
	Leader bool
	// Quorum: etcd has quorum. Without it a snapshot can be taken, but unreachable members may have newer data.
	Quorum bool
	// Message says why no member is suitable.
	Message string
}

// SnapshotSource chooses the member that a snapshot is read from: a healthy voting member that does not lag, preferably
// a follower, and preferably not the one to avoid, on which the last attempt failed. The same evidence leads to the
// same choice.
func SnapshotSource(nodes []Node, avoid string) SnapshotChoice {
	if a, b, split := splitViews(nodes); split {
		return SnapshotChoice{Message: fmt.Sprintf("%s and %s run two different etcd clusters", a, b)}
	}

	view := largestView(nodes)
	newest := uint64(0)

	for _, n := range nodes {
		newest = max(newest, n.RaftApplied)
	}

	var faults []string

	fit := filter(nodes, func(n Node) bool {
		fault := snapshotFault(n, view, newest)
		if fault != "" {
			faults = append(faults, n.Name+" "+fault)
		}

		return fault == ""
	})

	if len(fit) == 0 {
		slices.Sort(faults)

		return SnapshotChoice{Message: cmp.Or(strings.Join(faults, "; "), "there are no control-plane nodes")}
	}

	best := slices.MinFunc(fit, func(a, b Node) int {
		return cmp.Or(cmp.Compare(snapshotRank(a, avoid), snapshotRank(b, avoid)), strings.Compare(a.Name, b.Name))
	})

	return SnapshotChoice{Node: best, Leader: best.Leader == best.MemberID, Quorum: hasQuorum(nodes, view)}
}

// snapshotFault says why a snapshot must not be taken from a node; empty if it may.
func snapshotFault(n Node, view []Member, newest uint64) string {
	raised := slices.DeleteFunc(slices.Clone(n.OwnAlarms), func(a string) bool { return strings.Contains(a, noLeader) })

	switch {
	case n.Answer == AnswerMaintenance:
		return "is in maintenance mode"
	case n.Answer == AnswerUnknown:
		return "is unreachable"
	case !n.Serves() && !n.NoLeader:
		return "has no responding etcd member"
	case n.MemberID == 0 || n.Serves() && !n.knows(n.MemberID):
		return "is not on its own member list"
	case len(view) > 0 && !slices.ContainsFunc(view, func(m Member) bool { return m.ID == n.MemberID }):
		return "is not on the member list of the others"
	case n.Learner || isLearner(view, n.MemberID):
		return "does not vote yet"
	case len(raised) > 0:
		return "raises " + strings.Join(raised, ", ")
	case newest-n.RaftApplied > snapshotLag:
		return "lags behind the others"
	}

	return ""
}

// snapshotRank ranks a node as the source of a snapshot; lower is better.
func snapshotRank(n Node, avoid string) int {
	rank := 0

	if n.NoLeader {
		rank += 4
	}

	if n.Name == avoid {
		rank += 2
	}

	if n.Leader == n.MemberID {
		rank++
	}

	return rank
}

func isLearner(view []Member, id uint64) bool {
	return slices.ContainsFunc(view, func(m Member) bool { return m.ID == id && m.Learner })
}

// hasQuorum reports whether the voters that see a leader are a majority.
func hasQuorum(nodes []Node, view []Member) bool {
	with := 0

	for _, n := range nodes {
		if n.Serves() && !n.Learner && n.Leader != 0 {
			with++
		}
	}

	return with >= Quorum(voters(view))
}
