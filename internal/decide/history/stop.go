package history

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// stops says why a run, or the part of it in one group of machines, does not go on without a user, although other
// groups may: a hook before it, or machines beyond what their group tolerates, have failed. It is empty if nothing has.
func (in Input) stops(run *Run, list []v1alpha1.UpgradeRunMachine) string {
	if hook := in.hookFailed(run); hook != "" {
		return hook
	}

	tolerated := func(e v1alpha1.UpgradeRunMachine) bool {
		return e.State == v1alpha1.UpgradeMachineFailed && in.tolerates(in.groupOf(e.Name))
	}
	if failed := failures(slices.DeleteFunc(slices.Clone(list), tolerated)); failed != "" {
		return failed
	}

	return in.stoppedBefore(list)
}

// hookFailed says which hook before a run has failed; empty if none has. No machine begins then.
func (in Input) hookFailed(run *Run) string {
	c := meta.FindStatusCondition(in.ControlPlane.Status.Conditions, v1alpha1.ConditionUpToDate)
	if c == nil || c.Reason != v1alpha1.ReasonUpgradeHookFailed || !in.isPlanned(run) {
		return ""
	}

	return c.Message
}

// manifestsRefused reports whether a run waits because the API server refuses its bootstrap manifests.
func (in Input) manifestsRefused(run *Run) bool {
	u := in.ControlPlane.Status.Upgrade

	return u != nil && u.Reason == v1alpha1.ReasonManifestsRefused && in.isPlanned(run)
}

// groupOf returns the name of the worker group of a machine; empty for one of the control plane.
func (in Input) groupOf(machine string) string {
	at := slices.IndexFunc(in.Machines, func(m v1alpha1.TalosMachine) bool { return m.Name == machine })
	if at < 0 {
		return ""
	}

	return workersOf(&in.Machines[at])
}

func workersOf(m *v1alpha1.TalosMachine) string {
	if m.Spec.WorkerRef == nil {
		return ""
	}

	return m.Spec.WorkerRef.Name
}

// tolerates reports whether the rollout of a worker group goes on although machines have failed. How many it tolerates
// is decided by its plan: one that has not stopped waits for something else, or goes on.
func (in Input) tolerates(group string) bool {
	return slices.ContainsFunc(in.Workers, func(w v1alpha1.TalosWorker) bool {
		p, may := w.Status.Plan, rollout.OptionsOf(in.ControlPlane, &w).MaxFailed

		return w.Name == group && may != nil && p != nil && p.Phase != v1alpha1.PlanStopped
	})
}

// stoppedBefore names the groups that have machines left to upgrade, and whose rollout has stopped at another kind of
// change, which comes first. A failed change of the kind of the run is not that: it may be one of another version, that
// the change of this run is about to replace.
func (in Input) stoppedBefore(list []v1alpha1.UpgradeRunMachine) string {
	var out []string

	say := func(group, name string, p *v1alpha1.PlanStatus) {
		if p == nil || p.Phase != v1alpha1.PlanStopped {
			return
		}

		failed := slices.ContainsFunc(in.Machines, func(m v1alpha1.TalosMachine) bool {
			c := m.Status.Change

			return c != nil && c.Phase == v1alpha1.ChangeFailed && !isOf(in.Component, c) && workersOf(&m) == group
		})
		left := slices.ContainsFunc(list, func(e v1alpha1.UpgradeRunMachine) bool {
			return e.State != v1alpha1.UpgradeMachineDone && in.groupOf(e.Name) == group
		})

		if failed && left {
			out = append(out, name+": "+p.Message)
		}
	}

	say("", in.ControlPlane.Name, in.ControlPlane.Status.Plan)

	for i := range in.Workers {
		say(in.Workers[i].Name, in.Workers[i].Name, in.Workers[i].Status.Plan)
	}

	slices.Sort(out)

	return strings.Join(out, "; ")
}
