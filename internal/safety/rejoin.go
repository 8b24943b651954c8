package safety

import "slices"

// MemberLag says why the etcd member of a machine does not take part in etcd as it should after a reboot, as the end of
// a sentence; empty if it does: it is on the member list, votes, sees a leader, raises no alarm, and is not far behind
// the most advanced member. What other members lack is not of interest: that is no fault of this machine.
func MemberLag(nodes []Node, machine string) string {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == machine })
	if i < 0 {
		return "etcd, about which " + machine + " has not been asked"
	}

	own := nodes[i]
	own.Alarms = own.OwnAlarms

	if fault := nodeFault(own, largestView(nodes)); fault != "" {
		return "etcd: " + machine + " " + fault
	}

	for _, n := range nodes {
		if own.RaftIndex+maxLag < n.RaftIndex {
			return "etcd: " + machine + " has not caught up with " + n.Name
		}
	}

	return ""
}
