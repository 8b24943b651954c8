package restore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// looks is the number of pieces of evidence that each property is tested with.
const looks = 50_000

// situation is the complete input of a decision.
type situation struct {
	options restore.Options
	record  restore.Record
	nodes   []restore.Node
}

func (s situation) decide() restore.Decision { return restore.Decide(s.options, s.record, s.nodes) }

func (s situation) String() string {
	text := fmt.Sprintf("%+v\n%+v", s.options, s.record)
	for _, n := range s.nodes {
		text += fmt.Sprintf("\n%+v", n)
	}

	return text
}

// eachSituation tests a property with random evidence, options and records.
func eachSituation(t *testing.T, check func(r *rand.Rand, s situation) string) {
	t.Helper()

	for i := range uint64(looks) {
		seed := *from + i
		r := rand.New(rand.NewPCG(seed, 13))
		s := randomSituation(r)

		if fault := check(r, s); fault != "" {
			t.Fatalf("seed %d: %s; the situation was\n%s\ngo test ./internal/decide/restore -run '^%s$' -args -seed %d", seed, fault, s,
				t.Name(), seed)
		}
	}
}

// steps of a restore; the important ones occur more often.
var steps = []v1alpha1.RestoreStep{
	"", v1alpha1.RestorePreflight, v1alpha1.RestorePreflight, v1alpha1.RestoreSaving, v1alpha1.RestoreSaving,
	v1alpha1.RestoreWiping, v1alpha1.RestoreWiping, v1alpha1.RestoreWiping, v1alpha1.RestoreWiping,
	v1alpha1.RestorePreparing, v1alpha1.RestorePreparing, v1alpha1.RestoreUploading, v1alpha1.RestoreUploading,
	v1alpha1.RestoreRecovering, v1alpha1.RestoreRecovering, v1alpha1.RestoreProving, v1alpha1.RestoreJoining,
	v1alpha1.RestoreJoining, v1alpha1.RestoreComplete, v1alpha1.RestoreStopped,
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// state changes a node to a state of one kind.
type state func(r *rand.Rand, nodes []restore.Node, n *restore.Node)

func isWorking(r *rand.Rand, nodes []restore.Node, n *restore.Node) {
	isDead(r, nodes, n)

	for i := range nodes {
		id := uint64(i + 1)
		n.Members = append(n.Members, safety.Member{ID: id, Name: nodes[i].Name})

		if nodes[i].Name == n.Name {
			n.MemberID = id
		}
	}

	n.Leader, n.EtcdRuns, n.RaftIndex = 1, true, one(r, uint64(10), 20, 30)
}

func isLeaderless(r *rand.Rand, nodes []restore.Node, n *restore.Node) {
	isDead(r, nodes, n)
	n.EtcdRuns, n.NoLeader = true, true
}

func isDead(_ *rand.Rand, _ []restore.Node, n *restore.Node) {
	*n = member(n.Name, withData)
}

func isFailed(_ *rand.Rand, _ []restore.Node, n *restore.Node) {
	*n = member(n.Name, withData)
	n.EtcdFailed, n.EtcdMessage = true, "expected sha256"
}

func isEmpty(_ *rand.Rand, _ []restore.Node, n *restore.Node) { *n = member(n.Name) }

func isIdle(r *rand.Rand, _ []restore.Node, n *restore.Node) {
	*n = member(n.Name)
	n.EtcdWaiting, n.EtcdFailed = false, r.IntN(2) == 0
}

func isBare(_ *rand.Rand, _ []restore.Node, n *restore.Node) {
	*n = restore.Node{Node: safety.Node{Name: n.Name, Address: n.Name, Answer: safety.AnswerMaintenance}}
}

func isSilent(_ *rand.Rand, _ []restore.Node, n *restore.Node) { mute(n) }

var states = []state{isWorking, isLeaderless, isDead, isFailed, isEmpty, isIdle, isBare, isSilent}

// usual returns the states that most nodes are in at a step.
func usual(step v1alpha1.RestoreStep) []state {
	switch step {
	case v1alpha1.RestorePreparing, v1alpha1.RestoreUploading:
		return []state{isEmpty, isEmpty, isEmpty, isIdle, isDead}
	case v1alpha1.RestoreRecovering:
		return []state{isEmpty, isDead, isFailed, isWorking, isIdle}
	case v1alpha1.RestoreProving, v1alpha1.RestoreJoining:
		return []state{isWorking, isWorking, isWorking, isEmpty}
	case v1alpha1.RestoreSaving:
		return []state{isWorking, isLeaderless, isDead}
	default:
		return []state{isWorking, isWorking, isLeaderless, isDead, isEmpty}
	}
}

func randomSituation(r *rand.Rand) situation {
	var s situation

	for i := range r.IntN(5) {
		s.nodes = append(s.nodes, restore.Node{Node: safety.Node{Name: "node-" + string(rune('a'+i))}})
	}

	step := one(r, steps...)
	base := one(r, usual(step)...)

	for i := range s.nodes {
		base(r, s.nodes, &s.nodes[i])

		if r.IntN(6) == 0 {
			one(r, states...)(r, s.nodes, &s.nodes[i])
		}
	}

	for range r.IntN(4) {
		if len(s.nodes) > 0 {
			disturb(r, s.nodes, &s.nodes[r.IntN(len(s.nodes))])
		}
	}

	// Unlisted machines come last; one may also be declared lost.
	if r.IntN(5) == 0 {
		z := restore.Node{Node: safety.Node{Name: "node-z"}}
		one(r, states...)(r, append(slices.Clone(s.nodes), z), &z)

		if z.Unlisted = true; r.IntN(4) == 0 {
			z.EtcdData = safety.DataUnknown
		}

		s.nodes = append(s.nodes, z)
	}

	if r.IntN(3) == 0 {
		agree(r, s.nodes)
	}

	s.options = restore.Options{
		Discard: r.IntN(4) > 0, Save: one[v1alpha1.LastSnapshotPolicy](r, "", "", "Require", "Try", "Skip"),
	}
	if r.IntN(8) == 0 {
		s.options.Lost = []string{one(r, "node-a", "node-b", "node-z")}
	}

	s.record = randomRecord(r, step, s.nodes)

	return s
}

// agree makes all serving nodes members of one etcd. Occasionally one has no member ID and is not a member.
func agree(r *rand.Rand, nodes []restore.Node) {
	var members []safety.Member

	none := r.IntN(20)

	for i := range nodes {
		if len(nodes[i].Members) > 0 {
			if nodes[i].MemberID = uint64(i + 1); i == none {
				nodes[i].MemberID = 0
			}

			members = append(members, safety.Member{ID: nodes[i].MemberID, Learner: nodes[i].Learner})
		}
	}

	for i := range nodes {
		if len(nodes[i].Members) > 0 {
			nodes[i].Members = members
		}
	}
}

// randomRecord returns a record that matches the nodes, or once did. Its times are at their limits.
func randomRecord(r *rand.Rand, step v1alpha1.RestoreStep, nodes []restore.Node) restore.Record {
	near := func(limit time.Duration) time.Duration {
		return one(r, 0, limit-time.Second, limit-1, limit, limit+1, limit+time.Second, 10*limit)
	}
	rec := restore.Record{
		Step: step, Size: one(r, int64(0), 8<<20-1, 8<<20, 80<<20), Machine: one(r, "node-a", "node-a", "node-b", "", "node-x"),
		Tries: one(r, 0, 1, 1, 1, 4, 5, 6), Asked: r.IntN(3) > 0, Saved: r.IntN(3) == 0, SaveFailures: r.IntN(5),
		Noted: near(time.Hour), Again: near(15 * time.Second), HadQuorum: r.IntN(3) == 0, Leaderless: near(15 * time.Second),
		Wipes: map[string]restore.Wipe{}, Boots: map[string]string{},
	}

	if r.IntN(3) > 0 {
		rec.Noted = 0
	}

	read := time.Duration(rec.Size>>23) * time.Second
	rec.Age, rec.Starting = near(30*time.Second+read), near(5*time.Minute+3*read)

	// Each kind of record contains no node, most nodes in this boot, most nodes in an earlier boot, or a mixture.
	wiped, kept := r.IntN(4), r.IntN(4)

	for _, n := range nodes {
		boot := func(kind int) string {
			switch {
			case r.IntN(8) == 0:
				return one(r, n.Boot, "another", "")
			case kind == 1, kind == 3 && r.IntN(2) == 0:
				return n.Boot
			}

			return "another"
		}

		if wiped > 0 && r.IntN(5) > 0 || r.IntN(8) == 0 {
			rec.Wipes[n.Name] = restore.Wipe{Boot: boot(wiped), Times: one(r, 1, 1, 1, 4, 5, 6)}
		}

		if kept > 0 && r.IntN(5) > 0 {
			rec.Boots[n.Name] = boot(kept)
		}

		if rec.Machine == n.Name && r.IntN(4) > 0 {
			rec.Boot = n.Boot
		}
	}

	if r.IntN(12) == 0 {
		rec.Wipes["node-x"] = restore.Wipe{Boot: "another", Times: 1}
	}

	return rec
}

// disturb changes one property of a node.
func disturb(r *rand.Rand, nodes []restore.Node, n *restore.Node) {
	flip := func(b *bool) { *b = !*b }

	switch r.IntN(26) {
	case 0:
		n.Boot = ""
	case 1, 2:
		n.Boot = "another"
	case 3, 4, 5:
		n.Config = one(r, restore.ConfigUnread, restore.ConfigTried, restore.ConfigSettled, restore.ConfigStaged)
	case 6, 7:
		n.Type = one(r, "", "init", "worker", "controlplane")
	case 8:
		n.Config, n.NextType = restore.ConfigStaged, one(r, "", "init", "worker", "controlplane")
	case 9, 10:
		flip(&n.TimeSynced)
	case 11:
		n.Foreign = r.IntN(3) == 0
	case 12, 13:
		flip(&n.Leaving)
	case 14:
		flip(&n.EtcdFailed)
	case 15:
		flip(&n.EtcdWaiting)
	case 16:
		n.EtcdData = safety.Data(r.IntN(3))
	case 17:
		if n.Answer = safety.Answer(r.IntN(3)); !speaks(*n) {
			n.Members = nil // only etcd reports a list
		}
	case 18:
		n.Leader = 0
	case 19:
		flip(&n.Learner)
	case 20:
		n.MemberID = uint64(r.IntN(6))
	case 21:
		if speaks(*n) {
			n.Members = append(slices.Clone(n.Members), safety.Member{ID: one(r, uint64(0), 1, 5, 9)})
		}
	case 22:
		n.Members = slices.Clone(n.Members)
		r.Shuffle(len(n.Members), func(i, j int) { n.Members[i], n.Members[j] = n.Members[j], n.Members[i] })
		n.Members = n.Members[:r.IntN(len(n.Members)+1)]
	case 23, 24:
		n.Leaving = true
		n.Config = one(r, restore.ConfigUnread, restore.ConfigTried, restore.ConfigSettled, restore.ConfigStaged)
		n.Type, n.NextType = one(r, "init", "controlplane"), one(r, "init", "controlplane")
	case 25:
		one(r, states...)(r, nodes, n)
		n.Leaving = r.IntN(2) == 0
	}
}
