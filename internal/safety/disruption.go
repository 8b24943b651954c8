package safety

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Act is the kind of a disruption of a control-plane node.
type Act string

// Acts.
const (
	// ActReboot makes the node unavailable for minutes; its member stays on the list and its data on the disk. Upgrades
	// and configuration changes with a reboot count as reboots.
	ActReboot Act = "Reboot"
	// ActRemove removes the member of a live node permanently; the node is wiped afterwards.
	ActRemove Act = "Remove"
	// ActReplace removes the member of a dead node. It is the only disruption that is allowed while a node is missing.
	ActReplace Act = "Replace"
)

// Disruption is one step that a caller intends to take.
type Disruption struct {
	// Act is the kind of the disruption.
	Act Act
	// Machine that is disrupted; empty for an orphaned member.
	Machine string
	// Member is the ID of the member that is removed; needed for ActReplace only.
	Member uint64
	// Gone: the machine's remediation timeout has expired, or a user confirmed that the machine will not come back.
	// Without this, an unreachable node may be dead or merely cut off from the operator.
	Gone bool
	// Backup that must exist before a working member is disrupted.
	Backup Backup
}

// Action is the result of a decision.
type Action int

// Actions.
const (
	// Wait: the step has to wait; the reason says what is missing.
	Wait Action = iota
	// Proceed with this one step.
	Proceed
	// Refuse: waiting does not help; user action is required.
	Refuse
)

// Verdict is a decision with its reason.
type Verdict struct {
	// Action that was decided.
	Action Action
	// Reason is a condition reason.
	Reason string
	// Message for users.
	Message string
}

// maxLag is how many raft entries a member may be behind before it counts as still catching up.
const maxLag = 1000

// Permit decides whether one disruption of a control plane may start now. Nodes is the evidence about every
// control-plane node, read live. Busy names the machine whose disruption was recorded and has not ended, if there is
// one.
//
// A voluntary disruption (Reboot, Remove) of a working member requires a control plane without any fault: all nodes
// respond and have the same view, and all members vote, without alarms or lag. With three or more members, the rest
// then keeps quorum. With one or two members, a reboot always interrupts etcd; it is allowed because the data remains
// on the disk.
//
// If a backup is demanded, the disruption of a working member is blocked until a fresh backup exists. This is checked
// last, so that a backup is made only for a disruption that nothing else blocks.
//
// A node whose member does not work does not contribute to the quorum: it may be rebooted, and with Gone replaced,
// if the others have quorum without it. A dead member therefore never deadlocks a control plane that has quorum.
// Members that lag do not count among the others, because the member may begin to work between the evidence and the
// act. A learner counts as a voting member already where it is rebooted, because it becomes one by itself; beside a
// single member that would only be one of the interruptions that two members have with any reboot.
func Permit(nodes []Node, busy string, d Disruption) Verdict {
	// Removing a dead member costs no vote: if there is quorum to remove it, there is quorum afterwards. While the dead
	// member remains, it may prevent the busy node from coming back, because etcd accepts only one learner at a time.
	if busy != "" && busy != d.Machine && d.Act != ActReplace {
		return waitFor(v1alpha1.ReasonDisruptionInProgress,
			"waiting until %s is done: one control-plane node at a time", busy)
	}

	if a, b, split := splitViews(nodes); split {
		return refuseTo(v1alpha1.ReasonEtcdSplit, "%s and %s run two different etcd clusters; decide which one is right "+
			"and reset the other node", a, b)
	}

	if twice := duplicate(nodes); twice != "" {
		return refuseTo(v1alpha1.ReasonEtcdUnhealthy, "the evidence contradicts itself: %s", twice)
	}

	if d.Act == ActReplace {
		return permitReplace(nodes, d)
	}

	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == d.Machine })
	if i < 0 {
		return waitFor(v1alpha1.ReasonWaitingForEvidence, "there is no evidence about %s", d.Machine)
	}

	view := largestView(nodes)

	if !nodeWorks(nodes[i], view) {
		return permitBroken(nodes, view, i, d)
	}

	return permitWorking(nodes, view, d)
}

// permitWorking decides about a node whose member works: all other members have to work, too.
func permitWorking(nodes []Node, view []Member, d Disruption) Verdict {
	health := AssessEtcd(nodes)
	if !health.Healthy {
		return waitFor(v1alpha1.ReasonEtcdUnhealthy, "waiting for etcd to become healthy before disrupting %s: %s",
			d.Machine, health.Message)
	}

	if behind := lagging(nodes); behind != "" {
		return waitFor(v1alpha1.ReasonEtcdUnhealthy, "%s is blocked until %s has caught up", d.Machine, behind)
	}

	if d.Act == ActRemove && voters(view) < 2 {
		return refuseTo(v1alpha1.ReasonLastMember, "%s holds the last member of etcd; to give the cluster up, delete it",
			d.Machine)
	}

	if v, held := d.Backup.holds(d.Machine); held {
		return v
	}

	return Verdict{Action: Proceed, Reason: v1alpha1.ReasonSafe, Message: "all control-plane nodes agree and are healthy"}
}

// permitBroken decides about a node whose member does not work: the others need quorum without it.
func permitBroken(nodes []Node, view []Member, target int, d Disruption) Verdict {
	n := nodes[target]

	if n.Answer == AnswerUnknown {
		return waitFor(v1alpha1.ReasonNodeUnreachable, "%s is unreachable; its etcd state is unknown", n.Name)
	}

	if n.EtcdData == DataUnknown && n.Answer == AnswerMember {
		return waitFor(v1alpha1.ReasonWaitingForEvidence, "%s does not report whether it has etcd data", n.Name)
	}

	if len(view) == 0 && d.Act == ActReboot && len(nodes) == 1 {
		// No other member can be lost, and a reboot may repair this etcd.
		return Verdict{Action: Proceed, Reason: v1alpha1.ReasonSafe, Message: n.Name + " is the only control-plane node"}
	}

	have, need := caughtUp(nodes, view, target), Quorum(voters(view))
	if d.Act == ActReboot && voters(view) > 1 && mayVote(nodes, view, n) {
		need = Quorum(voters(view) + 1)
	}

	if len(view) > 0 && have < need && working(nodes, view, target) >= need {
		others := slices.Delete(slices.Clone(nodes), target, target+1)

		return waitFor(v1alpha1.ReasonQuorumAtRisk, "%s is blocked until %s has caught up", n.Name, lagging(others))
	}

	if len(view) == 0 || have < need {
		return waitFor(v1alpha1.ReasonQuorumAtRisk, "%s is blocked: without it %d of %d needed voting members work; "+
			"bring %s back", n.Name, have, need, idle(nodes, view))
	}

	return Verdict{Action: Proceed, Reason: v1alpha1.ReasonSafe, Message: "the others have quorum without " + n.Name}
}

// mayVote reports whether a machine has a learner. That becomes a voting member by itself, possibly between the
// evidence and the act, and is missed from then on. A learner may refuse to say which member it is, and announce
// another address: one that belongs to no other machine may be that of a machine that does not say what it has.
func mayVote(nodes []Node, view []Member, n Node) bool {
	return slices.ContainsFunc(view, func(m Member) bool {
		return m.Learner && (mayHold(nodes, m, n.Name) ||
			n.MemberID == 0 && !n.holdsNothing() && len(holders(nodes, m)) == 0)
	})
}

// permitReplace decides about the removal of a member whose node is dead, or of an orphaned member.
func permitReplace(nodes []Node, d Disruption) Verdict {
	view := agreedView(nodes)
	i := slices.IndexFunc(view, func(m Member) bool { return m.ID == d.Member })
	if i < 0 {
		return waitFor(v1alpha1.ReasonWaitingForEvidence, "%s", unplaced(nodes, view, d))
	}

	owners := holders(nodes, view[i])
	if len(owners) > 0 && !slices.ContainsFunc(owners, func(n Node) bool { return n.Name == d.Machine }) {
		return waitFor(v1alpha1.ReasonMemberAlive, "member %s belongs to %s", FormatMemberID(d.Member), names(owners))
	}

	for _, n := range owners {
		if v, held := holdDead(n, view[i], d.Gone && n.Name == d.Machine); held {
			return v
		}
	}

	have, need := working(nodes, view, -1), Quorum(voters(view))
	if have < need {
		return refuseTo(v1alpha1.ReasonQuorumAtRisk, "etcd has no quorum: %d of %d needed voting members work, and "+
			"without quorum no member can be removed; bring %s back, or restore a backup", have, need, idle(nodes, view))
	}

	return Verdict{Action: Proceed, Reason: v1alpha1.ReasonSafe, Message: "the others have quorum without member " +
		FormatMemberID(d.Member)}
}

// unplaced says why the member to be removed cannot be identified.
func unplaced(nodes []Node, view []Member, d Disruption) string {
	what := "member " + FormatMemberID(d.Member)

	switch {
	case d.Member == 0:
		what = "which member of etcd is that of " + d.Machine + " is not known"
	case d.Machine != "":
		what += " of " + d.Machine + " cannot be removed"
	default:
		what += " cannot be removed"
	}

	serving := filter(nodes, Node.Serves)

	switch {
	case len(serving) == 0:
		return what + ": no etcd member responds; bring " + idle(nodes, nil) + " back, or restore a backup"
	case len(view) == 0:
		return what + ": " + names(serving) + " report different member lists"
	case working(nodes, view, -1) < Quorum(voters(view)):
		others := filter(nodes, func(n Node) bool { return n.Name != d.Machine })

		return what + ": no quorum confirms the member list of " + names(serving) + "; bring " + idle(others, view) +
			" back, or restore a backup"
	}

	return what + ": it is not on the member list of " + names(serving)
}

// idle returns the names of the nodes whose members do not work.
func idle(nodes []Node, view []Member) string {
	out := filter(nodes, func(n Node) bool { return !nodeWorks(n, view) })
	if len(out) == 0 {
		return "the missing members"
	}

	return names(out)
}

// holdDead reports whether a node that a member may belong to blocks the removal of the member.
func holdDead(n Node, m Member, gone bool) (Verdict, bool) {
	switch {
	case n.MemberID == m.ID && n.Serves():
		return refuseTo(v1alpha1.ReasonMemberAlive, "member %s runs on %s and responds", FormatMemberID(m.ID), n.Name), true
	case n.Answer == AnswerMaintenance:
		// The disk is empty, so the member cannot come back.
		return Verdict{}, false
	case n.Answer == AnswerMember && n.EtcdData == DataAbsent && n.MemberID == 0:
		// The member cannot come back either; the node may join again under a new ID.
		return Verdict{}, false
	case !gone:
		return waitFor(v1alpha1.ReasonNodeUnreachable, "%s may come back, and its member with it", n.Name), true
	case n.Answer == AnswerMember:
		return waitFor(v1alpha1.ReasonMemberAlive, "%s responds and has etcd data: its member may come back", n.Name), true
	}

	return Verdict{}, false
}

// holders returns the nodes that a member may belong to: the node that reports its ID, else the nodes that last
// reported it, else the nodes at the address that the member announced. Names are not used because they may repeat. A
// node that reports another member has only that one, whichever member it had before its address changed.
func holders(nodes []Node, m Member) []Node {
	for _, belongs := range []func(Node) bool{
		func(n Node) bool { return n.MemberID == m.ID },
		func(n Node) bool { return n.MemberID == 0 && n.LastMember == m.ID },
		func(n Node) bool { return n.MemberID == 0 && slices.Contains(m.PeerAddresses, n.Address) },
	} {
		if found := filter(nodes, belongs); len(found) > 0 {
			return found
		}
	}

	return nil
}

// mayHold reports whether a member may belong to a machine.
func mayHold(nodes []Node, m Member, machine string) bool {
	return slices.ContainsFunc(holders(nodes, m), func(n Node) bool { return n.Name == machine })
}

// MemberOf returns the ID of the member that belongs to a machine, according to the nodes that respond. It returns 0 if
// there is none, or if the nodes disagree.
func MemberOf(nodes []Node, machine string) uint64 {
	for _, m := range agreedView(nodes) {
		if mayHold(nodes, m, machine) {
			return m.ID
		}
	}

	return 0
}

// Gone reports whether a machine is known to have no member: at least one node serves, all serving nodes agree on the
// list, and every member on it belongs to another node. A member that cannot be assigned may be the machine's own,
// unless the machine has no etcd data. A list that no quorum confirms may be outdated, such as that of a node that was
// cut off while it was the leader: a machine may have joined since then. Contradictory evidence proves nothing. If two
// machines report the same member, its owner is unknown. The same applies if the last member of the machine is now
// reported by another one: they may be one machine that responds at both addresses.
func Gone(nodes []Node, machine string) bool {
	view := agreedView(nodes)
	if len(view) == 0 || duplicate(nodes) != "" {
		return false
	}

	var own Node
	if i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == machine }); i >= 0 {
		own = nodes[i]
	}

	if !own.holdsNothing() && working(nodes, view, -1) < Quorum(voters(view)) {
		return false
	}

	return !slices.ContainsFunc(view, func(m Member) bool {
		owners := holders(nodes, m)

		switch {
		case mayHold(nodes, m, machine):
			return true
		case own.holdsNothing():
			return false
		case len(owners) == 0 || own.LastMember == m.ID:
			return true
		}

		return own.untold() && owners[0].MemberID != m.ID
	})
}

// holdsNothing reports whether the node has stated that it has no etcd data.
func (n Node) holdsNothing() bool {
	return n.Answer == AnswerMaintenance || n.Answer == AnswerMember && n.EtcdData == DataAbsent
}

// untold reports whether the node responds but has never reported which member it has, if any.
func (n Node) untold() bool {
	return n.Answer == AnswerMember && n.MemberID == 0 && n.LastMember == 0
}

// agreedView returns the member list if all responding nodes have the same one, otherwise nil.
func agreedView(nodes []Node) []Member {
	var view []Member

	for _, n := range nodes {
		switch {
		case !n.Serves():
		case view == nil:
			view = n.Members
		case !sameMembers(view, n.Members):
			return nil
		}
	}

	return view
}

// working counts the working voting members, excluding one node.
func working(nodes []Node, view []Member, except int) int {
	count := 0

	for i, n := range nodes {
		if i != except && nodeWorks(n, view) {
			count++
		}
	}

	return count
}

// caughtUp counts the working voting members that are not far behind the most advanced one, excluding one node.
func caughtUp(nodes []Node, view []Member, except int) int {
	var furthest uint64

	for i, n := range nodes {
		if i != except {
			furthest = max(furthest, n.RaftIndex)
		}
	}

	count := 0

	for i, n := range nodes {
		if i != except && nodeWorks(n, view) && n.RaftIndex+maxLag >= furthest {
			count++
		}
	}

	return count
}

// nodeWorks reports whether the node's member votes and sees a leader. A member with an alarm still votes.
func nodeWorks(n Node, view []Member) bool {
	n.Alarms = nil

	return nodeFault(n, view) == ""
}

// duplicate finds contradictory evidence: two machines with the same name, address or member.
func duplicate(nodes []Node) string {
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			switch {
			case a.Name == b.Name:
				return "two machines are named " + a.Name
			case a.Address != "" && a.Address == b.Address:
				return fmt.Sprintf("%s and %s have the same address", a.Name, b.Name)
			case a.MemberID != 0 && a.MemberID == b.MemberID:
				return fmt.Sprintf("%s and %s report the same etcd member ID", a.Name, b.Name)
			}
		}
	}

	return sameMachine(nodes)
}

// lagging returns the names of the nodes that are far behind the most advanced one.
func lagging(nodes []Node) string {
	var furthest uint64
	for _, n := range nodes {
		furthest = max(furthest, n.RaftIndex)
	}

	behind := filter(nodes, func(n Node) bool { return n.RaftIndex+maxLag < furthest })

	return names(behind)
}

// Order sorts machines into the order of their disruption: broken ones first, the etcd leader last, otherwise in the
// given order.
func Order(nodes []Node, machines []string) []string {
	view := largestView(nodes)

	rank := func(machine string) int {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == machine })

		switch {
		case i < 0:
			return 1
		case nodeFault(nodes[i], view) != "":
			return 0
		case nodes[i].Leader == nodes[i].MemberID && nodes[i].MemberID != 0:
			return 2
		}

		return 1
	}

	out := slices.Clone(machines)
	slices.SortStableFunc(out, func(a, b string) int { return rank(a) - rank(b) })

	return out
}

// Whole reports whether a disruption of a machine has ended: the etcd of its node has no fault, or the machine is not
// among the nodes.
func Whole(nodes []Node, machine string) bool {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == machine })

	return i < 0 || nodeFault(nodes[i], largestView(nodes)) == ""
}

func waitFor(reason, format string, args ...any) Verdict {
	return Verdict{Action: Wait, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func refuseTo(reason, format string, args ...any) Verdict {
	return Verdict{Action: Refuse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// String returns the name of an action, for logs and tests.
func (a Action) String() string {
	return strings.Split("Wait Proceed Refuse", " ")[a]
}
