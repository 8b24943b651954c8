package safety_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestExplainedMembers: a member whose machine is named with its fault is not named a second time, by its ID.
func TestExplainedMembers(t *testing.T) {
	t.Parallel()

	placed := with(serving("a", 1, 1, 2), func(n *safety.Node) { n.Members[1].PeerAddresses = []string{"10.0.0.2"} })

	for name, tc := range map[string]struct {
		other safety.Node
		want  string
	}{
		"silent": {safety.Node{Name: "b", EverConfigured: true, LastMember: 2}, "b is unreachable"},
		"wiped": {
			safety.Node{Name: "b", EverConfigured: true, LastMember: 2, Answer: safety.AnswerMaintenance},
			"b is in maintenance mode",
		},
		"known by its address": {safety.Node{Name: "b", EverConfigured: true, Address: "10.0.0.2"}, "b is unreachable"},
		"serves without it":    {with(serving("b", 0, 1, 2), func(n *safety.Node) { n.LastMember = 2 }), "b is not on its own member list"},
	} {
		health := safety.AssessEtcd([]safety.Node{placed, tc.other})
		if health.Message != tc.want || health.Healthy {
			t.Errorf("%s: %+v does not say %q alone", name, health, tc.want)
		}
	}
}

// TestHoldsNameMachines: the reason that blocks a step names the machines that are affected, or those that may be the
// cause, and says what a user can do.
func TestHoldsNameMachines(t *testing.T) {
	t.Parallel()

	silent := func(name string, last uint64) safety.Node {
		return safety.Node{Name: name, EverConfigured: true, LastMember: last}
	}
	wiped := func(name string) safety.Node {
		return safety.Node{Name: name, Answer: safety.AnswerMaintenance, EverConfigured: true}
	}
	departing := func(n safety.Node) safety.Node { return with(n, func(n *safety.Node) { n.Departing = true }) }
	placed := with(serving("a", 1, 1, 2), func(n *safety.Node) {
		n.Members[1].Name, n.Members[1].PeerAddresses = "host-2", []string{"10.0.0.2"}
	})
	at2 := func(n *safety.Node) { n.Address = "10.0.0.2" }
	moved := with(serving("a", 1, 1, 2, 4), func(n *safety.Node) {
		n.Members[1].PeerAddresses = []string{"10.0.0.2"}
		n.Members[2].Name, n.Members[2].PeerAddresses = "new", []string{"10.0.0.2"}
	})
	gone := safety.Disruption{Act: safety.ActReplace, Machine: "c", Member: 3, Gone: true}
	unknown := safety.Disruption{Act: safety.ActReplace, Machine: "c"}

	for name, tc := range map[string]struct{ got, want string }{
		"a member that was last one of two": {
			safety.AssessEtcd([]safety.Node{serving("a", 1, 1, 2), silent("b", 2), silent("c", 2)}).Message,
			"member 0000000000000002 is not the member of any node that responds: it last belonged to b, c",
		},
		"a member that may be one of two": {
			safety.AssessEtcd([]safety.Node{placed, silent("b", 0), silent("c", 0)}).Message,
			"(host-2 at 10.0.0.2) is not the member of any node that responds: it may be that of b, c",
		},
		"a member that no listed machine can have": {
			safety.AssessEtcd([]safety.Node{placed, wiped("b")}).Message,
			"(host-2 at 10.0.0.2) is not the member of any node that responds, and no listed machine can have it",
		},
		"two members at the address of one that is unreachable, and its last one": {
			safety.AssessEtcd([]safety.Node{moved, with(silent("b", 2), at2)}).Message,
			"b is unreachable; member 0000000000000004 (new at 10.0.0.2) is not the member of any node that responds",
		},
		"two members at the address of one that is unreachable": {
			safety.AssessEtcd([]safety.Node{moved, with(silent("b", 0), at2)}).Message,
			"b is unreachable; member 0000000000000002 at 10.0.0.2 is not the member of any node that responds: it last " +
				"belonged to b; member 0000000000000004 (new at 10.0.0.2) is not the member of any node",
		},
		"no etcd": {
			safety.Permit([]safety.Node{silent("a", 1), silent("b", 2), wiped("c")}, "", unknown).Message,
			"which member of etcd is that of c is not known: no etcd member responds; bring a, b, c back, or restore a backup",
		},
		"two lists": {
			safety.Permit([]safety.Node{serving("a", 1, 1, 2, 3), serving("b", 2, 1, 2)}, "", gone).Message,
			"member 0000000000000003 of c cannot be removed: a, b report different member lists",
		},
		"not on the list": {
			safety.Permit([]safety.Node{serving("a", 1, 1, 2), serving("b", 2, 1, 2)}, "", gone).Message,
			"member 0000000000000003 of c cannot be removed: it is not on the member list of a, b",
		},
		"a list without quorum": {
			safety.Permit([]safety.Node{serving("a", 1, 1, 2, 3), silent("b", 2), wiped("c")}, "", unknown).Message,
			"which member of etcd is that of c is not known: no quorum confirms the member list of a; bring b back, or",
		},
		"no quorum": {
			safety.Permit([]safety.Node{serving("a", 1, 1, 2, 3), silent("b", 2), silent("c", 3)}, "", gone).Message,
			"bring b, c back, or restore a backup",
		},
		"quorum at risk": {
			safety.Permit([]safety.Node{serving("a", 1, 1, 2, 3), fresh("b"), silent("c", 3)}, "",
				safety.Disruption{Act: safety.ActReboot, Machine: "b"}).Message,
			"b is blocked: without it 1 of 2 needed voting members work; bring b, c back",
		},
		"nobody waits": {
			safety.Bootstrap(safety.BootstrapRecord{}, []safety.Node{{Name: "a"}, {Name: "b"}}).Message,
			"no control-plane node waits for the bootstrap of etcd yet (a, b)",
		},
		"silent and bare": {
			safety.Bootstrap(safety.BootstrapRecord{}, []safety.Node{silent("a", 1), departing(silent("b", 2)), wiped("c")}).Message,
			"waiting for a, b to respond; and for c, in maintenance mode, to get its config again: bootstrapping etcd requires " +
				"proof that no control-plane node already has etcd data; b is no longer listed: list it again, or, once it is " +
				"wiped or destroyed, annotate the object with talos-operator.io/forget-machines=b",
		},
	} {
		if !strings.Contains(tc.got, tc.want) {
			t.Errorf("%s: %q does not say %q", name, tc.got, tc.want)
		}
	}
}

// TestAllLost: every node that may have had a member has to report that it has no data.
func TestAllLost(t *testing.T) {
	t.Parallel()

	wiped := safety.Node{Name: "w", Answer: safety.AnswerMaintenance, EverConfigured: true}

	for name, tc := range map[string]struct {
		nodes []safety.Node
		want  bool
	}{
		"nobody":             {nil, false},
		"none with a config": {[]safety.Node{{Name: "n"}}, false},
		"all":                {[]safety.Node{wiped, fresh("a"), {Name: "n"}}, true},
		"a silent one":       {[]safety.Node{wiped, {Name: "s", EverConfigured: true}}, false},
		"one with data":      {[]safety.Node{wiped, with(fresh("a"), func(n *safety.Node) { n.EtcdData = safety.DataPresent })}, false},
		"one that serves":    {[]safety.Node{wiped, serving("a", 1, 1)}, false},
		"one that had a member": {
			[]safety.Node{wiped, {Name: "s", LastMember: 3}}, false,
		},
	} {
		if got := safety.AllLost(tc.nodes); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestPropertiesClockSetBack: an observation by a clock that was ahead counts from now on, so that a wrong clock causes
// no delay.
func TestPropertiesClockSetBack(t *testing.T) {
	t.Parallel()

	nodes := []safety.Node{serving("a", 1, 1, 9)}

	seen, id := safety.Stale(nodes, safety.Sightings{9: 100_000}, 1000)
	if id != 0 || seen[9] != 1000 {
		t.Errorf("member %d is removed, seen %v", id, seen)
	}

	if _, id = safety.Stale(nodes, seen, 1000+safety.SecondLook); id != 9 {
		t.Errorf("the second look removes %d", id)
	}

	machines := []safety.ClusterMachine{{Names: []string{"a"}, Well: true}}
	objects := []safety.ClusterNode{{Name: "a", UID: "1", Ready: true}, {Name: "ghost", UID: "2", Silent: true, Talos: true}}

	ghosts, stale := safety.StaleNode(machines, objects, safety.NodeSightings{"2": 100_000}, 1000)
	if stale != nil || ghosts["2"] != 1000 {
		t.Errorf("Node %+v is removed, seen %v", stale, ghosts)
	}

	if _, stale = safety.StaleNode(machines, objects, ghosts, 1000+safety.SecondLook); stale == nil || stale.Name != "ghost" {
		t.Errorf("the second look removes %+v", stale)
	}
}

// TestBootstrapWhileLeaving: a departing machine is evidence like every other one, and etcd is never bootstrapped on it
// unless that was recorded and may be in progress.
func TestBootstrapWhileLeaving(t *testing.T) {
	t.Parallel()

	silent := safety.Node{Name: "c", EverConfigured: true, Departing: true}
	wiped := with(silent, func(n *safety.Node) { n.Answer = safety.AnswerMaintenance })
	empty := with(fresh("c"), func(n *safety.Node) { n.Departing = true })
	lost := safety.BootstrapRecord{Machine: "c", Established: true, AllowNewEtcd: true}

	for name, tc := range map[string]struct {
		record  safety.BootstrapRecord
		nodes   []safety.Node
		action  safety.BootstrapAction
		machine string
		reason  string
	}{
		"it is empty": {
			safety.BootstrapRecord{}, []safety.Node{empty, fresh("d")}, safety.BootstrapNode, "d", v1alpha1.ReasonBootstrapping,
		},
		"it alone waits": {
			safety.BootstrapRecord{}, []safety.Node{empty, {Name: "d"}}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForMachines,
		},
		"it was wiped": {lost, []safety.Node{fresh("a"), wiped}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		"it is silent": {lost, []safety.Node{fresh("a"), silent}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		"it was chosen once, and all disks are lost": {
			lost, []safety.Node{fresh("a"), empty}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping,
		},
		"it was chosen once, and nothing is allowed": {
			safety.BootstrapRecord{Machine: "c", Established: true},
			[]safety.Node{fresh("a"), empty},
			safety.BootstrapRefuse, "",
			v1alpha1.ReasonEtcdLost,
		},
		"it was chosen before etcd was established": {
			safety.BootstrapRecord{Machine: "c"},
			[]safety.Node{fresh("a"), empty},
			safety.BootstrapNode, "c",
			v1alpha1.ReasonBootstrapping,
		},
	} {
		got := safety.Bootstrap(tc.record, tc.nodes)
		if got.Action != tc.action || got.Machine != tc.machine || got.Reason != tc.reason {
			t.Errorf("%s: %+v, want action %v, machine %q, reason %s", name, got, tc.action, tc.machine, tc.reason)
		}
	}
}
