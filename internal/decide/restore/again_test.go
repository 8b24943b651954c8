package restore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// three returns the nodes of a cluster with a working etcd.
func three(edit ...func([]restore.Node)) []restore.Node {
	members := []safety.Member{{ID: 1}, {ID: 2}, {ID: 3}}

	var out []restore.Node

	for i, name := range []string{"a", "b", "c"} {
		out = append(out, member(name, serving, func(n *restore.Node) {
			n.Members, n.MemberID, n.Leader = members, uint64(i+1), 1
		}))
	}

	for _, e := range edit {
		e(out)
	}

	return out
}

func set(i int, edits ...func(*restore.Node)) func([]restore.Node) {
	return func(nodes []restore.Node) {
		for _, e := range edits {
			e(&nodes[i])
		}
	}
}

func leaderless(n *restore.Node) {
	n.Members, n.Leader, n.MemberID, n.NoLeader, n.EtcdRuns = nil, 0, 0, true, true
}

func wipes(boots ...string) map[string]restore.Wipe {
	out := map[string]restore.Wipe{}
	for i, boot := range boots {
		out[[]string{"a", "b", "c"}[i]] = restore.Wipe{Boot: boot, Times: 1}
	}

	return out
}

// TestEtcdRunsAgain: an etcd that has quorum and is not the one that was recorded before the wipe is not wiped, because
// the record may be weeks old.
func TestEtcdRunsAgain(t *testing.T) {
	const long = 15 * time.Second

	boots := map[string]string{"a": "a-1", "b": "b-1", "c": "c-1"}
	before := map[string]string{"a": "a-0", "b": "b-0", "c": "c-0"}
	all := wipes("a-0", "b-0", "c-0")
	sent := restore.Record{Wipes: all, Machine: "a", Boot: "a-1", Tries: 1, Asked: true}

	tests := map[string]struct {
		record restore.Record
		nodes  []restore.Node
		want   restore.Action
		reason string
		part   string
	}{
		"every node has rebooted since": {
			record: restore.Record{Wipes: all, Again: long}, nodes: three(),
			want: restore.Stop, reason: v1alpha1.ReasonEtcdRunsAgain, part: "a, b, c has etcd data and is not wiped",
		},
		"it may lose its quorum in a moment": {
			record: restore.Record{Wipes: all, Again: long - 1}, nodes: three(),
			want: restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence,
		},
		"a silent node may run what was recorded": {
			record: restore.Record{Wipes: all, Again: long}, nodes: three(set(2, mute)),
			want: restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence, part: "waiting for c",
		},
		"no wipe was recorded, and every node has rebooted since the copy": {
			record: restore.Record{Boots: before, Again: long}, nodes: three(),
			want: restore.Stop, reason: v1alpha1.ReasonEtcdRunsAgain,
		},
		"no boot was recorded": {
			record: restore.Record{Again: long}, nodes: three(), want: restore.Stop, reason: v1alpha1.ReasonEtcdRunsAgain,
		},
		"the boots are those of the copy": {
			record: restore.Record{Boots: boots}, nodes: three(), want: restore.IntendWipe, part: "a, b, c",
		},
		"one has rebooted since the copy": {
			record: restore.Record{Boots: map[string]string{"a": "a-0", "b": "b-1", "c": "c-1"}}, nodes: three(),
			want: restore.IntendWipe, part: "a, b, c",
		},
		"one came back from its wipe and joined the others again": {
			record: restore.Record{Wipes: wipes("a-0", "b-1", "c-1")}, nodes: three(), want: restore.IntendWipe, part: "of a",
		},
		"the wipes are recorded and not begun": {
			record: restore.Record{Wipes: wipes("a-1", "b-1", "c-1")}, nodes: three(), want: restore.WipeData, part: "a, b, c",
		},
		"the boots are the same, and the copy is old": {
			record: restore.Record{Boots: boots, Noted: time.Hour + 1, Again: long}, nodes: three(),
			want: restore.Stop, reason: v1alpha1.ReasonEtcdRunsAgain,
		},
		"the wipes are not begun, and old": {
			record: restore.Record{Wipes: wipes("a-1", "b-1", "c-1"), Noted: time.Hour + 1, Again: long}, nodes: three(),
			want: restore.Stop, reason: v1alpha1.ReasonEtcdRunsAgain,
		},
		"an old record, and no quorum for a while": {
			record: restore.Record{Wipes: all, Noted: time.Hour + 1, Again: long},
			nodes:  three(set(0, leaderless), set(1, leaderless), set(2, leaderless)),
			want:   restore.Stop, reason: v1alpha1.ReasonEtcdRunsAgain,
		},
		"a node comes back long after the others were wiped": {
			record: restore.Record{Wipes: all, Noted: time.Hour + 1},
			nodes:  []restore.Node{member("a"), member("b"), member("c", withData)}, want: restore.IntendWipe, part: "of c",
		},
		"its quorum is gone": {
			record: restore.Record{Wipes: all}, nodes: three(set(0, leaderless), set(1, leaderless), set(2, leaderless)),
			want: restore.IntendWipe, part: "a, b, c",
		},
		"the others have joined what was restored": {
			record: sent, nodes: three(), want: restore.Next,
		},
		"it has a member that is no node": {
			record: sent, nodes: three(func(nodes []restore.Node) {
				for i := range nodes {
					nodes[i].Members = append(nodes[i].Members, safety.Member{ID: 4})
				}
			}), want: restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence,
		},
		"one runs another etcd": {
			record: sent, nodes: three(set(2, func(n *restore.Node) { n.Members = []safety.Member{{ID: 3}} })),
			want: restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence,
		},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.record.Step, tt.record.Saved, tt.record.HadQuorum = v1alpha1.RestoreWiping, true, true

			got := restore.Decide(restore.Options{Discard: true}, tt.record, tt.nodes)
			if got.Action != tt.want || tt.reason != "" && got.Reason != tt.reason || !strings.Contains(got.Message, tt.part) {
				t.Errorf("got %+v", got)
			}

			if got.Action == restore.Next && got.Step != v1alpha1.RestoreRecovering {
				t.Errorf("goes to %s", got.Step)
			}
		})
	}
}

// TestUnlisted: machines that were configured and are not listed now block a restore before the first wipe and before
// anything is sent, while they may run the old etcd. Nothing is done to them.
func TestUnlisted(t *testing.T) {
	off := func(edit ...func(*restore.Node)) restore.Node {
		return member("z", append(edit, func(n *restore.Node) { n.Unlisted, n.EverConfigured = true, true })...)
	}
	maintenance := func(n *restore.Node) {
		*n = restore.Node{Node: safety.Node{Name: "z", Answer: safety.AnswerMaintenance}}
	}
	unknown := func(n *restore.Node) { n.EtcdData = safety.DataUnknown }
	data, empty := member("a", withData), member("a")
	at := func(step v1alpha1.RestoreStep) restore.Record {
		return restore.Record{Step: step, Saved: true, Machine: "a", Boot: "a-1", Boots: map[string]string{"a": "a-1"}}
	}
	recorded, begun := at(v1alpha1.RestoreWiping), at(v1alpha1.RestoreWiping)
	recorded.Wipes, begun.Wipes = wipes("a-1"), wipes("a-0", "b-0")

	for name, tt := range map[string]struct {
		record restore.Record
		nodes  []restore.Node
		want   restore.Action
	}{
		"before anything":       {restore.Record{}, []restore.Node{data}, restore.Next},
		"of empty nodes":        {restore.Record{}, []restore.Node{empty}, restore.Next},
		"before the wipe":       {at(v1alpha1.RestoreWiping), []restore.Node{data}, restore.IntendWipe},
		"before it is asked":    {recorded, []restore.Node{data}, restore.WipeData},
		"before the choice":     {at(v1alpha1.RestorePreparing), []restore.Node{empty}, restore.Choose},
		"before the snapshot":   {at(v1alpha1.RestoreUploading), []restore.Node{empty}, restore.Upload},
		"in the middle of it":   {begun, []restore.Node{data, member("b")}, restore.IntendWipe},
		"after it was restored": {at(v1alpha1.RestoreJoining), []restore.Node{member("a", serving)}, restore.Finish},
	} {
		t.Run(name, func(t *testing.T) {
			goesOn := name == "in the middle of it" || name == "after it was restored"

			for what, one := range map[string]struct {
				node  restore.Node
				holds bool
				part  string
			}{
				"silent":         {off(mute), true, "waiting for z, no longer listed, to respond"},
				"data":           {off(withData), true, "z, no longer listed, has etcd data"},
				"untold":         {off(unknown), true, "waiting for z, no longer listed"},
				"empty":          {off(), false, ""},
				"in maintenance": {off(maintenance), false, ""},
			} {
				got := restore.Decide(restore.Options{Discard: true}, tt.record, append(tt.nodes, one.node))

				switch {
				case !one.holds || goesOn:
					if got.Action != tt.want {
						t.Errorf("%s: %+v", what, got)
					}
				case got.Action != restore.Wait || got.Reason != v1alpha1.ReasonWaitingForEvidence ||
					!strings.Contains(got.Message, one.part) ||
					!strings.Contains(got.Message, "annotate the TalosControlPlane with talos-operator.io/forget-machines=z"):
					t.Errorf("%s: %+v", what, got)
				}
			}

			lost := restore.Options{Discard: true, Lost: []string{"z"}}
			if got := restore.Decide(lost, tt.record, append(tt.nodes, off(mute))); got.Action != tt.want {
				t.Errorf("named in lostMachines: %+v", got)
			}
		})
	}
}

// TestUnlistedQuorum: the etcd of an unlisted machine is not the etcd of the nodes.
func TestUnlistedQuorum(t *testing.T) {
	z := member("z", serving, func(n *restore.Node) { n.Unlisted = true })
	if nodes := []restore.Node{member("a"), z}; restore.HasQuorum(nodes) || restore.Leaderless(nodes) {
		t.Error("it counts")
	}

	// An empty machine that joined the restored etcd is a normal member.
	a := member("a", serving, func(n *restore.Node) { n.Members = []safety.Member{{ID: 7}, {ID: 8}} })
	z = member("z", serving, func(n *restore.Node) { n.Unlisted, n.MemberID, n.Members = true, 8, a.Members })

	got := restore.Decide(restore.Options{}, restore.Record{Step: v1alpha1.RestoreJoining, Machine: "a"}, []restore.Node{a, z})
	if got.Action != restore.Finish || len(got.Machines) != 1 {
		t.Errorf("got %+v", got)
	}
}
