package clusterstate

import (
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// UpgradePhase is how far the hooks of an upgrade are.
type UpgradePhase string

// Phases of an upgrade, in their order.
const (
	// UpgradePlanned: no machine has begun. The hooks before it run, or have yet to.
	UpgradePlanned UpgradePhase = "Planned"
	// UpgradeBegun: a machine may have begun; recorded before it is permitted.
	UpgradeBegun UpgradePhase = "Begun"
	// UpgradeOver: no machine is brought to the version any more. The hooks after it run.
	UpgradeOver UpgradePhase = "Over"
	// UpgradeFinished: nothing is left to do.
	UpgradeFinished UpgradePhase = "Finished"
)

// UpgradeRun is one version that the machines of the cluster are brought to.
type UpgradeRun struct {
	// Component is Talos or Kubernetes.
	Component string `json:"component"`
	From      string `json:"from"`
	To        string `json:"to"`
	// Attempt counts the runs of the cluster and the attempts of their hooks, so that no two of them have the same Jobs.
	Attempt   int       `json:"attempt"`
	PlannedAt time.Time `json:"plannedAt"`
	// Generation of the spec with which a hook failed: another one tries the hooks again.
	Generation int64        `json:"generation,omitempty"`
	Phase      UpgradePhase `json:"phase"`
	// Entered: a hook before the run has begun in any attempt, so the hooks after it have to run.
	Entered bool `json:"entered,omitempty"`
	// Outcome is how the run ended; empty before.
	Outcome v1alpha1.UpgradeRunPhase `json:"outcome,omitempty"`
	// Hooks that have begun in this attempt, in their order. One at a time runs, the last one.
	Hooks []HookRun `json:"hooks,omitempty"`
}

// HookRun is the Job of a hook, recorded before it is created.
type HookRun struct {
	Name      string                     `json:"name"`
	When      v1alpha1.HookTime          `json:"when"`
	OnFailure v1alpha1.HookFailurePolicy `json:"onFailure,omitempty"`
	Namespace string                     `json:"namespace"`
	Job       string                     `json:"job"`
	// ID is in the label of the Job: one of the same name with another ID is not this one.
	ID      string        `json:"id"`
	Timeout time.Duration `json:"timeout"`
	// SeenAt is when the Job was first observed; nil while it may not exist yet.
	SeenAt *time.Time `json:"seenAt,omitempty"`
	// EndedAt is when its end was observed; Failure says why it failed, empty after a success.
	EndedAt *time.Time `json:"endedAt,omitempty"`
	Failure string     `json:"failure,omitempty"`
}

// Current returns the hook that runs; nil if none does.
func (r *UpgradeRun) Current() *HookRun {
	if r == nil || len(r.Hooks) == 0 || r.Hooks[len(r.Hooks)-1].EndedAt != nil {
		return nil
	}

	return &r.Hooks[len(r.Hooks)-1]
}

// Copy returns a copy that shares nothing that changes; nil of nil.
func (r *UpgradeRun) Copy() *UpgradeRun {
	if r == nil {
		return nil
	}

	out := *r
	out.Hooks = slices.Clone(r.Hooks)

	return &out
}

// Closed returns the record of a run that is not continued, because the cluster is not the one any more in which its
// Jobs ran. It counts the attempts: a Job of one of them may exist, as it was in a backup. nil of nil.
func (r *UpgradeRun) Closed() *UpgradeRun {
	out := r.Copy()
	if out != nil {
		out.Phase, out.Hooks = UpgradeFinished, nil
	}

	return out
}

// Translate replaces the generation with which a hook failed when the control plane is copied: that of the source by
// that of the copy, and an older one, with which the hooks are due again, by none.
func (r *UpgradeRun) Translate(source, copied int64) {
	switch {
	case r == nil:
	case r.Generation == source:
		r.Generation = copied
	default:
		r.Generation = 0
	}
}

// times returns the times from which intervals are calculated; none of nil.
func (r *UpgradeRun) times() []*time.Time {
	if r == nil {
		return nil
	}

	out := []*time.Time{&r.PlannedAt}
	for i := range r.Hooks {
		out = append(out, r.Hooks[i].SeenAt)
	}

	return out
}

// normalized converts times to what survives encoding.
func (r *UpgradeRun) normalized() *UpgradeRun {
	out := r.Copy()
	if out == nil {
		return nil
	}

	out.PlannedAt = *seconds(&out.PlannedAt)

	for i := range out.Hooks {
		h := &out.Hooks[i]
		h.SeenAt, h.EndedAt = seconds(h.SeenAt), seconds(h.EndedAt)
	}

	return out
}
