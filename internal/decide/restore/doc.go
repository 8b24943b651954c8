// Package restore decides the next step of restoring an etcd from a backup. It is pure: evidence in, decision out,
// without a clock, a client or a log. Missing evidence means wait.
package restore

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// Limits and timeouts of attempts.
const (
	// MaxTries is how often a snapshot is sent before user action is required.
	MaxTries = 5
	// MaxWipes is how often one node is wiped.
	MaxWipes = 5
	// MaxSaves is how often copying the data that is about to be lost is attempted if a copy is not required.
	MaxSaves = 3
	// lostCall is the time after which a bootstrap call without an effect counts as lost, in addition to the time that the
	// node needs to read the snapshot: it reads all of it before it creates a file. readRate is the rate of a slow disk,
	// in bytes per second.
	lostCall = 30 * time.Second
	readRate = 8 << 20
	// stuckStart is how long to wait for an etcd that has data and does not respond.
	stuckStart = 5 * time.Minute
	// election is the time after which an etcd that runs without a leader counts as having no quorum: an election takes
	// seconds.
	election = 15 * time.Second
)

// Options of a restore.
type Options struct {
	// Discard allows the loss of data that etcd still has.
	Discard bool
	// Save is the policy of the last snapshot; empty for the default.
	Save v1alpha1.LastSnapshotPolicy
	// Lost names machines that, according to the user, will never come back.
	Lost []string
}

// Node is the evidence about one control-plane node.
type Node struct {
	safety.Node

	// Foreign: the node runs under another CA.
	Foreign bool
	// Leaving: the machine is being deleted. Its node may still hold data.
	Leaving bool
	// Boot is the boot ID; empty if unknown.
	Boot string
	// Config tells which configuration takes effect at the next boot of the node. Type is the machine type of the live
	// configuration, NextType that of the next boot; empty if unknown.
	Config         Config
	Type, NextType string
	// TimeSynced: the clock of the node is in sync, without which it accepts no bootstrap.
	TimeSynced bool
	// EtcdFailed: the etcd service could not start; EtcdMessage says why. EtcdRuns: the service runs, with or without a
	// leader.
	EtcdFailed  bool
	EtcdMessage string
	EtcdRuns    bool
}

// Config is what is known about the machine configuration of a node's next boot.
type Config string

// States of the next configuration.
const (
	// ConfigUnread: the configuration of the node could not be read yet.
	ConfigUnread Config = ""
	// ConfigTried: the live configuration has been on trial since the boot, or still is, and the one on the disk is
	// unknown.
	ConfigTried Config = "Tried"
	// ConfigSettled: the next boot uses the live configuration. This is the case for a node that booted from its disk and
	// has received no configuration since.
	ConfigSettled Config = "Settled"
	// ConfigStaged: the next boot uses another configuration than the live one.
	ConfigStaged Config = "Staged"
)

// Machine types of a configuration. A machine of type init never recovers an etcd: if it is empty, it bootstraps its
// own.
const (
	typeControlPlane = "controlplane"
	typeInit         = "init"
)

func (n Node) hasData() bool { return n.EtcdData == safety.DataPresent || n.Serves() }

func (n Node) empty() bool {
	return n.Answer == safety.AnswerMember && n.EtcdData == safety.DataAbsent && !n.Serves()
}

// waits reports whether etcd of the node waits for a bootstrap. It stops waiting for others after half an hour, but
// accepts a bootstrap even then.
func (n Node) waits() bool { return n.empty() && (n.EtcdWaiting || n.EtcdFailed) }

// Wipe is the record about the wipe of a node.
type Wipe struct {
	// Boot is the boot ID of the node when its wipe was recorded, before it was requested.
	Boot string
	// Times is how often the node was wiped.
	Times int
}

// Record is the recorded state of a restore.
type Record struct {
	// Step is the current step.
	Step v1alpha1.RestoreStep
	// Asked: the chosen machine was told, or was about to be told, to start etcd from the snapshot. Age is how long ago.
	Asked bool
	Age   time.Duration
	// Starting is how long the chosen machine has been observed without interruption, in its current boot, with data of
	// that etcd and without a response from it.
	Starting time.Duration
	// Size of the plain snapshot in bytes.
	Size int64
	// Wipes by machine.
	Wipes map[string]Wipe
	// Machine that was chosen, its Boot ID at that time, and Tries, how often a machine was chosen.
	Machine, Boot string
	Tries         int
	// Saved: the data that is about to be lost has been copied. SaveFailures counts failed attempts.
	Saved        bool
	SaveFailures int
	// Boots are the boot IDs of the nodes with data when it was copied or, without a copy, when the first step ended.
	// Noted is how long ago the last of these boots, or of those in Wipes, was recorded.
	Boots map[string]string
	Noted time.Duration
	// Again is how long RunsAgain has been true without interruption.
	Again time.Duration
	// HadQuorum: etcd was observed with quorum before anything was wiped. Leaderless is how long it has been observed
	// without a leader.
	HadQuorum  bool
	Leaderless time.Duration
}

// foreignData reports whether the node has data that does not remain from the operator's own attempt.
func (r Record) foreignData(n Node) bool { return n.hasData() && (r.Tries == 0 || n.Name != r.Machine) }

// reading returns how long a slow node needs to read the snapshot once.
func (r Record) reading() time.Duration { return time.Duration(r.Size/readRate) * time.Second }

// lost reports whether the call to start etcd should have shown an effect by now.
func (r Record) lost() bool { return r.Reading() == 0 }

// Reading returns for how long the chosen machine may still be processing the snapshot without a visible effect; zero
// if it is not processing one.
func (r Record) Reading() time.Duration {
	if !r.Asked {
		return 0
	}

	return max(0, lostCall+r.reading()-r.Age)
}

// stuck reports whether etcd should run from the snapshot by now. Time without observation, or before the node's
// current boot, does not count. The data may result from a call that was received although a later one was rejected, in
// which case no call is on record.
func (r Record) stuck() bool { return r.Starting > stuckStart+3*r.reading() }

// Action is the next action of a restore.
type Action int

// Actions.
const (
	// Wait for the condition that the reason names.
	Wait Action = iota
	// Next continues with another step.
	Next
	// Save copies the data of etcd from the first of the machines that can provide it.
	Save
	// IntendWipe records that the machines are about to be wiped.
	IntendWipe
	// WipeData wipes the machines whose wipes are recorded.
	WipeData
	// Choose records the machine that etcd is restored on.
	Choose
	// Upload sends the snapshot to the machine and starts etcd from it.
	Upload
	// Prove verifies what was restored.
	Prove
	// Finish verifies the whole cluster and ends the restore.
	Finish
	// Stop the restore; user action is required.
	Stop
)

// Decision is the result of Decide.
type Decision struct {
	// Action to take.
	Action Action
	// Step to continue with, for Next.
	Step v1alpha1.RestoreStep
	// Machines that the action applies to.
	Machines []string
	// Serving: Save takes a snapshot instead of a copy of the database file.
	Serving bool
	// Required: the restore may not continue without the copy that Save makes.
	Required bool
	// Reason is a condition reason.
	Reason string
	// Message for users.
	Message string
}
