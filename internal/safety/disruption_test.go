package safety_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// controlPlane returns n healthy members with the IDs 1 to n; the first one is the leader.
func controlPlane(n int) []safety.Node {
	var (
		nodes   []safety.Node
		members []safety.Member
	)

	for i := range n {
		members = append(members, safety.Member{ID: uint64(i + 1), PeerAddresses: []string{address(i)}})
	}

	for i := range n {
		nodes = append(nodes, safety.Node{
			Name: string(rune('a' + i)), Address: address(i), Answer: safety.AnswerMember, EverConfigured: true,
			EtcdData: safety.DataPresent, MemberID: uint64(i + 1), Leader: 1, Members: members, RaftIndex: 5000,
		})
	}

	return nodes
}

func address(i int) string { return "10.0.0." + string(rune('1'+i)) }

func dead(n safety.Node) safety.Node {
	return safety.Node{Name: n.Name, Address: n.Address, EverConfigured: true}
}

func wiped(n safety.Node) safety.Node {
	n = dead(n)
	n.Answer = safety.AnswerMaintenance

	return n
}

// permitCase modifies a healthy control plane and requests one disruption.
type permitCase struct {
	name   string
	size   int
	change func([]safety.Node)
	busy   string
	want   safety.Disruption
	action safety.Action
	reason string
}

func at(i int, change func(*safety.Node)) func([]safety.Node) {
	return func(n []safety.Node) { change(&n[i]) }
}

func reboot(machine string) safety.Disruption {
	return safety.Disruption{Act: safety.ActReboot, Machine: machine}
}

func remove(machine string) safety.Disruption {
	return safety.Disruption{Act: safety.ActRemove, Machine: machine}
}

func replace(machine string, id uint64, gone bool) safety.Disruption {
	return safety.Disruption{Act: safety.ActReplace, Machine: machine, Member: id, Gone: gone}
}

var voluntary = []permitCase{
	{"all well", 3, nil, "", reboot("b"), safety.Proceed, "Safe"},
	{"one node alone", 1, nil, "", reboot("a"), safety.Proceed, "Safe"},
	{"two nodes", 2, nil, "", reboot("a"), safety.Proceed, "Safe"},
	{"another one is busy", 3, nil, "c", reboot("b"), safety.Wait, "DisruptionInProgress"},
	{"busy itself", 3, nil, "b", reboot("b"), safety.Proceed, "Safe"},
	{"another one is silent", 3, at(2, func(n *safety.Node) { *n = dead(*n) }), "", reboot("b"), safety.Wait, "EtcdUnhealthy"},
	{"another one is silent, of five", 5, at(2, func(n *safety.Node) { *n = dead(*n) }), "", reboot("b"), safety.Wait, "EtcdUnhealthy"},
	{"another one raises an alarm", 3, at(2, func(n *safety.Node) { n.Alarms = []string{"NOSPACE"} }), "", reboot("b"), safety.Wait, "EtcdUnhealthy"},
	{"another one does not vote", 3, at(2, func(n *safety.Node) { n.Learner = true }), "", reboot("b"), safety.Wait, "EtcdUnhealthy"},
	{"another one reports no leader", 3, at(2, func(n *safety.Node) { n.Leader = 0 }), "", reboot("b"), safety.Wait, "EtcdUnhealthy"},
	{"another one lags", 3, at(2, func(n *safety.Node) { n.RaftIndex = 10 }), "", reboot("b"), safety.Wait, "EtcdUnhealthy"},
	{"another one sees another list", 3, at(2, func(n *safety.Node) { n.Members = n.Members[:2] }), "", reboot("b"), safety.Wait, "EtcdUnhealthy"},
	{"another cluster", 3, at(2, func(n *safety.Node) {
		n.MemberID, n.Members = 9, []safety.Member{{ID: 9}}
	}), "", reboot("b"), safety.Refuse, "EtcdSplit"},
	{"one name twice", 3, at(2, func(n *safety.Node) { n.Name = "a" }), "", reboot("b"), safety.Refuse, "EtcdUnhealthy"},
	{"one address twice", 3, at(2, func(n *safety.Node) { n.Address = address(0) }), "", reboot("b"), safety.Refuse, "EtcdUnhealthy"},
	{"one member twice", 3, at(2, func(n *safety.Node) { n.MemberID = 1 }), "", reboot("b"), safety.Refuse, "EtcdUnhealthy"},
	{"an unknown machine", 3, nil, "", reboot("x"), safety.Wait, "WaitingForEvidence"},
	{"the target is silent", 3, at(1, func(n *safety.Node) { *n = dead(*n) }), "", reboot("b"), safety.Wait, "NodeUnreachable"},
	{"the target's etcd is down", 3, at(1, func(n *safety.Node) { n.Members, n.MemberID = nil, 0 }), "", reboot("b"), safety.Proceed, "Safe"},
	{"the target's etcd is down, and another lags", 3, func(n []safety.Node) {
		n[1].Members, n[1].MemberID = nil, 0
		n[2].RaftIndex = 10
	}, "", safety.Disruption{Act: safety.ActRemove, Machine: "b"}, safety.Wait, "QuorumAtRisk"},
	{"the target's etcd is down, and another is silent", 3, func(n []safety.Node) {
		n[1].Members, n[1].MemberID = nil, 0
		n[2] = dead(n[2])
	}, "", reboot("b"), safety.Wait, "QuorumAtRisk"},
	{"the target learns", 4, learns, "", reboot("d"), safety.Proceed, "Safe"},
	{"the target learns, and another is silent", 4, func(n []safety.Node) {
		learns(n)
		n[2] = dead(n[2])
	}, "", reboot("d"), safety.Wait, "QuorumAtRisk"},
	{"a learner is removed, and another is silent", 4, func(n []safety.Node) {
		learns(n)
		n[2] = dead(n[2])
	}, "", remove("d"), safety.Proceed, "Safe"},
	{"a learner at an unknown address may be that of the target, and another is silent", 4, func(n []safety.Node) {
		learns(n)
		elsewhere(n)
		n[2] = dead(n[2])
	}, "", reboot("d"), safety.Wait, "QuorumAtRisk"},
	{"a learner at an unknown address, and the target has no data", 4, func(n []safety.Node) {
		learns(n)
		elsewhere(n)
		n[3].EtcdData = safety.DataAbsent
		n[2] = dead(n[2])
	}, "", reboot("d"), safety.Proceed, "Safe"},
	{"a learner of another machine, and the target's etcd is down", 4, func(n []safety.Node) {
		learns(n)
		n[2].Members, n[2].MemberID = nil, 0
	}, "", reboot("c"), safety.Proceed, "Safe"},
	{"the target learns beside a single member", 2, learns, "", reboot("b"), safety.Proceed, "Safe"},
	{"the target does not say what it holds", 3, at(1, func(n *safety.Node) {
		n.Members, n.MemberID, n.EtcdData = nil, 0, safety.DataUnknown
	}), "", reboot("b"), safety.Wait, "WaitingForEvidence"},
	{"the only node, whose etcd is down", 1, at(0, func(n *safety.Node) { n.Members, n.MemberID = nil, 0 }), "", reboot("a"), safety.Proceed, "Safe"},
	{"remove one of three", 3, nil, "", remove("c"), safety.Proceed, "Safe"},
	{"remove one of two", 2, nil, "", remove("b"), safety.Proceed, "Safe"},
	{"remove the last one", 1, nil, "", remove("a"), safety.Refuse, "LastMember"},
}

// learns makes the last node a learner, which does not report its member list.
func learns(n []safety.Node) {
	last := len(n) - 1
	for i := range n {
		n[i].Members = slices.Clone(n[i].Members)
		n[i].Members[last].Learner = true
	}

	n[last].Members, n[last].MemberID = nil, 0
}

// elsewhere gives the last member a peer address that is not the address of its node.
func elsewhere(n []safety.Node) {
	last := len(n) - 1
	for i := range n[:last] {
		n[i].Members[last].PeerAddresses = []string{"10.9.9.9"}
	}
}

// twice: member 3 was the last member of two of five machines, b and c.
func twice(n []safety.Node) {
	n[1], n[2] = dead(n[1]), dead(n[2])
	n[1].LastMember, n[2].LastMember = 3, 3
}

// deadMembers reproduce cluster-api-control-plane-provider-talos 237 and 262, and omni 3146, each of which is a
// deadlock.
var deadMembers = []permitCase{
	{"silent, may come back", 3, at(2, func(n *safety.Node) { *n = dead(*n) }), "", replace("c", 3, false), safety.Wait, "NodeUnreachable"},
	{"silent and given up", 3, at(2, func(n *safety.Node) { *n = dead(*n) }), "", replace("c", 3, true), safety.Proceed, "Safe"},
	{"wiped", 3, at(2, func(n *safety.Node) { *n = wiped(*n) }), "", replace("c", 3, false), safety.Proceed, "Safe"},
	{"it died during its own reboot", 3, at(2, func(n *safety.Node) { *n = dead(*n) }), "c", replace("c", 3, true), safety.Proceed, "Safe"},
	{"a learner died while another one is busy", 3, at(2, func(n *safety.Node) { *n = dead(*n) }), "b", replace("c", 3, true), safety.Proceed, "Safe"},
	{"two of five dead", 5, func(n []safety.Node) { n[3], n[4] = dead(n[3]), dead(n[4]) }, "", replace("d", 4, true), safety.Proceed, "Safe"},
	{"three of five dead", 5, func(n []safety.Node) { n[2], n[3], n[4] = dead(n[2]), dead(n[3]), dead(n[4]) }, "", replace("d", 4, true), safety.Refuse, "QuorumAtRisk"},
	{"one of two dead", 2, at(1, func(n *safety.Node) { *n = dead(*n) }), "", replace("b", 2, true), safety.Refuse, "QuorumAtRisk"},
	{"a survivor raises an alarm", 3, func(n []safety.Node) { n[2] = dead(n[2]); n[0].Alarms = []string{"NOSPACE"} }, "", replace("c", 3, true), safety.Proceed, "Safe"},
	{"it lives", 3, nil, "", replace("c", 3, true), safety.Refuse, "MemberAlive"},
	{"it starts", 3, at(2, func(n *safety.Node) { n.Members, n.MemberID = nil, 0 }), "", replace("c", 3, true), safety.Wait, "MemberAlive"},
	{"it lost its data and waits to join", 3, at(2, func(n *safety.Node) {
		n.Members, n.MemberID, n.EtcdData = nil, 0, safety.DataAbsent
	}), "", replace("c", 3, false), safety.Proceed, "Safe"},
	{"another silent machine had it, too", 5, twice, "", replace("c", 3, true), safety.Wait, "NodeUnreachable"},
	{"another empty machine had it, too", 5, func(n []safety.Node) { twice(n); n[1] = with(wiped(n[1]), func(n *safety.Node) { n.LastMember = 3 }) }, "", replace("b", 3, false), safety.Wait, "NodeUnreachable"},
	{"the ID of somebody else", 3, at(2, func(n *safety.Node) { *n = dead(*n) }), "", replace("c", 2, true), safety.Wait, "MemberAlive"},
	{"on no list", 3, nil, "", replace("c", 7, true), safety.Wait, "WaitingForEvidence"},
	{"the lists differ", 3, func(n []safety.Node) { n[2] = dead(n[2]); n[1].Members = n[1].Members[:2] }, "", replace("c", 3, true), safety.Wait, "WaitingForEvidence"},
	{"nobody's member", 3, func(n []safety.Node) {
		for i := range n {
			n[i].Members = append(slices.Clone(n[i].Members), safety.Member{ID: 9, PeerAddresses: []string{"10.9.9.9"}})
		}
	}, "", replace("", 9, false), safety.Proceed, "Safe"},
}

func TestPermit(t *testing.T) {
	for _, tc := range slices.Concat(voluntary, deadMembers) {
		t.Run(strings.ReplaceAll(string(tc.want.Act)+"/"+tc.name, " ", "_"), func(t *testing.T) {
			nodes := controlPlane(tc.size)
			if tc.change != nil {
				tc.change(nodes)
			}

			got := safety.Permit(nodes, tc.busy, tc.want)
			if got.Action != tc.action || got.Reason != tc.reason || got.Message == "" {
				t.Errorf("got %s, %s: %s; want %s, %s", got.Action, got.Reason, got.Message, tc.action, tc.reason)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	nodes := controlPlane(3)
	nodes[2].Learner = true

	if got := safety.Order(nodes, []string{"a", "b", "c"}); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("broken first, the leader last: %v", got)
	}
}

func TestMemberOf(t *testing.T) {
	nodes := controlPlane(3)
	nodes[2] = dead(nodes[2])

	for machine, want := range map[string]uint64{"a": 1, "c": 3, "x": 0} {
		if got := safety.MemberOf(nodes, machine); got != want {
			t.Errorf("the member of %s is %d, not %d", machine, got, want)
		}
	}

	// The member announced the address of another interface.
	nodes[2].Address, nodes[2].LastMember = "192.168.0.3", 3
	if got := safety.MemberOf(nodes, "c"); got != 3 {
		t.Errorf("the member that the machine had before is %d", got)
	}
}

// TestGone: a machine counts as having no member only if every member belongs to a node, or the machine is empty.
func TestGone(t *testing.T) {
	removed := func() []safety.Node {
		nodes := controlPlane(3)
		for i := range nodes {
			nodes[i].Members = nodes[0].Members[:2]
		}

		nodes[2] = with(dead(nodes[2]), func(n *safety.Node) { n.Address, n.LastMember = "192.168.0.3", 0 })

		return nodes
	}
	// The peer addresses are on another network, and the records about the machines are lost.
	unplaced := func(c safety.Node) []safety.Node {
		nodes := controlPlane(3)
		nodes[1], nodes[2] = safety.Node{Name: "b", Address: "192.168.0.2", EverConfigured: true}, c

		return nodes
	}

	// Machine c also responds at the address of a, and all boards have the same UUID.
	twins := controlPlane(3)
	twins[0].MemberID, twins[2].MemberID, twins[0].LastMember = 3, 3, 1

	// Machine c once responded at the address of b, so both are recorded with its member.
	swapped := func(c safety.Node) []safety.Node {
		nodes := controlPlane(3)
		nodes[1] = safety.Node{Name: "b", Address: address(1), LastMember: 3, EverConfigured: true}
		nodes[2] = c

		return nodes
	}
	placed := swapped(safety.Node{Name: "c", LastMember: 3, EverConfigured: true})
	placed[1] = with(controlPlane(3)[2], func(n *safety.Node) { n.Name, n.Address = "b", address(1) })
	placed[0].Members, placed[1].Members = []safety.Member{{ID: 1}, {ID: 3}}, []safety.Member{{ID: 1}, {ID: 3}}

	// Machine b is unreachable, and c does not report its member.
	untold := func(c safety.Node) []safety.Node {
		nodes := controlPlane(3)
		nodes[0].Members, nodes[1], nodes[2] = nodes[0].Members[:2], dead(nodes[1]), c

		return nodes
	}
	told := safety.Node{Name: "c", Answer: safety.AnswerMember, EtcdData: safety.DataPresent, LastMember: 7}

	// Machines a, b and c respond at each other's addresses, and c has not started its etcd yet.
	rotated := controlPlane(3)
	rotated[0].MemberID, rotated[1].MemberID = 2, 3
	rotated[2].MemberID, rotated[2].LastMember, rotated[2].Members, rotated[2].Leader = 0, 3, nil, 0

	for name, tc := range map[string]struct {
		nodes []safety.Node
		gone  bool
	}{
		"rotated":                       {rotated, false},
		"untold":                        {untold(safety.Node{Name: "c", Answer: safety.AnswerMember}), false},
		"told, and the list may be old": {untold(told), false},
		"told, and a quorum has the list": {[]safety.Node{
			removed()[0], removed()[1], told,
		}, true},
		"silent, and the list may be old": {untold(safety.Node{Name: "c", LastMember: 7, EverConfigured: true}), false},
		"untold, without data":            {untold(safety.Node{Name: "c", Answer: safety.AnswerMember, EtcdData: safety.DataAbsent}), true},
		"twins":                           {twins, false},
		"swapped":                         {swapped(safety.Node{Name: "c", LastMember: 3, EverConfigured: true}), false},
		"swapped and empty":               {swapped(safety.Node{Name: "c", LastMember: 3, Answer: safety.AnswerMaintenance}), false},
		"swapped and placed":              {placed, false},
		"removed":                         {removed(), true},
		"a member":                        {controlPlane(3), false},
		"nobody serves":                   {nil, false},
		"with data":                       {unplaced(safety.Node{Name: "c", Answer: safety.AnswerMember, EtcdData: safety.DataPresent}), false},
		"silent":                          {unplaced(safety.Node{Name: "c"}), false},
		"does not tell":                   {unplaced(safety.Node{Name: "c", Answer: safety.AnswerMember}), false},
		"without data":                    {unplaced(safety.Node{Name: "c", Answer: safety.AnswerMember, EtcdData: safety.DataAbsent}), true},
		"in maintenance mode":             {unplaced(safety.Node{Name: "c", Answer: safety.AnswerMaintenance}), true},
	} {
		if got := safety.Gone(tc.nodes, "c"); got != tc.gone {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestStale: an orphaned member is removed after two observations a minute apart, one at a time; the member of an
// unreachable machine is kept.
func TestStale(t *testing.T) {
	nodes := controlPlane(3)
	for i := range nodes {
		nodes[i].Members = append(slices.Clone(nodes[i].Members),
			safety.Member{ID: 8, PeerAddresses: []string{"10.9.9.8"}}, safety.Member{ID: 7, PeerAddresses: []string{"10.9.9.7"}})
	}

	nodes[2] = dead(nodes[2])
	now := int64(1_800_000_000)

	seen, id := safety.Stale(nodes, nil, now)
	if want := (safety.Sightings{7: now, 8: now}); id != 0 || !cmp.Equal(seen, want) {
		t.Errorf("the first look: %v, %d", seen, id)
	}

	if _, id = safety.Stale(nodes, seen, now+59); id != 0 {
		t.Errorf("too soon: %d", id)
	}

	if _, id = safety.Stale(nodes, seen, now+60); id != 7 {
		t.Errorf("the second look: %d", id)
	}

	// The machine is at another address than its member, so any member may be its own.
	elsewhere := slices.Clone(nodes)
	elsewhere[2].Address = "192.168.0.3"

	if again, id := safety.Stale(elsewhere, seen, now+3600); id != 0 || len(again) != 0 {
		t.Errorf("a silent machine whose member cannot be told: %v, %d", again, id)
	}

	elsewhere[2].LastMember = 3
	if _, id := safety.Stale(elsewhere, seen, now+3600); id != 7 {
		t.Errorf("a silent machine whose member is known from before: %d", id)
	}

	elsewhere[2].Answer, elsewhere[2].EverConfigured = safety.AnswerMember, true
	if again, id := safety.Stale(elsewhere, seen, now+3600); id != 0 || len(again) != 0 {
		t.Errorf("a machine that may have joined again under another ID: %v, %d", again, id)
	}

	// Machines a, b and c respond at each other's addresses, and c has not started its etcd yet: its member is 1.
	rotated := controlPlane(3)
	rotated[0].MemberID, rotated[1].MemberID = 2, 3
	rotated[2].MemberID, rotated[2].LastMember, rotated[2].Members, rotated[2].Leader = 0, 3, nil, 0

	if again, id := safety.Stale(rotated, safety.Sightings{1: now}, now+3600); id != 0 || len(again) != 0 {
		t.Errorf("machines that have exchanged their addresses: %v, %d", again, id)
	}

	nodes[1].Members = nodes[1].Members[:3]
	if again, id := safety.Stale(nodes, seen, now+60); id != 0 || len(again) != 0 {
		t.Errorf("lists that differ: %v, %d", again, id)
	}
}

func TestVictims(t *testing.T) {
	group := []safety.Candidate{
		{Name: "w-0"},
		{Name: "w-2"},
		{Name: "w-10"},
		{Name: "w-1", Broken: 1},
		{Name: "w-3", Broken: 2},
		{Name: "w-4", Outdated: true},
		{Name: "w-5", Chosen: true},
	}

	want := []string{"w-5", "w-3", "w-1", "w-4", "w-10", "w-2", "w-0"}
	if diff := cmp.Diff(want, safety.Victims(group, 9)); diff != "" {
		t.Error(diff)
	}

	if got := safety.Victims(group, -3); len(got) != 0 {
		t.Errorf("victims of a group that grows: %v", got)
	}

	if got := safety.Victims(group, 1); !slices.Equal(got, want[:1]) {
		t.Errorf("one victim: %v", got)
	}
}

// TestVictimsPairs compares every kind of machine with every other one: the more important criterion decides,
// regardless of the others.
func TestVictimsPairs(t *testing.T) {
	type kind struct {
		safety.Candidate

		weight int // chosen 1000, broken 100 each, outdated 10, highest index 1
	}

	var kinds []kind

	for _, chosen := range []int{0, 1} {
		for _, broken := range []int{0, 1, 2, 3} {
			for _, outdated := range []int{0, 1} {
				for i, name := range []string{"m-9", "m-10"} {
					kinds = append(kinds, kind{
						Candidate: safety.Candidate{Name: name, Chosen: chosen == 1, Broken: broken, Outdated: outdated == 1},
						weight:    1000*chosen + 100*broken + 10*outdated + i,
					})
				}
			}
		}
	}

	for _, a := range kinds {
		for _, b := range kinds {
			if a.weight <= b.weight || a.Name == b.Name && a.weight == b.weight {
				continue
			}

			a, b := a.Candidate, b.Candidate
			if a.Name == b.Name {
				a.Name, b.Name = "x-1", "y-1" // the same index, so that only the other criteria decide
			}

			for _, pair := range [][]safety.Candidate{{a, b}, {b, a}} {
				if got := safety.Victims(pair, 1); !slices.Equal(got, []string{a.Name}) {
					t.Errorf("of %+v and %+v goes %v", a, b, got)
				}
			}
		}
	}
}

func TestBudget(t *testing.T) {
	if got := safety.Budget(nil, 10); got != 1 {
		t.Errorf("unset: %d", got)
	}

	for text, want := range map[string]int{
		"3": 3, "25%": 2, "1%": 1, "100%": 10, // valid ones
		"0": 1, "-1": 1, "0%": 1, "many": 1, "2.5": 1, // the schema refuses these
	} {
		limit := intstr.Parse(text)
		if got := safety.Budget(&limit, 10); got != want {
			t.Errorf("%q of ten: %d, not %d", text, got, want)
		}
	}
}

func TestNextWorkers(t *testing.T) {
	old := func(names ...string) (out []safety.Candidate) {
		for _, n := range names {
			out = append(out, safety.Candidate{Name: n, Outdated: true})
		}

		return out
	}
	five := old("w-0", "w-1", "w-2", "w-3", "w-4")
	const two = 2

	tests := []struct {
		name   string
		change func([]safety.Candidate)
		done   bool
		want   []string
	}{
		{"the canary goes alone", func([]safety.Candidate) {}, false, []string{"w-0"}},
		{"then by budget", func([]safety.Candidate) {}, true, []string{"w-0", "w-1"}},
		{"a busy one uses the budget", func(c []safety.Candidate) { c[4].Busy = true }, true, []string{"w-0"}},
		{"the canary is busy", func(c []safety.Candidate) { c[0].Busy = true }, false, nil},
		{"a broken one goes first", func(c []safety.Candidate) { c[3].Broken = 1 }, true, []string{"w-3", "w-0"}},
		{"a broken one that is up to date", func(c []safety.Candidate) { c[3].Broken, c[3].Outdated = 1, false }, true, []string{"w-0"}},
		{"too many are broken", func(c []safety.Candidate) { c[2].Broken, c[3].Broken, c[4].Broken = 1, 1, 1 }, true, nil},
		{"the canary broke", func(c []safety.Candidate) { c[0].Broken, c[0].Outdated = 1, false }, false, nil},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			group := slices.Clone(five)
			tc.change(group)

			if diff := cmp.Diff(tc.want, safety.NextWorkers(group, two, tc.done)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
