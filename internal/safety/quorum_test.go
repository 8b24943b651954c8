package safety_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// States of a node's etcd for TestAssessQuorum.
func nodeSilent(name string) safety.Node { return safety.Node{Name: name, EverConfigured: true} }

func nodeNoLeader(name string) safety.Node {
	return safety.Node{
		Name: name, Answer: safety.AnswerMember, EverConfigured: true, EtcdData: safety.DataPresent, NoLeader: true,
		OwnAlarms: []string{"etcdserver: no leader"},
	}
}

func nodeHangs(name string) safety.Node {
	return safety.Node{Name: name, Answer: safety.AnswerMember, EverConfigured: true, EtcdData: safety.DataPresent, EtcdHangs: true}
}

func nodeStarting(name string) safety.Node {
	return safety.Node{Name: name, Answer: safety.AnswerMember, EverConfigured: true, EtcdData: safety.DataPresent}
}

func nodeWiped(name string) safety.Node {
	return safety.Node{Name: name, Answer: safety.AnswerMaintenance, EverConfigured: true}
}

func TestAssessQuorum(t *testing.T) {
	a, b, c := serving("a", 1, 1, 2, 3), serving("b", 2, 1, 2, 3), serving("c", 3, 1, 2, 3)
	alarmed := with(b, func(n *safety.Node) { n.Alarms = []string{"NOSPACE"} })

	for name, tc := range map[string]struct {
		nodes   []safety.Node
		want    safety.QuorumState
		missing string
		message string
	}{
		"all work":                      {[]safety.Node{a, b, c}, safety.QuorumHeld, "", ""},
		"two of three":                  {[]safety.Node{a, b, nodeSilent("c")}, safety.QuorumHeld, "", ""},
		"an alarm does not cost a vote": {[]safety.Node{a, alarmed, nodeSilent("c")}, safety.QuorumHeld, "", ""},
		"one left": {
			[]safety.Node{nodeNoLeader("a"), nodeSilent("b"), nodeSilent("c")},
			safety.QuorumLost, "b c",
			"b, c are unreachable; 1 of 3 members is left, 2 are needed; power on or reconnect b, c; if they cannot come back",
		},
		"one left, started alone": {
			[]safety.Node{nodeHangs("a"), nodeSilent("b"), nodeSilent("c")}, safety.QuorumLost, "b c", "power on or reconnect b, c",
		},
		"one left, still starting": {
			[]safety.Node{nodeStarting("a"), nodeSilent("b"), nodeSilent("c")}, safety.QuorumUnknown, "b c", "b, c are " +
				"unreachable; it is unknown whether",
		},
		"one left, and it sees a leader": {
			[]safety.Node{a, nodeSilent("b"), nodeSilent("c")}, safety.QuorumUnknown, "b c", "it is unknown whether etcd has " +
				"quorum",
		},
		"all silent": {
			[]safety.Node{nodeSilent("a"), nodeSilent("b"), nodeSilent("c")}, safety.QuorumUnknown, "a b c", "a, b, c are " +
				"unreachable",
		},
		"one wiped, one silent": {
			[]safety.Node{nodeNoLeader("a"), nodeWiped("b"), nodeSilent("c")},
			safety.QuorumLost, "c b",
			"c is unreachable, b has no etcd data any more; 1 of 3 members is left, 2 are needed; power on or reconnect c; " +
				"if it",
		},
		"two wiped": {
			[]safety.Node{nodeNoLeader("a"), nodeWiped("b"), nodeWiped("c")}, safety.QuorumLost, "b c", "; restore a backup with a TalosEtcdRestore",
		},
		"two wiped, one silent": {
			[]safety.Node{nodeSilent("a"), nodeWiped("b"), nodeWiped("c")}, safety.QuorumLost, "a b c", "0 of 3 members are left, 2 are needed; restore",
		},
		"an election": {
			[]safety.Node{nodeNoLeader("a"), nodeNoLeader("b"), nodeSilent("c")}, safety.QuorumNoLeader, "c", "a, b report no etcd leader",
		},
		"a network that is cut": {
			[]safety.Node{nodeNoLeader("a"), nodeNoLeader("b"), nodeNoLeader("c")}, safety.QuorumNoLeader, "", "check the network",
		},
		"the only node, starting":     {[]safety.Node{nodeStarting("a")}, safety.QuorumUnknown, "", "waiting for etcd on a"},
		"the only node, silent":       {[]safety.Node{nodeSilent("a")}, safety.QuorumUnknown, "a", "a is unreachable"},
		"a machine that never joined": {[]safety.Node{a, b, {Name: "c"}}, safety.QuorumHeld, "", ""},
		"two clusters":                {[]safety.Node{serving("a", 1, 1), serving("b", 2, 2)}, safety.QuorumUnknown, "", "it is unknown"},
		"nothing":                     {nil, safety.QuorumUnknown, "", "no control-plane node"},
	} {
		got := safety.AssessQuorum(tc.nodes)
		if got.State != tc.want || strings.Join(got.Missing, " ") != tc.missing || !strings.Contains(got.Message, tc.message) ||
			len(got.Message) >= 300 {
			t.Errorf("%s: %+v", name, got)
		}

		if (got.State == safety.QuorumHeld) != (got.Message == "") {
			t.Errorf("%s: the message is %q", name, got.Message)
		}
	}
}

// TestQuorumNeedsEvidence: whatever the evidence about a control plane is, quorum is reported only if a majority proves
// it, and its loss only if a majority is known to be missing.
func TestQuorumNeedsEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "size")
		members := make([]uint64, size)

		for i := range members {
			members[i] = uint64(i + 1)
		}

		states := []func(string) safety.Node{nodeSilent, nodeNoLeader, nodeHangs, nodeStarting, nodeWiped}
		works := 0

		var nodes []safety.Node

		for i, id := range members {
			name := string(rune('a' + i))

			if rapid.Bool().Draw(t, "works") {
				works++
				nodes = append(nodes, serving(name, id, members...))

				continue
			}

			nodes = append(nodes, rapid.SampledFrom(states).Draw(t, "state")(name))
		}

		got := safety.AssessQuorum(nodes)
		if held := works >= safety.Quorum(size); held != (got.State == safety.QuorumHeld) {
			t.Fatalf("%d of %d work: %+v", works, size, got)
		}

		// A node that sees a leader may be right, and so may unreachable nodes.
		heard := slices.ContainsFunc(nodes, func(n safety.Node) bool { return n.NoLeader || n.EtcdHangs })
		wiped := len(slices.DeleteFunc(slices.Clone(nodes), func(n safety.Node) bool { return n.Answer != safety.AnswerMaintenance }))

		if got.State == safety.QuorumLost && (works > 0 || !heard && wiped < safety.Quorum(size)) {
			t.Fatalf("lost without evidence: %+v of %+v", got, nodes)
		}
	})
}
