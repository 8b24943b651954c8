package safety_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestMemberLag: what a member lacks is named, and what others lack is not waited for.
func TestMemberLag(t *testing.T) {
	a, b, c := serving("a", 1, 1, 2, 3), serving("b", 2, 1, 2, 3), serving("c", 3, 1, 2, 3)
	at := func(n safety.Node, index uint64) safety.Node {
		return with(n, func(n *safety.Node) { n.RaftIndex = index })
	}
	learner := with(c, func(n *safety.Node) { n.Learner = true })
	alarms := func(n safety.Node, own bool) safety.Node {
		return with(n, func(n *safety.Node) {
			if n.Alarms = []string{"NOSPACE"}; own {
				n.OwnAlarms = n.Alarms
			}
		})
	}

	for name, tc := range map[string]struct {
		nodes []safety.Node
		want  string
	}{
		"all work":                     {[]safety.Node{a, b, c}, ""},
		"the only one":                 {[]safety.Node{serving("c", 3, 3)}, ""},
		"others are silent":            {[]safety.Node{nodeSilent("a"), nodeSilent("b"), c}, ""},
		"another one hangs":            {[]safety.Node{a, nodeHangs("b"), c}, ""},
		"another one lags":             {[]safety.Node{at(a, 5000), b, at(c, 5000)}, ""},
		"another one raises an alarm":  {[]safety.Node{alarms(a, true), b, alarms(c, false)}, ""},
		"a little behind":              {[]safety.Node{at(a, 1500), b, at(c, 500)}, ""},
		"far behind":                   {[]safety.Node{at(a, 1501), b, at(c, 500)}, "etcd: c has not caught up with a"},
		"it has no leader":             {[]safety.Node{a, b, nodeNoLeader("c")}, "etcd: c reports no etcd leader"},
		"it hangs":                     {[]safety.Node{a, b, nodeHangs("c")}, "etcd: c has no responding etcd member"},
		"it starts":                    {[]safety.Node{a, b, nodeStarting("c")}, "etcd: c has no responding etcd member"},
		"it starts, alone":             {[]safety.Node{nodeStarting("c")}, "etcd: c has no responding etcd member"},
		"it is silent":                 {[]safety.Node{a, b, nodeSilent("c")}, "etcd: c is unreachable"},
		"it does not vote":             {[]safety.Node{a, b, learner}, "etcd: c does not vote yet"},
		"it raises an alarm":           {[]safety.Node{a, b, alarms(c, true)}, "etcd: c raises NOSPACE"},
		"the others have another list": {[]safety.Node{a, b, serving("c", 3, 3)}, "different member list"},
		"it was not asked":             {[]safety.Node{a, b}, "c has not been asked"},
	} {
		if got := safety.MemberLag(tc.nodes, "c"); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
