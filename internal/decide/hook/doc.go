// Package hook decides which hooks of an upgrade run when: Jobs in the managed cluster, before the first machine begins
// a version, and after no machine is brought to it any more. It is pure: the spec, the record, the plan and what was
// observed of one Job in, the next record and the Job to create out.
//
// The record is written before a Job is created, and before the first machine may begin. A caller may die between any
// two of its acts: the next decision is made anew from the record and from what is observed.
package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// DefaultTimeout is how long the Job of a hook may take.
const DefaultTimeout = 10 * time.Minute

// JobState is what was observed of a Job.
type JobState int

// States of Jobs.
const (
	// JobUnknown: the API of the cluster did not respond.
	JobUnknown JobState = iota
	JobAbsent
	// JobForeign: there is a Job of that name with another label.
	JobForeign
	JobRunning
	JobSucceeded
	JobFailed
)

// Job is the observation of the Job of the hook that runs.
type Job struct {
	State JobState
	// Message says why it failed, or why nothing is known.
	Message string
}

// Planned is the version that machines are brought to now: the one of before, where they get other schematics only.
type Planned struct {
	Component upgrade.Component
	From, To  string
}

// Back reports whether an upgrade of Kubernetes is taken back. No hook delays that: it belongs to the end of the
// upgrade that was called off.
func (p *Planned) Back() bool { return p != nil && upgrade.Newer(p.From, p.To) }

// Is reports whether a recorded run is what is planned.
func (p *Planned) Is(run *clusterstate.UpgradeRun) bool {
	return run.Component == string(p.Component) && run.To == p.To && (run.From == run.To) == (p.From == p.To)
}

// title names what a run brings.
func title(run *clusterstate.UpgradeRun) string {
	out := run.Component + " " + run.To
	if run.From == run.To {
		out += " with another schematic"
	}

	return out
}

// Input is what was observed.
type Input struct {
	// UID of the cluster's control plane, and Name, for messages.
	UID, Name string
	Hooks     []v1alpha1.UpgradeHook
	// Record is what the state of the cluster holds; nil if there is nothing.
	Record *clusterstate.UpgradeRun
	// Planned is nil if nothing is, or if it is not known.
	Planned *Planned
	// Backup: the planned version waits for a backup, so it is recorded even without a hook.
	Backup bool
	// Busy: a machine has begun to be brought there, or has failed with it.
	Busy bool
	// Moving: a machine has begun to be brought to the version of the record, and has not ended or failed.
	Moving bool
	// Halted: a control-plane machine has failed with the version of the record, which is still planned, and nothing goes
	// on without a user.
	Halted bool
	// Phase of the recorded run, by its machines.
	Phase v1alpha1.UpgradeRunPhase
	// Ready: nothing but hooks keeps the first machine from beginning.
	Ready bool
	// Retry: a user wants failed hooks to run again. Generation is that of the spec: another one does it, too.
	Retry      bool
	Generation int64
	// Job of the hook that the record says is running.
	Job Job
	Now time.Time
}

// Output is a decision.
type Output struct {
	// Record to write before anything else.
	Record *clusterstate.UpgradeRun
	// Create is the hook whose Job is created; nil if none is.
	Create *clusterstate.HookRun
	// Ended are the hooks whose end was observed now.
	Ended []clusterstate.HookRun
	// Begin: the first machine may begin, or has begun.
	Begin bool
	// Reason and Message say why no machine may begin; empty if hooks are not the reason.
	Reason, Message string
	// Poll: a Job runs, of which no event tells.
	Poll bool
}

// stamp returns the moment as a record holds it.
func (in Input) stamp() *time.Time {
	t := in.Now.UTC().Truncate(time.Second)

	return &t
}

// spec returns a hook of the spec; nil if it is not there any more.
func (in Input) spec(name string, when v1alpha1.HookTime) *v1alpha1.UpgradeHook {
	for i := range in.Hooks {
		if h := &in.Hooks[i]; h.Name == name && h.When == when {
			return h
		}
	}

	return nil
}

// next returns the first hook of a time that has not begun; nil if there is none.
func (in Input) next(run *clusterstate.UpgradeRun, when v1alpha1.HookTime) *v1alpha1.UpgradeHook {
	for i := range in.Hooks {
		h, begun := &in.Hooks[i], false
		for _, r := range run.Hooks {
			begun = begun || r.Name == h.Name && r.When == when
		}

		if h.When == when && !begun {
			return h
		}
	}

	return nil
}

// newHook returns the record of a hook that begins. The name of its Job follows from the run and the attempt alone, so
// it is the same wherever it is computed.
func (in Input) newHook(run *clusterstate.UpgradeRun, h *v1alpha1.UpgradeHook) clusterstate.HookRun {
	of := fmt.Sprintf("%s/%s/%s/%s/%d/%s", in.UID, run.Component, run.From, run.To, run.Attempt, h.Name)

	out := clusterstate.HookRun{
		Name: h.Name, When: h.When, OnFailure: h.OnFailure, Namespace: h.Namespace, Timeout: DefaultTimeout,
		Job: "upgrade-" + strings.Trim(h.Name, "-") + "-" + hash(of, 5), ID: hash(of+in.stamp().Format(time.RFC3339), 10),
	}

	if h.Timeout != nil {
		out.Timeout = h.Timeout.Duration
	}

	return out
}

func hash(text string, bytes int) string {
	sum := sha256.Sum256([]byte(text))

	return hex.EncodeToString(sum[:bytes])
}

// Describe names a hook and its Job.
func Describe(run *clusterstate.UpgradeRun, h *clusterstate.HookRun) string {
	return fmt.Sprintf("hook %s %s %s (Job %s/%s)", h.Name, strings.ToLower(string(h.When)), title(run),
		h.Namespace, h.Job)
}
