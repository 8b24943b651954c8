package safety

import (
	"fmt"
	"strings"
)

// QuorumState is the observed state of etcd's quorum.
type QuorumState int

// Quorum states.
const (
	// QuorumUnknown: the responding nodes prove neither that there is quorum nor that it is lost.
	QuorumUnknown QuorumState = iota
	// QuorumHeld: a majority of the voting members responds and sees a leader.
	QuorumHeld
	// QuorumNoLeader: enough members run, but no responding member sees a leader. An election causes this for a moment, a
	// broken network between the nodes for longer.
	QuorumNoLeader
	// QuorumLost: too many members are missing for a quorum.
	QuorumLost
)

// QuorumView is what the evidence shows about etcd's quorum.
type QuorumView struct {
	// State that is known.
	State QuorumState
	// Missing names the nodes whose members are missing, in order.
	Missing []string
	// Total: no responding node has data any more, and the remaining nodes are too few for a quorum. The etcd does not
	// come back.
	Total bool
	// Message for users: what is missing, and how to regain the quorum; empty while there is quorum.
	Message string
}

// losses are the nodes of a cluster by what they can still contribute to a quorum.
type losses struct {
	// silent nodes are unreachable; empty ones have no etcd data any more.
	silent, empty []Node
	// leaderless nodes run etcd without a leader; starting ones may still join, or their state is unknown.
	leaderless, starting []Node
	// led: a node sees a leader, although too few nodes respond.
	led bool
}

// AssessQuorum assesses whether the etcd of an established cluster has quorum, and what is missing. Missing evidence
// proves nothing: if no node responds, or a responding node sees a leader, the state is unknown. Quorum counts as lost
// only if a node runs etcd without a leader or was started without one, or if no node is left that may have data.
func AssessQuorum(nodes []Node) QuorumView {
	view := largestView(nodes)
	expected := voters(view)
	if len(view) == 0 {
		expected = len(filter(nodes, Node.mayVote))
	}

	need := Quorum(expected)

	if _, _, split := splitViews(nodes); !split && len(view) > 0 && working(nodes, view, -1) >= need {
		return QuorumView{State: QuorumHeld}
	}

	l := sortLosses(nodes)
	v := QuorumView{Missing: nodeNames(l.silent, l.empty)}
	left := len(l.leaderless) + len(l.starting)

	switch {
	case expected == 0:
		v.Message = "no control-plane node reports on etcd"
	case l.led || len(l.leaderless) == 0 && len(l.empty) < need:
		v.Message = unknownQuorum(l)
	case left >= need:
		v.State = QuorumNoLeader
		v.Message = fmt.Sprintf("%s report no etcd leader; if this lasts, check the network between the control-plane "+
			"nodes",
			names(l.leaderless))
	default:
		v.State = QuorumLost
		v.Total = left == 0 && len(l.silent) < need
		v.Message = lostQuorum(l, left, expected)
	}

	return v
}

// mayVote reports whether the node has, or had, an etcd member.
func (n Node) mayVote() bool {
	return n.EverConfigured || n.LastMember != 0 || n.Answer == AnswerMember
}

func sortLosses(nodes []Node) losses {
	var l losses

	for _, n := range nodes {
		switch {
		case !n.mayVote():
		case n.Answer == AnswerUnknown:
			l.silent = append(l.silent, n)
		case n.Answer == AnswerMaintenance, n.EtcdData == DataAbsent && !n.Serves():
			l.empty = append(l.empty, n)
		case n.NoLeader, n.EtcdHangs, n.Serves() && n.Leader == 0:
			l.leaderless = append(l.leaderless, n)
		case n.Serves():
			l.led = true
		default:
			l.starting = append(l.starting, n)
		}
	}

	return l
}

func unknownQuorum(l losses) string {
	switch {
	case len(l.silent) > 0:
		return fmt.Sprintf("%s %s; it is unknown whether etcd has quorum", names(l.silent),
			does(l.silent, "is unreachable", "are unreachable"))
	case len(l.starting) > 0:
		return fmt.Sprintf("waiting for etcd on %s", names(l.starting))
	}

	return "it is unknown whether etcd has quorum"
}

// lostQuorum says what is missing and how to regain the quorum.
func lostQuorum(l losses, left, expected int) string {
	var missing []string

	if len(l.silent) > 0 {
		missing = append(missing, names(l.silent)+does(l.silent, " is unreachable", " are unreachable"))
	}

	if len(l.empty) > 0 {
		missing = append(missing, names(l.empty)+does(l.empty, " has", " have")+" no etcd data any more")
	}

	text := fmt.Sprintf("etcd has no quorum: %s; %d of %d members %s left, %d are needed; ", strings.Join(missing, ", "),
		left, expected, map[bool]string{true: "is", false: "are"}[left == 1], Quorum(expected))

	// Only data that still exists can be recovered.
	if left+len(l.silent) < Quorum(expected) {
		return text + "restore a backup with a TalosEtcdRestore"
	}

	return text + fmt.Sprintf("power on or reconnect %s; if %s cannot come back with the data, use a TalosEtcdRestore",
		names(l.silent), does(l.silent, "it", "they"))
}

// does selects the singular or the plural form.
func does(nodes []Node, one, many string) string {
	if len(nodes) == 1 {
		return one
	}

	return many
}

func nodeNames(groups ...[]Node) []string {
	var out []string

	for _, g := range groups {
		for _, n := range g {
			out = append(out, n.Name)
		}
	}

	return out
}
