package safety_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

func fresh(name string) safety.Node {
	return safety.Node{
		Name: name, Answer: safety.AnswerMember, EverConfigured: true,
		EtcdData: safety.DataAbsent, EtcdWaiting: true,
	}
}

func serving(name string, id uint64, members ...uint64) safety.Node {
	n := safety.Node{
		Name: name, Answer: safety.AnswerMember, EverConfigured: true,
		EtcdData: safety.DataPresent, MemberID: id, Leader: members[0],
	}
	for _, m := range members {
		n.Members = append(n.Members, safety.Member{ID: m})
	}

	return n
}

func with(n safety.Node, change func(*safety.Node)) safety.Node {
	change(&n)

	return n
}

func TestBootstrap(t *testing.T) {
	silent := with(fresh("c"), func(n *safety.Node) { n.Answer, n.EtcdData = safety.AnswerUnknown, safety.DataUnknown })
	pulling := with(fresh("c"), func(n *safety.Node) { n.ImageMissing = true })
	never := safety.Node{Name: "c"}
	maintenance := safety.Node{Name: "c", Answer: safety.AnswerMaintenance}
	wiped := with(maintenance, func(n *safety.Node) { n.EverConfigured = true })
	starting := with(fresh("c"), func(n *safety.Node) { n.EtcdData, n.EtcdWaiting = safety.DataPresent, false })
	// The bootstrap call has just arrived: the service restarts for it, and there is no data yet.
	asked := with(fresh("c"), func(n *safety.Node) { n.EtcdWaiting = false })
	answersAt := func(address string, since int64) safety.Node {
		return with(fresh(address), func(n *safety.Node) { n.Address, n.EtcdSince = address, since })
	}
	unlisted := func(n safety.Node) safety.Node { return with(n, func(n *safety.Node) { n.Unlisted = true }) }
	lost := safety.BootstrapRecord{Machine: "c", Established: true, AllowNewEtcd: true}
	recent := safety.BootstrapRecord{Machine: "c", Established: true, AllowNewEtcd: true, Recent: true}

	tests := []struct {
		name    string
		record  safety.BootstrapRecord
		nodes   []safety.Node
		action  safety.BootstrapAction
		machine string
		reason  string
	}{
		{"three fresh nodes", safety.BootstrapRecord{}, []safety.Node{fresh("a"), fresh("b"), fresh("c")}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"one fresh node", safety.BootstrapRecord{}, []safety.Node{fresh("a")}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"the first one lacks etcd's image", safety.BootstrapRecord{}, []safety.Node{pulling, fresh("a"), fresh("b")}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"all of them lack it", safety.BootstrapRecord{}, []safety.Node{pulling}, safety.BootstrapNode, "c", v1alpha1.ReasonBootstrapping},
		{"the recorded one lacks it", safety.BootstrapRecord{Machine: "c"}, []safety.Node{fresh("a"), pulling}, safety.BootstrapNode, "c", v1alpha1.ReasonBootstrapping},
		{"the recorded choice is kept", safety.BootstrapRecord{Machine: "b"}, []safety.Node{fresh("a"), fresh("b")}, safety.BootstrapNode, "b", v1alpha1.ReasonBootstrapping},
		{"the recorded node is not ready", safety.BootstrapRecord{Machine: "c"}, []safety.Node{fresh("a"), never}, safety.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"the recorded node left the list", safety.BootstrapRecord{Machine: "x"}, []safety.Node{fresh("a")}, safety.BootstrapRefuse, "", v1alpha1.ReasonWaitingForEvidence},
		{"a configured node is silent", safety.BootstrapRecord{}, []safety.Node{fresh("a"), fresh("b"), silent}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"a node that was never configured is silent", safety.BootstrapRecord{}, []safety.Node{fresh("a"), fresh("b"), never}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"a new node in maintenance mode", safety.BootstrapRecord{}, []safety.Node{fresh("a"), maintenance}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"a configured node is back in maintenance mode", safety.BootstrapRecord{}, []safety.Node{fresh("a"), wiped}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"another node has data", safety.BootstrapRecord{Machine: "a"}, []safety.Node{fresh("a"), starting}, safety.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"another node serves", safety.BootstrapRecord{Machine: "a"}, []safety.Node{fresh("a"), serving("b", 2, 1, 2)}, safety.BootstrapDone, "", v1alpha1.ReasonBootstrapped},
		{"two clusters", safety.BootstrapRecord{}, []safety.Node{serving("a", 1, 1), serving("b", 2, 2)}, safety.BootstrapRefuse, "", v1alpha1.ReasonEtcdSplit},
		{"established and lost", safety.BootstrapRecord{Machine: "a", Established: true}, []safety.Node{fresh("a"), fresh("b")}, safety.BootstrapRefuse, "", v1alpha1.ReasonEtcdLost},
		{"lost, but allowed", safety.BootstrapRecord{Machine: "x", Established: true, AllowNewEtcd: true}, []safety.Node{fresh("a")}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"a record of an earlier life", safety.BootstrapRecord{Machine: "x", Established: true, EarlierLife: true}, []safety.Node{fresh("a")}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"allowed, and the one chosen has just been asked", safety.BootstrapRecord{Machine: "c", AllowNewEtcd: true}, []safety.Node{fresh("a"), asked}, safety.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"allowed, and the one chosen is still to be asked", safety.BootstrapRecord{Machine: "c", AllowNewEtcd: true}, []safety.Node{fresh("a"), fresh("c")}, safety.BootstrapNode, "c", v1alpha1.ReasonBootstrapping},
		{"lost, allowed, and the first one starts", lost, []safety.Node{fresh("a"), asked}, safety.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"lost, allowed, and the first one was never configured", lost, []safety.Node{fresh("a"), never}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"lost, allowed, a moment after the choice", recent, []safety.Node{fresh("a"), fresh("c")}, safety.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"the one chosen left the list a moment ago", safety.BootstrapRecord{Machine: "x", AllowNewEtcd: true, Recent: true}, []safety.Node{fresh("a")}, safety.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"the one chosen left the list, and that is allowed", safety.BootstrapRecord{Machine: "x", AllowNewEtcd: true}, []safety.Node{fresh("a")}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"an earlier life, whose node has just been asked", safety.BootstrapRecord{Machine: "c", EarlierLife: true}, []safety.Node{fresh("a"), asked}, safety.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"one that left the list is empty", safety.BootstrapRecord{}, []safety.Node{fresh("a"), unlisted(fresh("c"))}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"only one that left the list waits", safety.BootstrapRecord{}, []safety.Node{unlisted(fresh("c"))}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForMachines},
		{"one that left the list is silent", safety.BootstrapRecord{}, []safety.Node{fresh("a"), unlisted(silent)}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one that left the list is silent in an earlier life", safety.BootstrapRecord{EarlierLife: true}, []safety.Node{fresh("a"), unlisted(silent)}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one that left the list is silent, and a new etcd is allowed", lost, []safety.Node{fresh("a"), unlisted(silent)}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one that left the list has data", safety.BootstrapRecord{}, []safety.Node{fresh("a"), unlisted(starting)}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one that left the list serves", safety.BootstrapRecord{}, []safety.Node{fresh("a"), unlisted(serving("c", 1, 1))}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"the one chosen left the list", safety.BootstrapRecord{Machine: "c"}, []safety.Node{fresh("a"), unlisted(fresh("c"))}, safety.BootstrapRefuse, "", v1alpha1.ReasonWaitingForEvidence},
		{"asked a moment ago, and another one starts", safety.BootstrapRecord{Machine: "a", Recent: true}, []safety.Node{fresh("a"), asked}, safety.BootstrapWait, "", v1alpha1.ReasonBootstrapping},
		{"asked a moment ago, and no other one starts", safety.BootstrapRecord{Machine: "a", Recent: true}, []safety.Node{fresh("a"), fresh("b")}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"asked a while ago, and another one starts", safety.BootstrapRecord{Machine: "a"}, []safety.Node{fresh("a"), asked}, safety.BootstrapNode, "a", v1alpha1.ReasonBootstrapping},
		{"one machine answers for another one", safety.BootstrapRecord{}, []safety.Node{answersAt("10.0.0.1", 7), answersAt("10.0.0.2", 7)}, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForEvidence},
		{"one machine under two names", safety.BootstrapRecord{}, []safety.Node{answersAt("10.0.0.1", 7), unlisted(answersAt("10.0.0.1", 7))}, safety.BootstrapNode, "10.0.0.1", v1alpha1.ReasonBootstrapping},
		{"services without a time", safety.BootstrapRecord{}, []safety.Node{answersAt("10.0.0.1", -1), answersAt("10.0.0.2", -1)}, safety.BootstrapNode, "10.0.0.1", v1alpha1.ReasonBootstrapping},
		{"nothing there", safety.BootstrapRecord{}, nil, safety.BootstrapWait, "", v1alpha1.ReasonWaitingForMachines},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := safety.Bootstrap(tc.record, tc.nodes)
			if got.Action != tc.action || got.Machine != tc.machine || got.Reason != tc.reason {
				t.Errorf("got %+v, want action %v, machine %q, reason %s", got, tc.action, tc.machine, tc.reason)
			}
		})
	}
}

// world is a simulated control plane: the real state of the nodes, as opposed to the evidence.
type world struct {
	nodes    []*simNode
	record   safety.BootstrapRecord
	clusters int
}

type simNode struct {
	name                                        string
	configured, everConfigured, up, data, serve bool
	cluster                                     int
}

func (w *world) evidence() []safety.Node {
	out := make([]safety.Node, 0, len(w.nodes))

	for i, n := range w.nodes {
		e := safety.Node{Name: n.name, EverConfigured: n.everConfigured}

		switch {
		case !n.up:
		case !n.configured:
			e.Answer = safety.AnswerMaintenance
		default:
			e.Answer = safety.AnswerMember
			e.EtcdData = safety.DataAbsent
			e.EtcdWaiting = !n.data

			if n.data {
				e.EtcdData = safety.DataPresent
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

func (w *world) members(cluster int) []safety.Member {
	var out []safety.Member

	for i, n := range w.nodes {
		if n.data && n.cluster == cluster {
			out = append(out, safety.Member{ID: uint64(i + 1)})
		}
	}

	return out
}

// step causes a random event: power, disks, configurations, joins.
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

			d := safety.Bootstrap(w.record, w.evidence())
			if d.Action == safety.BootstrapDone {
				w.record.Established = true
			}

			if d.Action != safety.BootstrapNode {
				continue
			}

			for _, n := range w.nodes {
				if n.data {
					t.Fatalf("bootstrapped %s although %s has data", d.Machine, n.name)
				}
			}

			w.record.Machine = d.Machine

			// The call may be lost; the record remains.
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
	three := func() []safety.Node {
		return []safety.Node{serving("a", 1, 1, 2, 3), serving("b", 2, 1, 2, 3), serving("c", 3, 1, 2, 3)}
	}

	tests := []struct {
		name            string
		change          func([]safety.Node) []safety.Node
		healthy, quorum bool
		message         string
	}{
		{"all well", func(n []safety.Node) []safety.Node { return n }, true, true, "3 voting members agree"},
		{"one silent", func(n []safety.Node) []safety.Node { n[2] = safety.Node{Name: "c"}; return n }, false, true, "c is " +
			"unreachable"},
		{"two silent", func(n []safety.Node) []safety.Node {
			n[1], n[2] = safety.Node{Name: "b"}, safety.Node{Name: "c"}
			return n
		}, false, false, "b is unreachable"},
		{"alarm", func(n []safety.Node) []safety.Node { n[0].Alarms = []string{"NOSPACE"}; return n }, false, true, "a raises NOSPACE"},
		{"learner", func(n []safety.Node) []safety.Node { n[0].Learner = true; return n }, false, true, "a does not vote yet"},
		{"no leader", func(n []safety.Node) []safety.Node { n[0].Leader = 0; return n }, false, true, "a reports no leader"},
		{"stranger on the list", func(n []safety.Node) []safety.Node { return n[:2] }, false, true, "is not the member of any node"},
		{"views differ", func(n []safety.Node) []safety.Node { n[0] = serving("a", 1, 1, 2); return n }, false, true, "a " +
			"reports a different member list"},
		{"split", func(n []safety.Node) []safety.Node { n[2] = serving("c", 9, 9); return n }, false, false, "two different etcd clusters"},
		{"nothing", func([]safety.Node) []safety.Node { return nil }, false, false, ""},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			h := safety.AssessEtcd(tc.change(three()))
			if h.Healthy != tc.healthy || h.Quorum != tc.quorum || !strings.Contains(h.Message, tc.message) {
				t.Errorf("got %+v", h)
			}
		})
	}
}
