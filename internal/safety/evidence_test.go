package safety_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// looks is the number of random pieces of evidence that each property is tested with.
const looks = 20_000

// eachEvidence calls check with random evidence of control planes: healthy ones with a few faults, some of which
// contradict each other. The seed in a failure replays only that evidence.
func eachEvidence(t *testing.T, check func(r *rand.Rand, nodes []safety.Node) string) {
	t.Helper()

	for i := range uint64(looks) {
		seed := *from + i
		r := rand.New(rand.NewPCG(seed, 11))
		nodes := randomEvidence(r)

		if fault := check(r, nodes); fault != "" {
			text := ""
			for _, n := range nodes {
				text += fmt.Sprintf("\n%+v", n)
			}

			t.Fatalf("seed %d: %s; the evidence was%s", seed, fault, text)
		}
	}
}

func randomEvidence(r *rand.Rand) []safety.Node {
	nodes := controlPlane(r.IntN(6))
	if len(nodes) > 0 && r.IntN(3) == 0 {
		for i := range nodes {
			nodes[i] = empty(nodes[i])
		}
	}

	if len(nodes) == 0 {
		return nodes
	}

	for range r.IntN(5) {
		disturb(r, nodes, &nodes[r.IntN(len(nodes))])
	}

	return nodes
}

// empty returns a node that waits for a bootstrap.
func empty(n safety.Node) safety.Node {
	return safety.Node{
		Name: n.Name, Address: n.Address, Answer: safety.AnswerMember, EverConfigured: true, EtcdData: safety.DataAbsent,
		EtcdWaiting: true,
	}
}

// disturb changes one property of a node.
func disturb(r *rand.Rand, nodes []safety.Node, n *safety.Node) {
	other := nodes[r.IntN(len(nodes))]
	ids := []uint64{0, 0, 1, 2, 3, 4, 5, 9}
	alarms := [][]string{nil, {"NOSPACE"}, {"etcdserver: no leader"}, {"NOSPACE", "etcdserver: no leader"}}
	behind := []uint64{0, 3999, 4000, 4001, 4999, 5000, 5001}[r.IntN(7)]
	flip := func(b *bool) { *b = !*b }

	switch r.IntN(49) {
	case 0:
		*n = safety.Node{Name: n.Name, Address: n.Address, EverConfigured: n.EverConfigured, LastMember: n.LastMember, Unlisted: n.Unlisted}
	case 1:
		n.Answer = safety.Answer(r.IntN(3))
	case 2:
		flip(&n.EverConfigured)
	case 3:
		flip(&n.Unlisted)
	case 4:
		n.EtcdData = safety.Data(r.IntN(3))
	case 5:
		flip(&n.EtcdWaiting)
	case 6:
		flip(&n.ImageMissing)
	case 7:
		n.EtcdSince = []int64{0, -1, 7, 8}[r.IntN(4)]
	case 8, 9:
		n.MemberID = ids[r.IntN(len(ids))]
	case 10:
		n.Leader = ids[r.IntN(len(ids))]
	case 11:
		flip(&n.Learner)
	case 12:
		n.Alarms = alarms[r.IntN(4)]
		n.OwnAlarms = n.Alarms
	case 13:
		flip(&n.NoLeader)
	case 14:
		flip(&n.EtcdHangs)
	case 15, 16:
		n.LastMember = ids[r.IntN(len(ids))]
	case 17:
		n.RaftIndex = 10_000 - behind
	case 18:
		n.RaftApplied = 10_000 - behind
	case 19:
		n.Name = other.Name
	case 20:
		n.Address = []string{other.Address, "", "192.168.0.9"}[r.IntN(3)]
	case 21:
		n.Members, n.Leader, n.MemberID = nil, 0, []uint64{0, n.MemberID}[r.IntN(2)]
	case 22:
		n.Members = other.Members
	case 23, 24:
		n.Members = randomMembers(r, n.Members)
	case 28:
		*n = safety.Node{Name: n.Name, Address: n.Address, Answer: safety.AnswerMaintenance} // it was never configured
	case 29:
		*n = empty(*n)
		n.EtcdWaiting = r.IntN(2) == 0 // it waits for a bootstrap, or to join
	case 30, 31:
		// It was wiped, or has lost its data, and is recorded as a member; or it had no member and is unreachable now.
		*n = empty(*n)
		n.Answer, n.EtcdWaiting, n.LastMember = safety.Answer(r.IntN(3)), false, ids[r.IntN(len(ids))]
	case 32, 33:
		// Its etcd is starting, and its address differs from the one that its member announced; or it is unreachable.
		n.Members, n.Leader, n.MemberID, n.LastMember, n.Address = nil, 0, 0, n.MemberID, "192.168.0.9"
		n.Answer = safety.Answer(r.IntN(3))
	case 34, 41:
		// Both are recorded with the same member, because one of them once responded at the other's address.
		n.Members, n.Leader, n.MemberID, n.LastMember, n.Answer = nil, 0, 0, other.MemberID, safety.AnswerUnknown
		for i := range nodes {
			if o := &nodes[i]; o.Name == other.Name && r.IntN(2) == 0 {
				o.Members, o.Leader, o.MemberID, o.LastMember, o.Answer = nil, 0, 0, other.MemberID, safety.Answer(r.IntN(2))
			}
		}
	case 35:
		// One machine under two names.
		name := n.Name
		*n = other
		n.Name = name

		for i := range nodes {
			if nodes[i].Address == n.Address {
				nodes[i].EtcdSince = 7
			}
		}
	case 36:
		// Its directory is empty, and its etcd still reports a member ID.
		*n = safety.Node{
			Name: n.Name, Address: n.Address, Answer: n.Answer, EverConfigured: true, EtcdData: safety.DataAbsent,
			MemberID: n.MemberID,
		}
	case 37, 38:
		replaced(r, nodes, n)
	case 39:
		// It reports a list without its own member, which was announced at another address. No machine may have a member of
		// the list.
		n.MemberID, n.LastMember, n.Address = 0, n.MemberID, "192.168.0.9"
		members := append(slices.Clone(n.Members), safety.Member{ID: 9, PeerAddresses: []string{"10.9.9.9"}})

		for i := range nodes {
			if nodes[i].Serves() && !has(n.Members, 9) {
				nodes[i].Members = members
			}
		}
	case 40:
		// The addresses are not known yet.
		for i := range nodes {
			if o := &nodes[i]; o.Name == other.Name || o.Name == n.Name {
				*o = safety.Node{Name: o.Name, EverConfigured: o.EverConfigured, LastMember: o.MemberID}
			}
		}
	case 42, 43, 44, 45, 46, 47, 48:
		learning(r, nodes, n)
	case 25, 26, 27:
		// All nodes report the same list, which does not match their own members.
		members := randomMembers(r, n.Members)
		for i := range nodes {
			if nodes[i].Serves() {
				nodes[i].Members = members
			}
		}
	}
}

// learning: a machine has a learner, this one or another, or there is one that announced an address of no machine. The
// machine does not say which member it has, has none, or its member does not work. A voting member may be dead.
func learning(r *rand.Rand, nodes []safety.Node, n *safety.Node) {
	own := n.MemberID
	id, stray := own, r.IntN(2) == 0

	if r.IntN(2) == 0 {
		id = nodes[r.IntN(len(nodes))].MemberID
	}

	for i := range nodes {
		left := slices.Clone(nodes[i].Members)
		if stray && len(left) > 0 && !has(left, 9) {
			left = append(left, safety.Member{ID: 9, PeerAddresses: []string{"10.9.9.9"}, Learner: true})
		}

		for j := range left {
			left[j].Learner = left[j].Learner || !stray && left[j].ID == id
		}

		nodes[i].Learner = nodes[i].Learner || !stray && nodes[i].MemberID == id && r.IntN(4) > 0

		if slices.ContainsFunc(left, func(m safety.Member) bool { return !m.Learner }) {
			nodes[i].Members = left
		}
	}

	switch r.IntN(5) {
	case 0:
		n.Leader, n.NoLeader = 0, true
	case 1:
		*n = empty(*n)
		n.EtcdWaiting = false
	default:
		n.Members, n.Leader, n.MemberID, n.LastMember = nil, 0, 0, []uint64{0, own}[r.IntN(2)]
	}

	if o := &nodes[r.IntN(len(nodes))]; o.Name != n.Name && r.IntN(2) == 0 {
		o.Members, o.Leader, o.MemberID, o.LastMember, o.Answer = nil, 0, 0, o.MemberID, safety.AnswerUnknown
	}
}

// replaced: the member of a machine was removed while its etcd is starting, and others may be unreachable.
func replaced(r *rand.Rand, nodes []safety.Node, n *safety.Node) {
	id := n.MemberID
	n.Members, n.Leader, n.MemberID, n.LastMember = nil, 0, 0, id

	for i := range nodes {
		o := &nodes[i]
		if r.IntN(3) == 0 && o.Name != n.Name {
			o.Members, o.Leader, o.MemberID, o.LastMember, o.Answer = nil, 0, 0, o.MemberID, safety.AnswerUnknown
		}

		left := slices.DeleteFunc(slices.Clone(o.Members), func(m safety.Member) bool { return m.ID == id })
		if slices.ContainsFunc(left, func(m safety.Member) bool { return !m.Learner }) {
			o.Members = left
		}
	}
}

// randomMembers returns another list: longer, shorter, with a changed address or vote, or that of another cluster. As
// in every etcd, at least one member votes and all IDs are unique.
func randomMembers(r *rand.Rand, members []safety.Member) []safety.Member {
	out := changedMembers(r, members)
	seen := map[uint64]bool{}

	for _, m := range out {
		if seen[m.ID] {
			return members
		}

		seen[m.ID] = true
	}

	if !slices.ContainsFunc(out, func(m safety.Member) bool { return !m.Learner }) {
		return members
	}

	return out
}

func changedMembers(r *rand.Rand, members []safety.Member) []safety.Member {
	out := slices.Clone(members)

	if len(out) == 0 || r.IntN(4) == 0 {
		return append(out, safety.Member{ID: 9, PeerAddresses: []string{"10.9.9.9"}, Learner: r.IntN(2) == 0})
	}

	i := r.IntN(len(out))

	switch r.IntN(5) {
	case 0:
		out = slices.Delete(out, i, i+1)
	case 1:
		out[i].Learner = !out[i].Learner
	case 2:
		out[i].PeerAddresses = []string{"192.168.0.1"}
	case 3:
		out[i].ID = 9
	case 4:
		for i := range out {
			out[i].ID += 20
		}
	}

	return out
}
