package safety_test

import (
	"slices"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// The decisions of the safety package are also checked against their evidence by independent rules: a decision that is
// right by chance is not accepted.

// permits judges a permitted disruption.
func (h *history) permits(nodes []safety.Node, busy string, d safety.Disruption) {
	names, addresses, members := map[string]bool{}, map[string]bool{}, map[uint64]bool{}
	known := 0

	for _, n := range nodes {
		names[n.Name], addresses[n.Address] = true, true

		if n.MemberID != 0 {
			known++
			members[n.MemberID] = true
		}
	}

	if len(names) < len(nodes) || len(addresses) < len(nodes) || len(members) < known {
		h.fail("%s of %s although two machines pass for one: %+v", d.Act, d.Machine, nodes)
	}

	if d.Act == safety.ActReplace {
		h.replaces(nodes, d)

		return
	}

	if busy != "" && busy != d.Machine {
		h.fail("%s of %s while %s is busy", d.Act, d.Machine, busy)
	}

	i := slices.IndexFunc(nodes, func(n safety.Node) bool { return n.Name == d.Machine })
	if i < 0 || nodes[i].Answer == safety.AnswerUnknown || nodes[i].Answer == safety.AnswerMember && nodes[i].EtcdData == safety.DataUnknown {
		h.fail("%s of %s, of which nothing is known: %+v", d.Act, d.Machine, nodes)

		return
	}

	if !claimsWork(nodes, nodes[i]) {
		h.others(nodes, d)

		return
	}

	for _, n := range nodes {
		switch {
		case n.RaftIndex == catchesUp && slices.ContainsFunc(nodes, func(o safety.Node) bool { return o.RaftIndex == upToDate }):
			h.fail("%s of %s although %s is behind: %+v", d.Act, d.Machine, n.Name, nodes)
		case n.Answer != safety.AnswerMember || len(n.Members) != len(nodes) || n.Leader == 0 || len(n.Alarms) > 0 || n.Learner:
			h.fail("%s of %s although %s is not known to be healthy: %+v", d.Act, d.Machine, n.Name, nodes)
		}
	}

	if d.Act == safety.ActRemove && len(nodes[i].Members) == 1 {
		h.fail("the last member is removed: %+v", nodes)
	}
}

// claimsWork reports whether the machine claims to vote, and no responding node has a different list of the same
// length.
func claimsWork(nodes []safety.Node, n safety.Node) bool {
	return n.Leader != 0 && !n.Learner && !slices.ContainsFunc(nodes, func(o safety.Node) bool {
		return len(o.Members) > len(n.Members) || len(o.Members) == len(n.Members) && ids(o) != ids(n)
	})
}

// ids identifies the member list and the votes, regardless of the order.
func ids(n safety.Node) (sum uint64) {
	for _, m := range n.Members {
		if sum += m.ID * m.ID; m.Learner {
			sum += 1_000_000
		}
	}

	return sum
}

// others: without the machine, more than half of the longest list votes and sees a leader. A single machine may always
// be rebooted.
func (h *history) others(nodes []safety.Node, d safety.Disruption) {
	longest, voting := map[uint64]bool{}, 0

	for _, n := range nodes {
		if len(n.Members) > len(longest) {
			clear(longest)

			for _, m := range n.Members {
				longest[m.ID] = !m.Learner
			}
		}
	}

	voters := 0

	for id, votes := range longest {
		if !votes {
			continue
		}

		voters++

		if slices.ContainsFunc(nodes, func(n safety.Node) bool {
			return n.Name != d.Machine && n.MemberID == id && n.Leader != 0 && !n.Learner && len(n.Members) == len(longest)
		}) {
			voting++
		}
	}

	alone := d.Act == safety.ActReboot && len(nodes) == 1 && voters == 0
	if !alone && (voters == 0 || voting <= voters/2) {
		h.fail("%s of %s, and %d of %d others vote: %+v", d.Act, d.Machine, voting, voters, nodes)
	}
}

// replaces: the nodes that see a leader have the same member list with the member on it, no node reports to be that
// member, and enough of the voting members respond.
func (h *history) replaces(nodes []safety.Node, d safety.Disruption) {
	var first []safety.Member

	voting := 0

	for _, n := range nodes {
		if n.MemberID == d.Member && len(n.Members) > 0 {
			h.fail("member %d of %s answers and is replaced: %+v", d.Member, n.Name, nodes)
		}

		if n.Answer != safety.AnswerMember || n.Leader == 0 || len(n.Members) == 0 {
			continue
		}

		if !n.Learner {
			voting++
		}

		if first == nil {
			first = n.Members
		}

		if len(n.Members) != len(first) || !slices.ContainsFunc(n.Members, func(m safety.Member) bool { return m.ID == d.Member }) {
			h.fail("member %d is replaced, and %s has another list than others: %+v", d.Member, n.Name, nodes)
		}
	}

	voters := slices.DeleteFunc(slices.Clone(first), func(m safety.Member) bool { return m.Learner })
	if voting <= len(voters)/2 {
		h.fail("member %d is replaced without quorum: %+v", d.Member, nodes)
	}

	for _, n := range nodes {
		mine := n.MemberID == d.Member || n.MemberID == 0 && n.LastMember == d.Member
		lives := n.Answer == safety.AnswerUnknown && !d.Gone || n.Answer == safety.AnswerMember && n.EtcdData != safety.DataAbsent

		if mine && (lives || n.Name != d.Machine && !sharedLast(nodes, n)) {
			h.fail("member %d is replaced for %q and may come back on %s: %+v", d.Member, d.Machine, n.Name, nodes)
		}
	}
}

// sharedLast reports whether another machine had the same last member.
func sharedLast(nodes []safety.Node, n safety.Node) bool {
	return slices.ContainsFunc(nodes, func(o safety.Node) bool { return o.Name != n.Name && o.LastMember == n.LastMember })
}

// bootstraps judges the choice of a node for a bootstrap.
func (h *history) bootstraps(nodes []safety.Node, d safety.BootstrapDecision, rec safety.BootstrapRecord) {
	for _, n := range nodes {
		if n.EverConfigured && (n.Answer != safety.AnswerMember || n.EtcdData != safety.DataAbsent) || len(n.Members) > 0 {
			h.fail("%s is bootstrapped, and %s may have data: %+v", d.Machine, n.Name, nodes)
		}

		if n.Name == d.Machine && (n.Unlisted || !n.EtcdWaiting || n.EtcdData != safety.DataAbsent) {
			h.fail("%s is bootstrapped, and does not wait for that: %+v", d.Machine, nodes)
		}
	}

	switch other := rec.Machine != "" && rec.Machine != d.Machine; {
	case rec.Established && !rec.EarlierLife && !rec.AllowNewEtcd:
		h.fail("%s is bootstrapped, and the cluster had an etcd: %+v", d.Machine, rec)
	case other && rec.Recent:
		h.fail("%s is bootstrapped a moment after %s", d.Machine, rec.Machine)
	case other && !rec.EarlierLife && !rec.AllowNewEtcd:
		h.fail("%s is bootstrapped, and %s was chosen", d.Machine, rec.Machine)
	}
}

// stale judges a member that was found to be orphaned.
func (h *history) stale(nodes []safety.Node, id uint64, before safety.Sightings) {
	if first, seen := before[id]; !seen || h.e.step*second-first < 60 {
		h.fail("member %d is stale at once: %v", id, before)
	}

	for _, n := range nodes {
		if n.MemberID == id || n.MemberID == 0 && n.LastMember == id && (n.Answer != safety.AnswerMember || n.Serves()) {
			h.fail("member %d is stale, and %s has it: %+v", id, n.Name, nodes)
		}
	}
}

// fences judges the handling of an abandoned machine that has returned.
func (h *history) fences(g entry, found *hardware, step safety.FenceStep, doubt safety.FenceDoubt) {
	if (step == safety.FenceAskPerson) != (doubt != safety.DoubtNone) {
		h.fail("%s: step %d with doubt %d", found, step, doubt)
	}

	switch {
	case step == safety.FenceAskCluster:
		h.fail("%s: Kubernetes is to be asked twice", found)
	case step != safety.FenceWipe:
	case g.hold:
		h.fail("%s is wiped, and was to be left alone", found)
	case g.approved:
	case g.hw != found:
		h.fail("%s is wiped for %s", found, g.hw)
	case h.e.running() == nil || found.kubelet():
		h.fail("%s is wiped, and its Node may be ready", found)
	}
}
