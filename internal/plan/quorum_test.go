package plan_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/plan"
)

// States of a node's etcd for TestAssessQuorum.
func nodeSilent(name string) plan.Node { return plan.Node{Name: name, EverConfigured: true} }

func nodeNoLeader(name string) plan.Node {
	return plan.Node{
		Name: name, Answer: plan.AnswerMember, EverConfigured: true, EtcdData: plan.DataPresent, NoLeader: true,
		OwnAlarms: []string{"etcdserver: no leader"},
	}
}

func nodeHangs(name string) plan.Node {
	return plan.Node{Name: name, Answer: plan.AnswerMember, EverConfigured: true, EtcdData: plan.DataPresent, EtcdHangs: true}
}

func nodeStarting(name string) plan.Node {
	return plan.Node{Name: name, Answer: plan.AnswerMember, EverConfigured: true, EtcdData: plan.DataPresent}
}

func nodeWiped(name string) plan.Node {
	return plan.Node{Name: name, Answer: plan.AnswerMaintenance, EverConfigured: true}
}

func TestAssessQuorum(t *testing.T) {
	a, b, c := serving("a", 1, 1, 2, 3), serving("b", 2, 1, 2, 3), serving("c", 3, 1, 2, 3)
	alarmed := with(b, func(n *plan.Node) { n.Alarms = []string{"NOSPACE"} })

	for name, tc := range map[string]struct {
		nodes   []plan.Node
		want    plan.QuorumState
		missing string
		message string
	}{
		"all work":                      {[]plan.Node{a, b, c}, plan.QuorumHeld, "", ""},
		"two of three":                  {[]plan.Node{a, b, nodeSilent("c")}, plan.QuorumHeld, "", ""},
		"an alarm does not cost a vote": {[]plan.Node{a, alarmed, nodeSilent("c")}, plan.QuorumHeld, "", ""},
		"one left": {
			[]plan.Node{nodeNoLeader("a"), nodeSilent("b"), nodeSilent("c")}, plan.QuorumLost, "b c",
			"b, c are unreachable; 1 of 3 members is left, 2 are needed; power on or reconnect b, c; if they cannot come back",
		},
		"one left, started alone": {
			[]plan.Node{nodeHangs("a"), nodeSilent("b"), nodeSilent("c")}, plan.QuorumLost, "b c", "power on or reconnect b, c",
		},
		"one left, still starting": {
			[]plan.Node{nodeStarting("a"), nodeSilent("b"), nodeSilent("c")}, plan.QuorumUnknown, "b c", "b, c are " +
				"unreachable; it is unknown whether",
		},
		"one left, and it sees a leader": {
			[]plan.Node{a, nodeSilent("b"), nodeSilent("c")}, plan.QuorumUnknown, "b c", "it is unknown whether etcd has " +
				"quorum",
		},
		"all silent": {
			[]plan.Node{nodeSilent("a"), nodeSilent("b"), nodeSilent("c")}, plan.QuorumUnknown, "a b c", "a, b, c are " +
				"unreachable",
		},
		"one wiped, one silent": {
			[]plan.Node{nodeNoLeader("a"), nodeWiped("b"), nodeSilent("c")}, plan.QuorumLost, "c b",
			"c is unreachable, b has no etcd data any more; 1 of 3 members is left, 2 are needed; power on or reconnect c; " +
				"if it",
		},
		"two wiped": {
			[]plan.Node{nodeNoLeader("a"), nodeWiped("b"), nodeWiped("c")}, plan.QuorumLost, "b c", "; restore a backup with a TalosEtcdRestore",
		},
		"two wiped, one silent": {
			[]plan.Node{nodeSilent("a"), nodeWiped("b"), nodeWiped("c")}, plan.QuorumLost, "a b c", "0 of 3 members are left, 2 are needed; restore",
		},
		"an election": {
			[]plan.Node{nodeNoLeader("a"), nodeNoLeader("b"), nodeSilent("c")}, plan.QuorumNoLeader, "c", "a, b report no etcd leader",
		},
		"a network that is cut": {
			[]plan.Node{nodeNoLeader("a"), nodeNoLeader("b"), nodeNoLeader("c")}, plan.QuorumNoLeader, "", "check the network",
		},
		"the only node, starting":     {[]plan.Node{nodeStarting("a")}, plan.QuorumUnknown, "", "waiting for etcd on a"},
		"the only node, silent":       {[]plan.Node{nodeSilent("a")}, plan.QuorumUnknown, "a", "a is unreachable"},
		"a machine that never joined": {[]plan.Node{a, b, {Name: "c"}}, plan.QuorumHeld, "", ""},
		"two clusters":                {[]plan.Node{serving("a", 1, 1), serving("b", 2, 2)}, plan.QuorumUnknown, "", "it is unknown"},
		"nothing":                     {nil, plan.QuorumUnknown, "", "no control-plane node"},
	} {
		got := plan.AssessQuorum(tc.nodes)
		if got.State != tc.want || strings.Join(got.Missing, " ") != tc.missing || !strings.Contains(got.Message, tc.message) ||
			len(got.Message) >= 300 {
			t.Errorf("%s: %+v", name, got)
		}

		if (got.State == plan.QuorumHeld) != (got.Message == "") {
			t.Errorf("%s: the message is %q", name, got.Message)
		}
	}
}

// TestQuorumNeedsEvidence: whatever is known of a control plane, quorum is claimed only where a majority proves it, and
// its loss only where a majority does not.
func TestQuorumNeedsEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "size")
		members := make([]uint64, size)

		for i := range members {
			members[i] = uint64(i + 1)
		}

		states := []func(string) plan.Node{nodeSilent, nodeNoLeader, nodeHangs, nodeStarting, nodeWiped}
		works := 0

		var nodes []plan.Node

		for i, id := range members {
			name := string(rune('a' + i))

			if rapid.Bool().Draw(t, "works") {
				works++
				nodes = append(nodes, serving(name, id, members...))

				continue
			}

			nodes = append(nodes, rapid.SampledFrom(states).Draw(t, "state")(name))
		}

		got := plan.AssessQuorum(nodes)
		if held := works >= plan.Quorum(size); held != (got.State == plan.QuorumHeld) {
			t.Fatalf("%d of %d work: %+v", works, size, got)
		}

		// Somebody who sees a leader may be right, and so may those who are not heard.
		heard := slices.ContainsFunc(nodes, func(n plan.Node) bool { return n.NoLeader || n.EtcdHangs })
		wiped := len(slices.DeleteFunc(slices.Clone(nodes), func(n plan.Node) bool { return n.Answer != plan.AnswerMaintenance }))

		if got.State == plan.QuorumLost && (works > 0 || !heard && wiped < plan.Quorum(size)) {
			t.Fatalf("lost without evidence: %+v of %+v", got, nodes)
		}
	})
}
