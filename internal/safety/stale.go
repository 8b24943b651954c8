package safety

import "slices"

// Sightings are the moments, in Unix seconds, at which members that belong to no machine were first seen, by ID.
type Sightings map[uint64]int64

// SecondLook is how many seconds a member has to be nobody's before it is removed: a machine may be on its way into the
// list, or a member on its way to its node.
const SecondLook = 60

// Stale finds members that belong to no machine. It returns what has been seen until now, to be kept for the next look,
// and the one member that may be removed, 0 when there is none. It looks only while every machine that serves has the
// same list, and while nobody is unaccounted for: a silent machine whose member cannot be told may have any of them.
func Stale(nodes []Node, seen Sightings, now int64) (Sightings, uint64) {
	view, next := agreedView(nodes), Sightings{}
	if slices.ContainsFunc(nodes, func(n Node) bool { return unaccounted(nodes, n, view) }) {
		return next, 0
	}

	var ripe []uint64

	for _, m := range view {
		if len(holders(nodes, m)) > 0 {
			continue
		}

		first, known := seen[m.ID]
		if !known {
			first = now
		}

		// What a clock saw that was ahead counts from now, and not for as long as it was ahead.
		next[m.ID] = min(first, now)

		if now-first >= SecondLook {
			ripe = append(ripe, m.ID)
		}
	}

	if len(ripe) == 0 {
		return next, 0
	}

	return next, slices.Min(ripe)
}

// Suspects names those of the given machines that a member of etcd may belong to which no other one has: as long as
// nobody tells, it stays.
func Suspects(nodes []Node, machines []Node) []string {
	view := agreedView(nodes)

	var out []string

	for _, n := range machines {
		holds := func(m Member) bool { return mayHold(nodes, m, n.Name) }
		if unaccounted(nodes, n, view) || slices.ContainsFunc(view, holds) {
			out = append(out, n.Name)
		}
	}

	slices.Sort(out)

	return out
}

// unaccounted: the machine may have a member, and nobody can tell which one of the list it is: none is its own that is
// not another one's.
func unaccounted(nodes []Node, n Node, view []Member) bool {
	if !n.EverConfigured || n.Answer == AnswerMaintenance || n.EtcdData == DataAbsent {
		return false
	}

	// A node that answers and whose etcd does not serve may have joined again, under an ID that nobody knows yet.
	last := n.LastMember
	if n.Answer == AnswerMember && !n.Serves() {
		last = 0
	}

	return !slices.ContainsFunc(view, func(m Member) bool {
		return mayHold(nodes, m, n.Name) &&
			(n.MemberID == m.ID || last == m.ID || slices.Contains(m.PeerAddresses, n.Address))
	})
}
