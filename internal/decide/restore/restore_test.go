package restore_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/test/oracle"
)

var (
	histories = flag.Int("histories", 4000, "how many random restores are gone through")
	from      = flag.Uint64("seed", 0, "seed of the first history; with -histories 1 it replays one")
)

// TestHistories: whatever fails and whenever the operator dies, nothing is wiped without permission, a snapshot is sent
// to one node only while all others are empty, and a restore is complete only if all nodes run the restored etcd. When
// the faults stop, it ends.
func TestHistories(t *testing.T) {
	ends := map[string]int{}

	for i := range uint64(*histories) {
		w := newWorld(t, *from+i)

		w.run()
		ends[w.end()]++

		if w.done {
			w.comesBack()
			w.run()
			ends["again "+w.end()]++
		}
	}

	t.Logf("ends: %v", ends)

	if *histories >= 100 && (ends["complete"] < *histories/3 || ends[""] == 0) {
		t.Errorf("the histories prove little: %v", ends)
	}
}

// run lets the restore continue until it ends.
func (w *world) run() {
	for turn := 0; !w.done && !w.stopped; turn++ {
		if turn == w.keepAt && !w.old {
			w.keep()
		}

		if turn == 150 {
			w.fixes()
		}

		if turn == 300 {
			w.options.Save = v1alpha1.LastSnapshotTry // another restore, because etcd never responds again
			w.forget(w.record.Step != v1alpha1.RestoreJoining)
		}

		if turn == 800 {
			w.fail("it does not end; step %s, %+v", w.record.Step, restore.Decide(w.options, w.record, w.evidence()))
		}

		w.live()
		w.turn()

		for _, v := range oracle.Watch(w.truth()) {
			w.fail("%s", v)
		}
	}
}

func (w *world) end() string {
	if w.done {
		return "complete"
	}

	return string(w.record.Step)
}

// member returns a node that runs under the cluster's CA.
func member(name string, edit ...func(*restore.Node)) restore.Node {
	n := restore.Node{
		Node: safety.Node{Name: name, Address: name, Answer: safety.AnswerMember, EtcdData: safety.DataAbsent, EtcdWaiting: true},
		Boot: name + "-1", Config: restore.ConfigSettled, Type: "controlplane", NextType: "controlplane", TimeSynced: true,
	}
	for _, e := range edit {
		e(&n)
	}

	return n
}

func withData(n *restore.Node) { n.EtcdData, n.EtcdWaiting = safety.DataPresent, false }

func serving(n *restore.Node) {
	withData(n)
	n.MemberID, n.Leader = 7, 7
	n.Members = []safety.Member{{ID: 7, Name: n.Name}}
}

func vague(n *restore.Node) { n.Boot, n.Config, n.TimeSynced = "", restore.ConfigUnread, false }

func unread(n *restore.Node) { n.Config, n.Type, n.NextType = restore.ConfigUnread, "", "" }

func tried(n *restore.Node) { n.Config, n.NextType = restore.ConfigTried, "" }

func staged(n *restore.Node) { n.Config = restore.ConfigStaged }

func unsynced(n *restore.Node) { n.TimeSynced = false }

// typed sets the current machine type and the one after the next boot.
func typed(now, then string) func(*restore.Node) {
	return func(n *restore.Node) {
		if n.Type, n.NextType = now, then; now != then {
			staged(n)
		}
	}
}

func running(n *restore.Node) { n.EtcdRuns = true }

func leaving(n *restore.Node) { n.Leaving = true }

func mute(n *restore.Node) { *n = restore.Node{Node: safety.Node{Name: n.Name, EverConfigured: true}} }

// TestDecide: situations that users encounter.
func TestDecide(t *testing.T) {
	init := typed("init", "init")
	failed := func(n *restore.Node) { withData(n); n.EtcdFailed, n.EtcdMessage = true, "expected sha256" }

	tests := map[string]struct {
		options restore.Options
		record  restore.Record
		nodes   []restore.Node
		want    restore.Action
		step    v1alpha1.RestoreStep
		reason  string
		part    string
	}{
		"fresh machines": {
			nodes: []restore.Node{{Node: safety.Node{Name: "a", Answer: safety.AnswerMaintenance}}},
			want:  restore.Next, step: v1alpha1.RestorePreparing,
		},
		"nothing there": {want: restore.Wait, reason: v1alpha1.ReasonWaitingForMachines},
		"etcd runs": {
			nodes: []restore.Node{member("a", serving)}, want: restore.Stop, reason: v1alpha1.ReasonDataWouldBeLost,
			part: "it has quorum",
		},
		"etcd runs, discard": {
			options: restore.Options{Discard: true}, nodes: []restore.Node{member("a", serving)},
			want: restore.Next, step: v1alpha1.RestoreSaving,
		},
		"an old type": {
			nodes: []restore.Node{member("a", init)}, want: restore.Stop, reason: v1alpha1.ReasonRestoreRefused, part: "init",
		},
		"a foreign node": {
			nodes: []restore.Node{{Node: safety.Node{Name: "a"}, Foreign: true}}, want: restore.Stop,
			reason: v1alpha1.ReasonForeignNode,
		},
		"a silent node": {
			options: restore.Options{Discard: true}, nodes: []restore.Node{member("a", serving), member("b", mute)},
			want: restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence, part: "lostMachines",
		},
		"a lost node": {
			options: restore.Options{Discard: true, Lost: []string{"b"}},
			nodes:   []restore.Node{member("a", serving), member("b", mute)},
			want:    restore.Next, step: v1alpha1.RestoreSaving,
		},
		"a lost node that answers": {
			options: restore.Options{Discard: true, Lost: []string{"b"}},
			nodes:   []restore.Node{member("a", serving), member("b")},
			want:    restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence, part: "is listed in lostMachines",
		},
		"a database without etcd is copied": {
			options: restore.Options{Discard: true}, record: restore.Record{Step: v1alpha1.RestoreSaving},
			nodes: []restore.Node{member("a", withData)}, want: restore.Save,
		},
		"a type that nobody knows": {
			options: restore.Options{Discard: true},
			nodes:   []restore.Node{member("a", withData, unread)},
			want:    restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence, part: "show its machine config",
		},
		"quorum a moment ago": {
			options: restore.Options{Discard: true},
			record:  restore.Record{Step: v1alpha1.RestoreSaving, HadQuorum: true, SaveFailures: restore.MaxSaves},
			nodes:   []restore.Node{member("a", withData)},
			want:    restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence, part: "it had quorum",
		},
		"the first look falls into an election": {
			options: restore.Options{Discard: true}, record: restore.Record{Step: v1alpha1.RestoreSaving, Leaderless: 5e9},
			nodes: []restore.Node{member("a", withData, running), member("b", withData)},
			want:  restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence, part: "without a leader",
		},
		"a node that does not tell of its etcd": {
			options: restore.Options{Discard: true}, record: restore.Record{Step: v1alpha1.RestoreSaving},
			nodes: []restore.Node{member("a", withData, func(n *restore.Node) { n.Boot = "" })},
			want:  restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence, part: "a to report its etcd state",
		},
		"no election ends": {
			options: restore.Options{Discard: true}, record: restore.Record{Step: v1alpha1.RestoreSaving, Leaderless: 15e9},
			nodes: []restore.Node{member("a", withData, running), member("b", withData)}, want: restore.Save,
		},
		"an election of an etcd that is not to be copied": {
			options: restore.Options{Discard: true, Save: v1alpha1.LastSnapshotTry},
			record:  restore.Record{Step: v1alpha1.RestoreSaving},
			nodes:   []restore.Node{member("a", withData, running)}, want: restore.Save,
		},
		"an election, and the store has failed": {
			options: restore.Options{Discard: true},
			record:  restore.Record{Step: v1alpha1.RestoreSaving, HadQuorum: true, SaveFailures: restore.MaxSaves},
			nodes:   []restore.Node{member("a", serving, func(n *restore.Node) { n.Leader = 0 })}, want: restore.Save,
		},
		"data that shows late": {
			options: restore.Options{Discard: true}, record: restore.Record{Step: v1alpha1.RestorePreparing},
			nodes: []restore.Node{member("a", withData), member("b")}, want: restore.Next, step: v1alpha1.RestoreSaving,
		},
		"data that shows late, and is copied": {
			options: restore.Options{Discard: true}, record: restore.Record{Step: v1alpha1.RestorePreparing, Saved: true},
			nodes: []restore.Node{member("a", withData), member("b")}, want: restore.Next, step: v1alpha1.RestoreWiping,
		},
		"debris of our own is not copied": {
			options: restore.Options{Discard: true},
			record:  restore.Record{Step: v1alpha1.RestorePreparing, Tries: 1, Machine: "a", Boot: "a-0"},
			nodes:   []restore.Node{member("a", withData), member("b")}, want: restore.Next, step: v1alpha1.RestoreWiping,
		},
		"it runs after all": {
			options: restore.Options{Discard: true},
			record:  restore.Record{Step: v1alpha1.RestoreWiping, Tries: 1, Machine: "a", Boot: "a-0", Asked: true},
			nodes:   []restore.Node{member("a", serving), member("b")}, want: restore.Next, step: v1alpha1.RestoreRecovering,
		},
		"a config waits for a reboot": {
			record: restore.Record{Step: v1alpha1.RestorePreparing},
			nodes:  []restore.Node{member("a", staged)}, want: restore.Wait, part: "reboot it",
		},
		"the clock": {
			record: restore.Record{Step: v1alpha1.RestorePreparing},
			nodes:  []restore.Node{member("a", unsynced)}, want: restore.Wait, part: "clock",
		},
		"ready": {
			record: restore.Record{Step: v1alpha1.RestorePreparing}, nodes: []restore.Node{member("a"), member("b")},
			want: restore.Choose,
		},
		"a machine that is being deleted runs on": {
			options: restore.Options{Discard: true},
			record:  restore.Record{Step: v1alpha1.RestoreWiping, Boots: map[string]string{"b": "b-1"}},
			nodes:   []restore.Node{member("a"), member("b", serving, leaving)}, want: restore.IntendWipe, part: "b",
		},
		"a machine that is being deleted is silent": {
			nodes: []restore.Node{member("a"), member("b", mute, leaving)}, want: restore.Wait, part: "b",
		},
		"a machine that is being deleted has been reset": {
			record: restore.Record{Step: v1alpha1.RestorePreparing},
			nodes: []restore.Node{
				{Node: safety.Node{Name: "a", Answer: safety.AnswerMaintenance}, Leaving: true}, member("b"),
			},
			want: restore.Choose, part: "b",
		},
		"a machine that is being deleted is not chosen": {
			record: restore.Record{Step: v1alpha1.RestorePreparing, Machine: "a"},
			nodes:  []restore.Node{member("a", leaving), member("b")}, want: restore.Choose, part: "b",
		},
		"only machines that are being deleted": {
			nodes: []restore.Node{member("a", leaving)}, want: restore.Wait, reason: v1alpha1.ReasonWaitingForMachines,
		},
		"the snapshot is sent": {
			record: restore.Record{Step: v1alpha1.RestoreUploading, Machine: "a", Boot: "a-1", Tries: 1},
			nodes:  []restore.Node{member("a"), member("b")}, want: restore.Upload,
		},
		"the answer to the bootstrap is lost": {
			record: restore.Record{Step: v1alpha1.RestoreUploading, Machine: "a", Boot: "a-1", Tries: 1, Asked: true, Age: 1e9},
			nodes:  []restore.Node{member("a")}, want: restore.Wait, reason: v1alpha1.ReasonRestoring,
		},
		"a moment in which the node tells little": {
			record: restore.Record{Step: v1alpha1.RestoreUploading, Machine: "a", Boot: "a-1", Tries: 1, Asked: true, Age: 1e9},
			nodes:  []restore.Node{member("a", vague)}, want: restore.Wait, reason: v1alpha1.ReasonWaitingForEvidence,
		},
		"a config that is staged while the node reads": {
			record: restore.Record{Step: v1alpha1.RestoreUploading, Machine: "a", Boot: "a-1", Tries: 1, Asked: true, Age: 1e9},
			nodes:  []restore.Node{member("a", staged)}, want: restore.Wait,
			reason: v1alpha1.ReasonRestoring,
		},
		"the node may still read what it was sent": {
			record: restore.Record{Step: v1alpha1.RestorePreparing, Machine: "a", Boot: "a-1", Tries: 1, Asked: true, Age: 1e9},
			nodes:  []restore.Node{member("a"), member("b")}, want: restore.Wait, reason: v1alpha1.ReasonRestoring, part: "or discard it",
		},
		"the bootstrap is lost": {
			record: restore.Record{Step: v1alpha1.RestoreUploading, Machine: "a", Boot: "a-1", Tries: 1, Asked: true, Age: 40e9},
			nodes:  []restore.Node{member("a")}, want: restore.Upload,
		},
		"a large snapshot takes longer": {
			record: restore.Record{
				Step: v1alpha1.RestoreRecovering, Machine: "a", Boot: "a-1", Tries: 1, Asked: true, Age: 40e9, Size: 2 << 30,
			},
			nodes: []restore.Node{member("a")}, want: restore.Wait, reason: v1alpha1.ReasonRestoring,
		},
		"a large snapshot is not heard of": {
			record: restore.Record{
				Step: v1alpha1.RestoreRecovering, Machine: "a", Boot: "a-1", Tries: 1, Asked: true, Age: 400e9, Size: 2 << 30,
			},
			nodes: []restore.Node{member("a")}, want: restore.Next, step: v1alpha1.RestorePreparing,
		},
		"stopped": {
			record: restore.Record{Step: v1alpha1.RestoreStopped}, nodes: []restore.Node{member("a", serving)},
			want: restore.Wait, reason: v1alpha1.ReasonRestoreFailed,
		},
		"somebody else bootstrapped": {
			record: restore.Record{Step: v1alpha1.RestoreUploading, Machine: "a", Boot: "a-1", Tries: 1},
			nodes:  []restore.Node{member("a"), member("b", serving)}, want: restore.Next, step: v1alpha1.RestorePreparing,
		},
		"a reboot before the recovery": {
			record: restore.Record{Step: v1alpha1.RestoreRecovering, Machine: "a", Boot: "a-0", Tries: 1},
			nodes:  []restore.Node{member("a")}, want: restore.Next, step: v1alpha1.RestorePreparing,
		},
		"the debris of a damaged snapshot": {
			record: restore.Record{Step: v1alpha1.RestoreRecovering, Machine: "a", Boot: "a-1", Tries: 1},
			nodes:  []restore.Node{member("a", failed)}, want: restore.Next, step: v1alpha1.RestoreWiping,
		},
		"debris for the last time": {
			record: restore.Record{Step: v1alpha1.RestoreRecovering, Machine: "a", Boot: "a-1", Tries: restore.MaxTries},
			nodes:  []restore.Node{member("a", failed)}, want: restore.Stop, part: "expected sha256",
		},
		"debris is wiped without leave": {
			record: restore.Record{Step: v1alpha1.RestoreWiping, Machine: "a", Tries: 1},
			nodes:  []restore.Node{member("a", failed)}, want: restore.IntendWipe,
		},
		"etcd takes long to start": {
			record: restore.Record{
				Step: v1alpha1.RestoreRecovering, Machine: "a", Boot: "a-1", Tries: 1, Asked: true,
				Age: 400e9, Starting: 200e9,
			},
			nodes: []restore.Node{member("a", withData)}, want: restore.Wait, reason: v1alpha1.ReasonRestoring,
		},
		"nobody looked while etcd could have started": {
			record: restore.Record{Step: v1alpha1.RestoreRecovering, Machine: "a", Boot: "a-1", Tries: 1, Asked: true, Age: 1e12},
			nodes:  []restore.Node{member("a", withData)}, want: restore.Wait, reason: v1alpha1.ReasonRestoring,
		},
		"etcd does not start, and does not say so": {
			record: restore.Record{
				Step: v1alpha1.RestoreRecovering, Machine: "a", Boot: "a-0", Tries: 1, Asked: true,
				Age: 400e9, Starting: 301e9,
			},
			nodes: []restore.Node{member("a", withData)}, want: restore.Next, step: v1alpha1.RestoreWiping,
		},
		"etcd does not start, and no call is on record": {
			record: restore.Record{Step: v1alpha1.RestoreRecovering, Machine: "a", Boot: "a-1", Tries: 1, Starting: 301e9},
			nodes:  []restore.Node{member("a", withData)}, want: restore.Next, step: v1alpha1.RestoreWiping,
		},
		"a wipe that was recorded and never begun": {
			record: restore.Record{
				Step: v1alpha1.RestoreWiping, Wipes: map[string]restore.Wipe{"a": {Boot: "a-1", Times: 1}},
			},
			nodes: []restore.Node{member("a")}, want: restore.WipeData, part: "a",
		},
		"more data shows while nothing has begun, and a node is silent": {
			options: restore.Options{Discard: true},
			record: restore.Record{
				Step: v1alpha1.RestoreWiping, Wipes: map[string]restore.Wipe{"a": {Boot: "a-1", Times: 1}},
				Boots: map[string]string{"b": "b-1"},
			},
			nodes: []restore.Node{member("a", withData), member("b", withData), member("c", mute)}, want: restore.Wait,
			reason: v1alpha1.ReasonWaitingForEvidence, part: "waiting for c",
		},
		"data of others is not": {
			record: restore.Record{Step: v1alpha1.RestoreWiping, Machine: "a", Tries: 1},
			nodes:  []restore.Node{member("a"), member("b", withData)}, want: restore.Stop,
			reason: v1alpha1.ReasonDataWouldBeLost,
		},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := restore.Decide(tt.options, tt.record, tt.nodes)
			if got.Action != tt.want || got.Step != tt.step || tt.reason != "" && got.Reason != tt.reason ||
				!strings.Contains(got.Message, tt.part) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestNothingIsWipedInVain: before the first wipe, in each step that leads to one, every node is checked against the
// requirements after it. A fault that the boot after the wipe repairs does not block the restore.
func TestNothingIsWipedInVain(t *testing.T) {
	discard := restore.Options{Discard: true}
	skip := restore.Options{Discard: true, Save: v1alpha1.LastSnapshotSkip}
	on := member("b", withData)

	for name, tt := range map[string]struct {
		node  restore.Node
		part  string
		wiped bool
	}{
		"booted from its disk":            {node: member("a", withData), wiped: true},
		"a config was tried":              {node: member("a", withData, tried), part: "send it the config to keep"},
		"a config was tried on an empty":  {node: member("a", tried), part: "send it the config to keep"},
		"a config was not read":           {node: member("a", withData, unread), part: "show its machine config"},
		"a config waits for the boot":     {node: member("a", withData, staged), wiped: true},
		"a config waits on an empty node": {node: member("a", staged), part: "reboot it"},
		"a worker after the boot": {
			node: member("a", withData, typed("controlplane", "worker")), part: "staged on a is of the type worker",
		},
		"an init node that gets its type": {node: member("a", withData, typed("init", "controlplane")), wiped: true},
		"an empty init node that gets it": {node: member("a", typed("init", "controlplane")), part: "reboot it"},
		"a worker":                        {node: member("a", withData, typed("worker", "worker")), part: "of a is of the type worker"},
		"the clock":                       {node: member("a", withData, unsynced), part: "clock of a"},
		"the clock of an empty node":      {node: member("a", unsynced), part: "clock of a"},
		"the boot ID":                     {node: member("a", withData, func(n *restore.Node) { n.Boot = "" }), part: "boot ID of a"},
		"silent":                          {node: member("a", mute), part: "waiting for a"},
		"leaving, whatever its config is": {node: member("a", withData, tried, leaving), wiped: true},
		"leaving, and founds its own etcd": {
			node: member("a", withData, typed("controlplane", "init"), leaving), part: "staged on a is of the type init",
		},
		"in maintenance mode, gets config": {node: restore.Node{Node: safety.Node{Name: "a", Answer: safety.AnswerMaintenance}}, wiped: true},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []restore.Node{tt.node, on}

			preflight := restore.Decide(skip, restore.Record{}, nodes)
			if (preflight.Step == v1alpha1.RestoreWiping) != tt.wiped ||
				!tt.wiped && (preflight.Action != restore.Wait || !strings.Contains(preflight.Message, tt.part)) {
				t.Errorf("preflight: %+v", preflight)
			}

			wiping := restore.Decide(discard, restore.Record{Step: v1alpha1.RestoreWiping, Saved: true}, nodes)
			if (wiping.Action == restore.IntendWipe) != tt.wiped ||
				!tt.wiped && (wiping.Action != restore.Wait || !strings.Contains(wiping.Message, tt.part)) {
				t.Errorf("wiping: %+v", wiping)
			}

			// Recorded wipes that are visible on no node yet are blocked as well; once one has begun, all continue.
			recorded := restore.Record{Step: v1alpha1.RestoreWiping, Saved: true, Wipes: map[string]restore.Wipe{}}

			for _, n := range nodes {
				if n.EtcdData == safety.DataPresent && n.Boot != "" {
					recorded.Wipes[n.Name] = restore.Wipe{Boot: n.Boot, Times: 1}
				}
			}

			calling := restore.Decide(discard, recorded, nodes)
			if (calling.Action == restore.WipeData) != tt.wiped ||
				!tt.wiped && (calling.Action != restore.Wait || !strings.Contains(calling.Message, tt.part)) {
				t.Errorf("recorded: %+v", calling)
			}

			recorded.Wipes["c"] = restore.Wipe{Boot: "c-0", Times: 1}
			nodes = append(nodes, member("c", func(n *restore.Node) { n.Boot = "c-1" }))

			if begun := restore.Decide(discard, recorded, nodes); begun.Action != restore.WipeData {
				t.Errorf("begun: %+v", begun)
			}
		})
	}
}

// TestSeen: the state of each node is reported, and only once for nodes in the same state.
func TestSeen(t *testing.T) {
	failed := func(n *restore.Node) { withData(n); n.EtcdFailed, n.EtcdMessage = true, "expected sha256" }
	got := restore.Seen([]restore.Node{
		member("a"), member("b", serving), member("c"), member("d", mute), member("e", failed, staged),
		member("f", withData, running, tried), member("g", withData, unread, unsynced, leaving),
		{Node: safety.Node{Name: "h", Answer: safety.AnswerMaintenance}},
		{Node: safety.Node{Name: "i"}, Foreign: true},
		member("j", func(n *restore.Node) { n.EtcdWaiting = false }),
		{Node: safety.Node{Name: "k", Answer: safety.AnswerMember}},
	})
	want := "a, c: no etcd data, ready for a bootstrap, machine type controlplane; " +
		"b: etcd runs and has a leader, machine type controlplane; d: unreachable; " +
		"e: etcd failed: expected sha256, a config of the type controlplane is staged; " +
		"f: etcd runs without a leader, a config was tried since its boot; " +
		"g: etcd data, etcd does not respond, machine config not shown, clock not in sync, being deleted; " +
		"h: in maintenance mode; i: runs under another CA; " +
		"j: no etcd data, not ready for a bootstrap, machine type controlplane; " +
		"k: etcd data unknown, machine config not shown, clock not in sync, boot ID unknown"

	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
