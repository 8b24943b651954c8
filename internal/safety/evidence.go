// Package safety decides what may be done to a cluster. It is pure: evidence in, decision out; no clock, no client, no
// log. Missing evidence means no.
package safety

import (
	"fmt"
	"slices"
	"strings"
)

// Answer is how a node answered when it was last asked, live.
type Answer int

// Answers.
const (
	// AnswerUnknown: the node did not answer, or not in a way that tells its state.
	AnswerUnknown Answer = iota
	// AnswerMaintenance: the node has no config.
	AnswerMaintenance
	// AnswerMember: the node runs under this cluster's PKI and accepts our credentials.
	AnswerMember
)

// Data says whether a node holds etcd data.
type Data int

// Data states.
const (
	// DataUnknown: the node could not be asked.
	DataUnknown Data = iota
	// DataAbsent: the etcd data directory is empty.
	DataAbsent
	// DataPresent: the etcd data directory is not empty.
	DataPresent
)

// Member is one entry of an etcd member list.
type Member struct {
	// ID is the member ID; names and addresses may repeat, IDs do not.
	ID uint64
	// Name is the hostname that the member was started with; empty until it has started.
	Name string
	// PeerAddresses are the hosts of its peer URLs.
	PeerAddresses []string
	// Learner members do not vote.
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
	// BootID of a node whose etcd waits for a bootstrap; empty where it is unknown.
	BootID string
	// EverConfigured: a config under this cluster's PKI was sent to the node, or may have been.
	EverConfigured bool
	// Unlisted: the machine is remembered from earlier and not on the list now. It is evidence, and nothing is done to it.
	Unlisted bool
	// Departing: the machine left the list, and is about to be taken out. It is evidence, and no etcd begins on it.
	Departing bool
	// EtcdData on the node.
	EtcdData Data
	// EtcdWaiting: the etcd service waits for a bootstrap or for a cluster to join.
	EtcdWaiting bool
	// ImageMissing: it has been waiting for its image for longer than a pull takes.
	ImageMissing bool
	// EtcdSince is when its service got into the state that it is in, by the node's clock: Unix time in nanoseconds.
	EtcdSince int64
	// Members is the local view of the member list; nil when the node did not give one.
	Members []Member
	// MemberID of the node's own member; 0 when unknown.
	MemberID uint64
	// Leader is the member ID of the leader that this node sees; 0 when it sees none.
	Leader uint64
	// Learner: the node's own member does not vote yet.
	Learner bool
	// Alarms and errors that the member reports.
	Alarms []string
	// NoLeader: the node's etcd runs and says that its cluster has no leader. Such an etcd gives no member list.
	NoLeader bool
	// EtcdHangs: the etcd service runs and answers nothing, as one does that was started without quorum.
	EtcdHangs bool
	// LastMember is the member that the machine had when it last told; 0 when it never did.
	LastMember uint64
	// OwnAlarms are those of the node's own member; Alarms are those of all.
	OwnAlarms []string
	// RaftIndex is the last entry that the member has; it shows who lags behind. RaftApplied is the last one that is in
	// its database.
	RaftIndex, RaftApplied uint64
}

// Serves says whether the node's etcd answers.
func (n Node) Serves() bool { return len(n.Members) > 0 }

// mayHideData: the node got our config at some time, and nobody knows now whether it holds etcd data.
func (n Node) mayHideData() bool {
	return n.EtcdData == DataUnknown && (n.EverConfigured || n.Answer == AnswerMember)
}

// AllLost tells whether every node that may have had a member has said that it holds no etcd data, or is in maintenance
// mode. Then no etcd is left that could let a member go.
func AllLost(nodes []Node) bool {
	had := filter(nodes, Node.mayVote)

	return len(had) > 0 && !slices.ContainsFunc(had, func(n Node) bool { return !n.holdsNothing() })
}

func (n Node) knows(id uint64) bool {
	return slices.ContainsFunc(n.Members, func(m Member) bool { return m.ID == id })
}

// splitViews returns two nodes whose etcds are different clusters: both serve, and neither has the other in its list.
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

// sameMachine finds two addresses at which one machine answers: the etcd services of two do not change in the same
// nanosecond. Then nobody has heard the machine that one of the addresses stands for. Boards that share a firmware UUID
// cannot be told apart otherwise.
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

// FormatMemberID prints a member ID as talosctl does.
func FormatMemberID(id uint64) string {
	if id == 0 {
		return ""
	}

	return fmt.Sprintf("%016x", id)
}
