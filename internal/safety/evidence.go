// Package safety decides which disruptions of a cluster are safe. It is pure: evidence in, decision out, without a
// clock, a client or a log. Missing evidence means no.
package safety

import (
	"fmt"
	"slices"
	"strings"
)

// Answer is how a node responded to the last live query.
type Answer int

// Answers.
const (
	// AnswerUnknown: the node did not respond, or its response does not reveal its state.
	AnswerUnknown Answer = iota
	// AnswerMaintenance: the node is in maintenance mode and has no machine configuration.
	AnswerMaintenance
	// AnswerMember: the node runs under this cluster's PKI and accepts the operator's credentials.
	AnswerMember
)

// Data says whether a node has etcd data.
type Data int

// Data states.
const (
	// DataUnknown: the node could not be queried.
	DataUnknown Data = iota
	// DataAbsent: the etcd data directory is empty.
	DataAbsent
	// DataPresent: the etcd data directory is not empty.
	DataPresent
)

// Member is one entry of an etcd member list.
type Member struct {
	// ID is the member ID. Names and addresses may repeat, IDs do not.
	ID uint64
	// Name is the hostname that the member was started with; empty until the member has started.
	Name string
	// PeerAddresses are the hosts of its peer URLs.
	PeerAddresses []string
	// Learner: the member does not vote.
	Learner bool
}

// Node is the evidence about one control-plane node.
type Node struct {
	// Name of the machine.
	Name string
	// Address of the machine.
	Address string
	// Answer of the node.
	Answer Answer
	// BootID of a node whose etcd waits for a bootstrap; empty if unknown.
	BootID string
	// EverConfigured: a machine configuration under this cluster's PKI was sent to the node, or may have been.
	EverConfigured bool
	// Unlisted: the machine is recorded from earlier but not listed now. It is evidence only; nothing is done to it.
	Unlisted bool
	// Departing: the machine was removed from the list and is about to be removed from the cluster. It is evidence only;
	// etcd is never bootstrapped on it.
	Departing bool
	// EtcdData says whether the node has etcd data.
	EtcdData Data
	// EtcdWaiting: the etcd service waits for a bootstrap or for a cluster to join.
	EtcdWaiting bool
	// ImageMissing: etcd has been waiting for its image for longer than a pull normally takes.
	ImageMissing bool
	// EtcdSince is when the etcd service entered its current state, by the node's clock: Unix time in nanoseconds.
	EtcdSince int64
	// Members is the node's view of the member list; nil if the node did not report one.
	Members []Member
	// MemberID of the node's own member; 0 when unknown.
	MemberID uint64
	// Leader is the member ID of the leader that this node sees; 0 if it sees none.
	Leader uint64
	// Learner: the node's own member does not vote yet.
	Learner bool
	// Alarms and errors that the member reports, including the alarms of other members.
	Alarms []string
	// NoLeader: the node's etcd runs and reports that its cluster has no leader. Such an etcd returns no member list.
	NoLeader bool
	// EtcdHangs: the etcd service runs but does not respond, which happens when it was started without quorum.
	EtcdHangs bool
	// LastMember is the last member ID that the machine reported; 0 if it never reported one.
	LastMember uint64
	// OwnAlarms are the alarms of the node's own member.
	OwnAlarms []string
	// RaftIndex is the last raft entry of the member and shows whether it lags. RaftApplied is the last entry that is
	// applied to its database.
	RaftIndex, RaftApplied uint64
	// DBSize is the size of the member's database file, DBSizeInUse its size after a defragmentation: bytes. Both are for
	// metrics; nothing is decided by them.
	DBSize, DBSizeInUse int64
}

// Serves reports whether the node's etcd responds.
func (n Node) Serves() bool { return len(n.Members) > 0 }

// mayHideData reports whether the node was configured at some time, and it is unknown whether it has etcd data now.
func (n Node) mayHideData() bool {
	return n.EtcdData == DataUnknown && (n.EverConfigured || n.Answer == AnswerMember)
}

// AllLost reports whether every node that may have had a member has reported that it has no etcd data, or is in
// maintenance mode. Then there is no etcd left from which a member could be removed.
func AllLost(nodes []Node) bool {
	had := filter(nodes, Node.mayVote)

	return len(had) > 0 && !slices.ContainsFunc(had, func(n Node) bool { return !n.holdsNothing() })
}

func (n Node) knows(id uint64) bool {
	return slices.ContainsFunc(n.Members, func(m Member) bool { return m.ID == id })
}

// splitViews returns two nodes that belong to different etcd clusters: both serve, and neither has the other in its
// list.
func splitViews(nodes []Node) (a, b string, split bool) {
	for i, x := range nodes {
		for _, y := range nodes[i+1:] {
			if x.Serves() && y.Serves() && x.MemberID != 0 && y.MemberID != 0 &&
				!x.knows(y.MemberID) && !y.knows(x.MemberID) && disjoint(x.Members, y.Members) {
				return x.Name, y.Name, true
			}
		}
	}

	return "", "", false
}

// sameMachine finds two addresses at which the same machine responds: the etcd services of two machines do not change
// state in the same nanosecond. One of the addresses then belongs to a machine that has not been observed at all.
// Boards that share a firmware UUID cannot be told apart in any other way.
func sameMachine(nodes []Node) string {
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			if a.EtcdSince > 0 && a.EtcdSince == b.EtcdSince && a.Address != b.Address {
				return fmt.Sprintf("%s and %s are one machine, which responds at both addresses", a.Name, b.Name)
			}
		}
	}

	return ""
}

func disjoint(a, b []Member) bool {
	return !slices.ContainsFunc(a, func(m Member) bool {
		return slices.ContainsFunc(b, func(o Member) bool { return o.ID == m.ID })
	})
}

func names(nodes []Node) string {
	out := make([]string, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, n.Name)
	}

	slices.Sort(out)

	return strings.Join(out, ", ")
}

func filter(nodes []Node, keep func(Node) bool) []Node {
	var out []Node

	for _, n := range nodes {
		if keep(n) {
			out = append(out, n)
		}
	}

	return out
}

// FormatMemberID formats a member ID as talosctl does.
func FormatMemberID(id uint64) string {
	if id == 0 {
		return ""
	}

	return fmt.Sprintf("%016x", id)
}
