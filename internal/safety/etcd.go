package safety

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// EtcdHealth is the health of a cluster's etcd according to its nodes.
type EtcdHealth struct {
	// Healthy: every control-plane node is a healthy voting member, all agree on the member list, and the list has no
	// other members.
	Healthy bool
	// Quorum: the voting members that respond are a majority.
	Quorum bool
	// Members is the number of members on the list, including learners.
	Members int
	// Voting names the nodes that are healthy voting members.
	Voting []string
	// Reason is a condition reason.
	Reason string
	// Message for users.
	Message string
}

// AssessEtcd assesses the health of etcd from the evidence about every control-plane node.
func AssessEtcd(nodes []Node) EtcdHealth {
	if a, b, split := splitViews(nodes); split {
		return EtcdHealth{
			Reason:  v1alpha1.ReasonEtcdSplit,
			Message: fmt.Sprintf("%s and %s run two different etcd clusters", a, b),
		}
	}

	view := largestView(nodes)
	h := EtcdHealth{Members: len(view), Reason: v1alpha1.ReasonEtcdUnhealthy}

	var faults []string

	for _, n := range nodes {
		if fault := nodeFault(n, view); fault != "" {
			faults = append(faults, n.Name+" "+fault)

			continue
		}

		h.Voting = append(h.Voting, n.Name)
	}

	for _, m := range view {
		if isStray(nodes, view, m) {
			faults = append(faults, strayMember(nodes, m))
		}
	}

	slices.Sort(h.Voting)
	slices.Sort(faults)

	// A member with an alarm still votes.
	h.Quorum = len(view) > 0 && working(nodes, view, -1) >= Quorum(voters(view))
	h.Healthy = len(faults) == 0 && h.Quorum

	if h.Healthy {
		h.Reason = v1alpha1.ReasonEtcdHealthy
		h.Message = fmt.Sprintf("%d voting members agree", len(h.Voting))

		return h
	}

	h.Message = strings.Join(faults, "; ")

	return h
}

// isStray reports whether a member has to be named as one that no node reports. One that belongs to a single node
// without a member of its own does not: the fault of that node explains it, and has been named. It explains one member
// only: of several, the one that the node last reported, and none if it is not known which one that was.
func isStray(nodes []Node, view []Member, m Member) bool {
	if slices.ContainsFunc(nodes, func(n Node) bool { return n.MemberID == m.ID }) {
		return false
	}

	owners := holders(nodes, m)
	if len(owners) != 1 {
		return true
	}

	another := slices.ContainsFunc(view, func(o Member) bool {
		others := holders(nodes, o)

		return o.ID != m.ID && len(others) == 1 && others[0].Name == owners[0].Name
	})

	return another && owners[0].LastMember != m.ID
}

// strayMember describes a member that no node reports: where it is announced, and which machines may have it.
func strayMember(nodes []Node, m Member) string {
	text := "member " + FormatMemberID(m.ID) + announced(m) + " is not the member of any node that responds"

	if owners := holders(nodes, m); len(owners) > 0 {
		return text + ": it last belonged to " + names(owners)
	}

	may := filter(nodes, func(n Node) bool { return n.mayVote() && n.MemberID == 0 && !n.holdsNothing() })
	if len(may) == 0 {
		return text + ", and no listed machine can have it"
	}

	return text + ": it may be that of " + names(may)
}

// announced returns the name and the address that a member announced, as far as they are known.
func announced(m Member) string {
	switch address := strings.Join(m.PeerAddresses, ", "); {
	case m.Name == "" && address == "":
		return ""
	case m.Name == "":
		return " at " + address
	case address == "":
		return " (" + m.Name + ")"
	default:
		return " (" + m.Name + " at " + address + ")"
	}
}

// Quorum is the number of voters that a cluster of n voters needs for a quorum.
func Quorum(n int) int { return n/2 + 1 }

// nodeFault describes what is wrong with the etcd of a node; empty if nothing is.
func nodeFault(n Node, view []Member) string {
	switch {
	case n.Answer == AnswerMaintenance:
		return "is in maintenance mode"
	case n.Answer == AnswerUnknown:
		return "is unreachable"
	case n.NoLeader:
		return "reports no etcd leader"
	case !n.Serves():
		return "has no responding etcd member"
	case !sameMembers(n.Members, view):
		return "reports a different member list"
	case n.MemberID == 0 || !n.knows(n.MemberID):
		return "is not on its own member list"
	case n.Learner:
		return "does not vote yet"
	case n.Leader == 0:
		return "reports no leader"
	case len(n.Alarms) > 0:
		return "raises " + strings.Join(n.Alarms, ", ")
	}

	return ""
}

func largestView(nodes []Node) []Member {
	var view []Member

	for _, n := range nodes {
		if len(n.Members) > len(view) {
			view = n.Members
		}
	}

	return view
}

func voters(view []Member) int {
	count := 0

	for _, m := range view {
		if !m.Learner {
			count++
		}
	}

	return count
}

func sameMembers(a, b []Member) bool {
	if len(a) != len(b) {
		return false
	}

	for _, m := range a {
		if !slices.ContainsFunc(b, func(o Member) bool { return o.ID == m.ID && o.Learner == m.Learner }) {
			return false
		}
	}

	return true
}
