package safety_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// threeMembers returns three healthy members; the second is the leader.
func threeMembers() []safety.Node {
	view := []safety.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}}

	var nodes []safety.Node
	for i, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, safety.Node{
			Name: name, Answer: safety.AnswerMember, EtcdData: safety.DataPresent, Members: view, MemberID: uint64(i + 1),
			Leader: 2, RaftIndex: 100_000, RaftApplied: 100_000,
		})
	}

	return nodes
}

func TestSnapshotSource(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(n []safety.Node)
		avoid  string
		want   string
		leader bool
		// message if no member is suitable.
		message  string
		noQuorum bool
	}{
		"a follower before the leader":       {want: "a"},
		"not the one where it failed":        {avoid: "a", want: "c"},
		"the leader when nobody else is fit": {change: func(n []safety.Node) { n[0].OwnAlarms, n[2].Answer = []string{"NOSPACE"}, safety.AnswerUnknown }, want: "b", leader: true},
		"the failed one when it is alone":    {change: func(n []safety.Node) { n[1].Answer, n[1].Members, n[2].Members = safety.AnswerUnknown, nil, nil }, avoid: "a", want: "a", noQuorum: true},
		"not a learner":                      {change: func(n []safety.Node) { n[0].Learner = true }, want: "c"},
		"not a learner of the others": {change: func(n []safety.Node) {
			n[1].Members = []safety.Member{{ID: 1, Learner: true}, {ID: 2}, {ID: 3}, {ID: 4}}
		}, want: "c"},
		"not with an alarm of its own": {change: func(n []safety.Node) { n[0].OwnAlarms = []string{"CORRUPT"} }, want: "c"},
		"an alarm of another one":      {change: func(n []safety.Node) { n[0].Alarms, n[1].OwnAlarms = []string{"NOSPACE"}, []string{"NOSPACE"} }, want: "a"},
		"not one that lags":            {change: func(n []safety.Node) { n[0].RaftApplied = 90_000 }, want: "c"},
		"a little behind":              {change: func(n []safety.Node) { n[0].RaftApplied = 99_000 }, want: "a"},
		"not in maintenance mode":      {change: func(n []safety.Node) { n[0].Answer = safety.AnswerMaintenance }, want: "c"},
		"not without etcd":             {change: func(n []safety.Node) { n[0].Members = nil }, want: "c"},
		"not one that was removed":     {change: func(n []safety.Node) { n[0].Members = []safety.Member{{ID: 2}, {ID: 3}} }, want: "c"},
		"without quorum": {change: func(n []safety.Node) {
			for i := range n {
				n[i].Leader, n[i].OwnAlarms = 0, []string{"etcdserver: no leader"}
			}

			n[1].Answer, n[1].Members = safety.AnswerUnknown, nil
		}, want: "a", noQuorum: true},
		"without quorum, and so without a member list": {change: func(n []safety.Node) {
			for i := range n {
				n[i].Leader, n[i].NoLeader, n[i].OwnAlarms = 0, true, []string{"etcdserver: no leader"}
				n[i].Members = nil
			}

			n[0].Answer, n[0].NoLeader = safety.AnswerUnknown, false
		}, want: "b", noQuorum: true},
		"not one that was cut off from the others": {change: func(n []safety.Node) {
			n[0].Leader, n[0].NoLeader, n[0].Members = 0, true, nil
		}, want: "c"},
		"two clusters": {change: func(n []safety.Node) { n[0].Members, n[0].MemberID = []safety.Member{{ID: 9}}, 9 }, message: "two different etcd clusters"},
		"nobody": {change: func(n []safety.Node) {
			n[0].Answer, n[1].Members, n[2].Learner = safety.AnswerUnknown, nil, true
		}, message: "a is unreachable; b has no responding etcd member; c does not vote yet"},
	} {
		nodes := threeMembers()
		if tc.change != nil {
			tc.change(nodes)
		}

		// The order of the evidence does not matter.
		for range 2 {
			got := safety.SnapshotSource(nodes, tc.avoid)
			if got.Node.Name != tc.want || got.Leader != tc.leader || !strings.Contains(got.Message, tc.message) ||
				(tc.want == "") != (got.Message != "") || tc.want != "" && got.Quorum == tc.noQuorum {
				t.Errorf("%s: %s, leader %t, quorum %t, %q", name, got.Node.Name, got.Leader, got.Quorum, got.Message)
			}

			nodes[0], nodes[2] = nodes[2], nodes[0]
		}
	}

	if got := safety.SnapshotSource(nil, ""); got.Message == "" {
		t.Errorf("without nodes: %+v", got)
	}
}
