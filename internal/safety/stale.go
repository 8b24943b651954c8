package safety

import "slices"

// Sightings are the times, in Unix seconds, at which orphaned members were first observed, by ID.
type Sightings map[uint64]int64

// SecondLook is how many seconds a member must be orphaned before it is removed: its machine may be about to be listed,
// or the member may be about to start on its node.
const SecondLook = 60

// Stale finds orphaned members. It returns the sightings so far, which the caller keeps for the next reconciliation,
// and the one member that may be removed, 0 if there is none. It finds members only while all serving machines have the
// same list and every machine is accounted for: an unreachable machine whose member is unknown may have any of them.
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

		// A sighting by a clock that was ahead counts from now on, so that a wrong clock does not delay the removal.
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

// Suspects returns the names of those machines that may have an etcd member which no other machine has: such a member
// stays until a machine reports it.
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

// unaccounted reports whether the machine may have a member that cannot be identified on the list: no member is its
// own, or only one that also belongs to another machine.
func unaccounted(nodes []Node, n Node, view []Member) bool {
	if !n.EverConfigured || n.Answer == AnswerMaintenance || n.EtcdData == DataAbsent {
		return false
	}

	// A node that responds while its etcd does not serve may have joined again, under an ID that is not known yet.
	last := n.LastMember
	if n.Answer == AnswerMember && !n.Serves() {
		last = 0
	}

	return !slices.ContainsFunc(view, func(m Member) bool {
		return mayHold(nodes, m, n.Name) &&
			(n.MemberID == m.ID || last == m.ID || slices.Contains(m.PeerAddresses, n.Address))
	})
}
