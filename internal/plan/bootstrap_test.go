package plan_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/plan"
)

func fresh(name string) plan.Node {
	return plan.Node{
		Name: name, Answer: plan.AnswerMember, EverConfigured: true,
		EtcdData: plan.DataAbsent, EtcdWaiting: true,
	}
}

func serving(name string, id uint64, members ...uint64) plan.Node {
	n := plan.Node{
		Name: name, Answer: plan.AnswerMember, EverConfigured: true,
		EtcdData: plan.DataPresent, MemberID: id, Leader: members[0],
	}
	for _, m := range members {
		n.Members = append(n.Members, plan.Member{ID: m})
	}

	return n
}

func with(n plan.Node, change func(*plan.Node)) plan.Node {
	change(&n)

	return n
}

func TestBootstrap(t *testing.T) {
	silent := with(fresh("c"), func(n *plan.Node) { n.Answer, n.EtcdData = plan.AnswerUnknown, plan.DataUnknown })
	pulling := with(fresh("c"), func(n *plan.Node) { n.ImageMissing = true })
	never := plan.Node{Name: "c"}
	maintenance := plan.Node{Name: "c", Answer: plan.AnswerMaintenance}
	wiped := with(maintenance, func(n *plan.Node) { n.EverConfigured = true })
	starting := with(fresh("c"), func(n *plan.Node) { n.EtcdData, n.EtcdWaiting = plan.DataPresent, false })
	// A bootstrap has just got there: the service restarts for it, and there is no data yet.
	asked := with(fresh("c"), func(n *plan.Node) { n.EtcdWaiting = false })
	answersAt := func(address string, since int64) plan.Node {
		return with(fresh(address), func(n *plan.Node) { n.Address, n.EtcdSince = address, since })
	}
	unlisted := func(n plan.Node) plan.Node { return with(n, func(n *plan.Node) { n.Unlisted = true }) }
	lost := plan.BootstrapRecord{Machine: "c", Established: true, AllowNewEtcd: true}
	recent := plan.BootstrapRecord{Machine: "c", Established: true, AllowNewEtcd: true, Recent: true}

	tests := []struct {
		name    string
		record  plan.BootstrapRecord
		nodes   []plan.Node
		action  plan.BootstrapAction
		machine string
		reason  string
	}{
		{"three fresh nodes", plan.BootstrapRecord{}, []plan.Node{fresh("a"), fresh("b"), fresh("c")}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"one fresh node", plan.BootstrapRecord{}, []plan.Node{fresh("a")}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"the first one lacks etcd's image", plan.BootstrapRecord{}, []plan.Node{pulling, fresh("a"), fresh("b")}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"all of them lack it", plan.BootstrapRecord{}, []plan.Node{pulling}, plan.BootstrapNode, "c", v1alpha1.ReasonBootstrapping},
		{"the recorded one lacks it", plan.BootstrapRecord{Machine: "c"}, []plan.Node{fresh("a"), pulling}, plan.BootstrapNode, "c", v1alpha1.ReasonBootstrapping},
		{"the recorded choice is kept", plan.BootstrapRecord{Machine: "b"}, []plan.Node{fresh("a"), fresh("b")}, plan.BootstrapNode, "b", v1alpha1.ReasonBootstrapping},
		{"the recorded node is not ready", plan.BootstrapRecord{Machine: "c"}, []plan.Node{fresh("a"), never}, plan.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"the recorded node left the list", plan.BootstrapRecord{Machine: "x"}, []plan.Node{fresh("a")}, plan.BootstrapRefuse, "", v1alpha1.ReasonWaitingForEvidence},
		{"a configured node is silent", plan.BootstrapRecord{}, []plan.Node{fresh("a"), fresh("b"), silent}, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"a node that was never configured is silent", plan.BootstrapRecord{}, []plan.Node{fresh("a"), fresh("b"), never}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"a new node in maintenance mode", plan.BootstrapRecord{}, []plan.Node{fresh("a"), maintenance}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"a configured node is back in maintenance mode", plan.BootstrapRecord{}, []plan.Node{fresh("a"), wiped}, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"another node has data", plan.BootstrapRecord{Machine: "a"}, []plan.Node{fresh("a"), starting}, plan.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"another node serves", plan.BootstrapRecord{Machine: "a"}, []plan.Node{fresh("a"), serving("b", 2, 1, 2)}, plan.BootstrapDone, "", v1alpha1.ReasonBootstrapped},
		{"two clusters", plan.BootstrapRecord{}, []plan.Node{serving("a", 1, 1), serving("b", 2, 2)}, plan.BootstrapRefuse, "", v1alpha1.ReasonEtcdSplit},
		{"established and lost", plan.BootstrapRecord{Machine: "a", Established: true}, []plan.Node{fresh("a"), fresh("b")}, plan.BootstrapRefuse, "", v1alpha1.ReasonEtcdLost},
		{"lost, but allowed", plan.BootstrapRecord{Machine: "x", Established: true, AllowNewEtcd: true}, []plan.Node{fresh("a")}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"a record of an earlier life", plan.BootstrapRecord{Machine: "x", Established: true, EarlierLife: true}, []plan.Node{fresh("a")}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"allowed, and the one chosen has just been asked", plan.BootstrapRecord{Machine: "c", AllowNewEtcd: true}, []plan.Node{fresh("a"), asked}, plan.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"allowed, and the one chosen is still to be asked", plan.BootstrapRecord{Machine: "c", AllowNewEtcd: true}, []plan.Node{fresh("a"), fresh("c")}, plan.BootstrapNode, "c", v1alpha1.ReasonBootstrapping},
		{"lost, allowed, and the first one starts", lost, []plan.Node{fresh("a"), asked}, plan.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"lost, allowed, and the first one was never configured", lost, []plan.Node{fresh("a"), never}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"lost, allowed, a moment after the choice", recent, []plan.Node{fresh("a"), fresh("c")}, plan.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"the one chosen left the list a moment ago", plan.BootstrapRecord{Machine: "x", AllowNewEtcd: true, Recent: true}, []plan.Node{fresh("a")}, plan.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"the one chosen left the list, and that is allowed", plan.BootstrapRecord{Machine: "x", AllowNewEtcd: true}, []plan.Node{fresh("a")}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"an earlier life, whose node has just been asked", plan.BootstrapRecord{Machine: "c", EarlierLife: true}, []plan.Node{fresh("a"), asked}, plan.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"one that left the list is empty", plan.BootstrapRecord{}, []plan.Node{fresh("a"), unlisted(fresh("c"))}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"only one that left the list waits", plan.BootstrapRecord{}, []plan.Node{unlisted(fresh("c"))}, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForMachines},
		{"one that left the list is silent", plan.BootstrapRecord{}, []plan.Node{fresh("a"), unlisted(silent)}, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one that left the list is silent in an earlier life", plan.BootstrapRecord{EarlierLife: true}, []plan.Node{fresh("a"), unlisted(silent)}, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one that left the list is silent, and a new etcd is allowed", lost, []plan.Node{fresh("a"), unlisted(silent)}, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one that left the list has data", plan.BootstrapRecord{}, []plan.Node{fresh("a"), unlisted(starting)}, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one that left the list serves", plan.BootstrapRecord{}, []plan.Node{fresh("a"), unlisted(serving("c", 1, 1))}, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"the one chosen left the list", plan.BootstrapRecord{Machine: "c"}, []plan.Node{fresh("a"), unlisted(fresh("c"))}, plan.BootstrapRefuse, "", v1alpha1.ReasonWaitingForEvidence},
		{"asked a moment ago, and another one starts", plan.BootstrapRecord{Machine: "a", Recent: true}, []plan.Node{fresh("a"), asked}, plan.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"asked a moment ago, and no other one starts", plan.BootstrapRecord{Machine: "a", Recent: true}, []plan.Node{fresh("a"), fresh("b")}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"asked a while ago, and another one starts", plan.BootstrapRecord{Machine: "a"}, []plan.Node{fresh("a"), asked}, plan.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"one machine answers for another one", plan.BootstrapRecord{}, []plan.Node{answersAt("10.0.0.1", 7), answersAt("10.0.0.2", 7)}, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one machine under two names", plan.BootstrapRecord{}, []plan.Node{answersAt("10.0.0.1", 7), unlisted(answersAt("10.0.0.1", 7))}, plan.BootstrapNode, "10.0.0.1", v1alpha1.ReasonBootstrapping},
		{"services without a time", plan.BootstrapRecord{}, []plan.Node{answersAt("10.0.0.1", -1), answersAt("10.0.0.2", -1)}, plan.BootstrapNode, "10.0.0.1", v1alpha1.ReasonBootstrapping},
		{"nothing there", plan.BootstrapRecord{}, nil, plan.BootstrapWait, "", v1alpha1.ReasonWaitingForMachines},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := plan.Bootstrap(tc.record, tc.nodes)
			if got.Action != tc.action || got.Machine != tc.machine || got.Reason != tc.reason {
				t.Errorf("got %+v, want action %v, machine %q, reason %s", got, tc.action, tc.machine, tc.reason)
			}
		})
	}
}

// world is a simulated control plane: what is really on the nodes, as opposed to what the evidence says.
type world struct {
	nodes    []*simNode
	record   plan.BootstrapRecord
	clusters int
}

type simNode struct {
	name                                        string
	configured, everConfigured, up, data, serve bool
	cluster                                     int
}

func (w *world) evidence() []plan.Node {
	out := make([]plan.Node, 0, len(w.nodes))

	for i, n := range w.nodes {
		e := plan.Node{Name: n.name, EverConfigured: n.everConfigured}

		switch {
		case !n.up:
		case !n.configured:
			e.Answer = plan.AnswerMaintenance
		default:
			e.Answer = plan.AnswerMember
			e.EtcdData = plan.DataAbsent
			e.EtcdWaiting = !n.data

			if n.data {
				e.EtcdData = plan.DataPresent
			}

			if n.data && n.serve {
				e.MemberID = uint64(i + 1)
				e.Members = w.members(n.cluster)
			}
		}

		out = append(out, e)
	}

	return out
}

func (w *world) members(cluster int) []plan.Member {
	var out []plan.Member

	for i, n := range w.nodes {
		if n.data && n.cluster == cluster {
			out = append(out, plan.Member{ID: uint64(i + 1)})
		}
	}

	return out
}

// step lets something happen to the world: power, disks, configs, joins.
func (w *world) step(t *rapid.T) {
	n := w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")]

	switch rapid.SampledFrom([]string{"up", "down", "wipe", "configure", "join", "serve", "stop"}).Draw(t, "event") {
	case "up":
		n.up = true
	case "down":
		n.up, n.serve = false, false
	case "wipe":
		n.configured, n.data, n.serve = false, false, false
	case "configure":
		if n.up {
			n.everConfigured, n.configured = true, true
		}
	case "join":
		for _, o := range w.nodes {
			if n.configured && n.up && !n.data && o.data && o.serve {
				n.data, n.cluster = true, o.cluster
			}
		}
	case "serve":
		n.serve = n.up && n.data && n.configured
	case "stop":
		n.serve = false
	}
}

func TestBootstrapNeverSplitsACluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{}
		for _, name := range []string{"a", "b", "c"} {
			w.nodes = append(w.nodes, &simNode{name: name})
		}

		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step(t)

			d := plan.Bootstrap(w.record, w.evidence())
			if d.Action == plan.BootstrapDone {
				w.record.Established = true
			}

			if d.Action != plan.BootstrapNode {
				continue
			}

			for _, n := range w.nodes {
				if n.data {
					t.Fatalf("bootstrapped %s although %s has data", d.Machine, n.name)
				}
			}

			w.record.Machine = d.Machine

			// The call may get lost; the record stays.
			if rapid.Bool().Draw(t, "call arrives") {
				w.clusters++
				w.bootstrap(d.Machine)
			}
		}
	})
}

func (w *world) bootstrap(machine string) {
	for _, n := range w.nodes {
		if n.name == machine {
			n.data, n.cluster = true, w.clusters
		}
	}
}

func TestAssessEtcd(t *testing.T) {
	three := func() []plan.Node {
		return []plan.Node{serving("a", 1, 1, 2, 3), serving("b", 2, 1, 2, 3), serving("c", 3, 1, 2, 3)}
	}

	tests := []struct {
		name            string
		change          func([]plan.Node) []plan.Node
		healthy, quorum bool
		message         string
	}{
		{"all well", func(n []plan.Node) []plan.Node { return n }, true, true, "3 voting members agree"},
		{"one silent", func(n []plan.Node) []plan.Node { n[2] = plan.Node{Name: "c"}; return n }, false, true, "c is " +
			"unreachable"},
		{"two silent", func(n []plan.Node) []plan.Node {
			n[1], n[2] = plan.Node{Name: "b"}, plan.Node{Name: "c"}
			return n
		}, false, false, "b is unreachable"},
		{"alarm", func(n []plan.Node) []plan.Node { n[0].Alarms = []string{"NOSPACE"}; return n }, false, true, "a raises NOSPACE"},
		{"learner", func(n []plan.Node) []plan.Node { n[0].Learner = true; return n }, false, true, "a does not vote yet"},
		{"no leader", func(n []plan.Node) []plan.Node { n[0].Leader = 0; return n }, false, true, "a reports no leader"},
		{"stranger on the list", func(n []plan.Node) []plan.Node { return n[:2] }, false, true, "is not the member of any node"},
		{"views differ", func(n []plan.Node) []plan.Node { n[0] = serving("a", 1, 1, 2); return n }, false, true, "a " +
			"reports a different member list"},
		{"split", func(n []plan.Node) []plan.Node { n[2] = serving("c", 9, 9); return n }, false, false, "two different etcd clusters"},
		{"nothing", func([]plan.Node) []plan.Node { return nil }, false, false, ""},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			h := plan.AssessEtcd(tc.change(three()))
			if h.Healthy != tc.healthy || h.Quorum != tc.quorum || !strings.Contains(h.Message, tc.message) {
				t.Errorf("got %+v", h)
			}
		})
	}
}
