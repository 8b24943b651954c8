// Package restore decides the next step of bringing an etcd back from a backup. It is pure: evidence in, decision out;
// no clock, no client, no log. Missing evidence means wait.
package restore

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// Bounds of what is tried again.
const (
	// MaxTries is how often a snapshot is sent before a person has to look.
	MaxTries = 5
	// MaxWipes is how often one node is wiped.
	MaxWipes = 5
	// MaxSaves is how often a copy of the data that is about to be lost is tried where one is not required.
	MaxSaves = 3
	// lostCall is after how long a bootstrap that shows no effect counts as lost, beside what the node takes to read the
	// snapshot: it looks at all of it before it makes a file. readRate is that of a slow disk, in bytes a second.
	lostCall = 30 * time.Second
	readRate = 8 << 20
	// stuckStart is after how long an etcd that has data and does not answer is not waited for any more.
	stuckStart = 5 * time.Minute
	// election is after how long an etcd that runs without a leader counts as one without quorum: it chooses another one
	// within seconds.
	election = 15 * time.Second
)

// Options of a restore.
type Options struct {
	// Discard allows data of etcd that is still there to be lost.
	Discard bool
	// Save is the policy of the last snapshot; empty for the default.
	Save v1alpha1.LastSnapshotPolicy
	// Lost names machines that a person says will never come back.
	Lost []string
}

// Node is the evidence about one control-plane node.
type Node struct {
	safety.Node

	// Foreign: the node runs under another CA.
	Foreign bool
	// Leaving: the machine is being deleted. Its node may still hold data.
	Leaving bool
	// Boot is the boot ID; empty when it is not known.
	Boot string
	// Config is which config the next boot of the node takes. Type is the machine type of the live one, NextType that of
	// the one of the next boot; empty while not known.
	Config         Config
	Type, NextType string
	// TimeSynced: the node takes a bootstrap only then.
	TimeSynced bool
	// EtcdFailed: the etcd service could not start; EtcdMessage says why. EtcdRuns: the service runs, with a leader or
	// without.
	EtcdFailed  bool
	EtcdMessage string
	EtcdRuns    bool
}

// Config is what is known of the config of a node's next boot.
type Config string

// Configs.
const (
	// ConfigUnread: the node has not shown its config.
	ConfigUnread Config = ""
	// ConfigTried: the live config was on trial since the boot, or still is, and nothing shows the one on the disk.
	ConfigTried Config = "Tried"
	// ConfigSettled: the next boot takes the live config. So it is on a node that has booted from its disk and was sent
	// nothing since.
	ConfigSettled Config = "Settled"
	// ConfigStaged: the next boot takes another config than the live one.
	ConfigStaged Config = "Staged"
)

// Machine types of a config. One of the type init never recovers an etcd: an empty one founds its own.
const (
	typeControlPlane = "controlplane"
	typeInit         = "init"
)

func (n Node) hasData() bool { return n.EtcdData == safety.DataPresent || n.Serves() }

func (n Node) empty() bool {
	return n.Answer == safety.AnswerMember && n.EtcdData == safety.DataAbsent && !n.Serves()
}

// waits: etcd of the node waits for a bootstrap. It gives up waiting for others after half an hour, and takes one even
// then.
func (n Node) waits() bool { return n.empty() && (n.EtcdWaiting || n.EtcdFailed) }

// Wipe is what was recorded about the wiping of a node.
type Wipe struct {
	// Boot ID that the node had when its wipe was recorded, before it was asked for.
	Boot string
	// Times it was wiped.
	Times int
}

// Record is what was recorded of a restore.
type Record struct {
	// Step that it is at.
	Step v1alpha1.RestoreStep
	// Asked: the chosen machine was asked, or was about to be asked, to start etcd from the snapshot, that long ago.
	Asked bool
	Age   time.Duration
	// Starting is for how long the chosen machine was seen, without a break and in its present boot, with data of that
	// etcd and without an answer of it.
	Starting time.Duration
	// Size of the plain snapshot in bytes.
	Size int64
	// Wipes by machine.
	Wipes map[string]Wipe
	// Machine that was chosen, the Boot ID that it had then, and how often it was chosen.
	Machine, Boot string
	Tries         int
	// Saved: there is a copy of the data that is about to be lost. SaveFailures counts tries that failed.
	Saved        bool
	SaveFailures int
	// Boots that the nodes with data had when it was copied, or, without a copy, when the first step ended. Noted is how
	// long ago the last of these boots, or of those of Wipes, was recorded.
	Boots map[string]string
	Noted time.Duration
	// Again is for how long RunsAgain was true without a break.
	Again time.Duration
	// HadQuorum: etcd was seen with quorum before anything was wiped. Leaderless is for how long it was seen without.
	HadQuorum  bool
	Leaderless time.Duration
}

// foreignData: the node has data that is not the debris of our own try.
func (r Record) foreignData(n Node) bool { return n.hasData() && (r.Tries == 0 || n.Name != r.Machine) }

// reading is how long a slow node needs to read the snapshot once.
func (r Record) reading() time.Duration { return time.Duration(r.Size/readRate) * time.Second }

// lost: the call to start etcd should have shown an effect by now.
func (r Record) lost() bool { return r.Reading() == 0 }

// Reading is for how long the chosen machine may still be busy with the snapshot that it was sent, without showing it;
// zero when it is not.
func (r Record) Reading() time.Duration {
	if !r.Asked {
		return 0
	}

	return max(0, lostCall+r.reading()-r.Age)
}

// stuck: etcd should run from the snapshot by now. Time in which nobody looked, or before the node's present boot, does
// not count. The data may be of a call that was heard although a later one was refused, so that none is on record.
func (r Record) stuck() bool { return r.Starting > stuckStart+3*r.reading() }

// Action is what to do next.
type Action int

// Actions.
const (
	// Wait for what the reason names.
	Wait Action = iota
	// Next goes to another step.
	Next
	// Save copies the data of etcd from the first of the machines that gives it.
	Save
	// IntendWipe records that the machines are going to be wiped.
	IntendWipe
	// WipeData wipes the machines, whose wipes are recorded.
	WipeData
	// Choose records the machine that etcd is restored on.
	Choose
	// Upload sends the snapshot to the machine and starts etcd from it.
	Upload
	// Prove looks at what was restored.
	Prove
	// Finish looks at the whole cluster, and ends the restore.
	Finish
	// Stop: a person has to act.
	Stop
)

// Decision is the outcome.
type Decision struct {
	// Action to take.
	Action Action
	// Step to go to, for Next.
	Step v1alpha1.RestoreStep
	// Machines that the action is for.
	Machines []string
	// Serving: Save takes a snapshot, instead of a copy of the database file.
	Serving bool
	// Required: a restore may not go on without what Save makes.
	Required bool
	// Reason is a condition reason.
	Reason string
	// Message for people.
	Message string
}
