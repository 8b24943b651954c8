package history

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// longestList is how many machines a record lists.
const longestList = 100

// takesPart reports whether a machine belongs to the cluster that is upgraded. The path of the control plane waits
// for the same machines: a worker that is not configured gets its versions with its first configuration.
func takesPart(m *v1alpha1.TalosMachine) bool {
	return m.DeletionTimestamp.IsZero() &&
		(m.Spec.WorkerRef == nil || meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured))
}

// versionsOf returns the versions of a component on a machine: one for Talos, one for each part of Kubernetes. One
// that is not known is empty.
func versionsOf(of upgrade.Component, m *v1alpha1.TalosMachine) []string {
	n := upgrade.NodeOf(m)

	switch {
	case of == upgrade.Talos:
		return []string{n.Talos}
	case !n.ControlPlane:
		return []string{n.Kubelet}
	}

	out := []string{
		n.Kubelet, n.Components[v1alpha1.ComponentAPIServer], n.Components[v1alpha1.ComponentControllerManager],
		n.Components[v1alpha1.ComponentScheduler],
	}

	if proxy := n.Components[v1alpha1.ComponentProxy]; proxy != "" { // it may be disabled
		out = append(out, proxy)
	}

	return out
}

// onlySchematic reports whether a run brings another schematic, or takes it away, and no other version.
func onlySchematic(spec *v1alpha1.UpgradeRunSpec) bool { return spec.From == spec.To }

// changeOf returns the change of a machine, if it is one of the run; nil otherwise.
func (in Input) changeOf(run *Run, m *v1alpha1.TalosMachine) *v1alpha1.MachineChange {
	c, spec := m.Status.Change, &run.Spec
	version, schematic := upgrade.Brings(c)

	switch {
	case c == nil:
	case in.Component == upgrade.Kubernetes:
		if c.Kind == v1alpha1.ChangeKubernetes && upgrade.VersionOf(machineconfig.TagOf(c.Image)) == spec.To {
			return c
		}
	case onlySchematic(spec):
		if version == "" && schematic != nil && (run.any || *schematic == spec.Schematic) {
			return c
		}
	case version == spec.To:
		return c
	}

	return nil
}

// progress returns the progress of each machine of a run, in the order of the machines.
func (in Input) progress(run *Run) []v1alpha1.UpgradeRunMachine {
	var out []v1alpha1.UpgradeRunMachine

	for i := range in.Machines {
		m := &in.Machines[i]

		at := slices.IndexFunc(run.Status.Machines, func(e v1alpha1.UpgradeRunMachine) bool { return e.Name == m.Name })

		// Who needs another schematic is known from its change alone.
		if !takesPart(m) || onlySchematic(&run.Spec) && at < 0 && in.changeOf(run, m) == nil {
			continue
		}

		was := v1alpha1.UpgradeRunMachine{Name: m.Name}
		if at >= 0 {
			was = run.Status.Machines[at]
		}

		out = append(out, in.entry(run, m, was))
	}

	return out
}

// entry returns the progress of one machine, of which was is known; that has no state if the machine is new to the
// run.
func (in Input) entry(run *Run, m *v1alpha1.TalosMachine, was v1alpha1.UpgradeRunMachine) v1alpha1.UpgradeRunMachine {
	out := was
	out.State, out.Message = in.stateOf(run, m, was.State), ""

	if out.From == "" && out.State != v1alpha1.UpgradeMachineDone {
		out.From = in.behind(run, m)
	}

	switch out.State {
	case v1alpha1.UpgradeMachinePending:
		out.StartedAt, out.CompletedAt = nil, nil
	case v1alpha1.UpgradeMachineInProgress:
		out.CompletedAt = nil
		if out.StartedAt == nil {
			out.StartedAt = in.stamp()
		}

		out.Message = heldBy(in.changeOf(run, m), m, was)
	case v1alpha1.UpgradeMachineFailed:
		out.Message = was.Message
		if c := in.changeOf(run, m); c != nil {
			out.Message = c.Message
		} else if out.Message == "" {
			out.Message = "rolled back"
		}

		if was.State != out.State {
			out.CompletedAt = in.stamp()
		}

		if out.StartedAt == nil {
			out.StartedAt = out.CompletedAt
		}
	case v1alpha1.UpgradeMachineDone:
		if was.State != "" && was.State != out.State {
			out.CompletedAt = in.stamp()
		}
	}

	return out
}

// heldBy says what holds the drain of a machine until a user intervenes; empty if nothing does. It lasts until the
// drain goes on: a machine that does not respond in between is held all the same, and its user is not told a second
// time.
func heldBy(c *v1alpha1.MachineChange, m *v1alpha1.TalosMachine, was v1alpha1.UpgradeRunMachine) string {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)

	switch {
	case c == nil || c.Phase != v1alpha1.ChangeDraining || ready == nil:
		return ""
	case ready.Reason == v1alpha1.ReasonDrainHeld:
		return kube.Shorten(ready.Message, longestMessage)
	case was.State == v1alpha1.UpgradeMachineInProgress && ready.Reason != v1alpha1.ReasonDraining:
		return was.Message
	}

	return ""
}

// stateOf returns the state of a machine of a run; was is that of before.
func (in Input) stateOf(
	run *Run, m *v1alpha1.TalosMachine, was v1alpha1.UpgradeMachineState,
) v1alpha1.UpgradeMachineState {
	c, other := in.changeOf(run, m), m.Status.Change
	some, all := in.reached(run, m, was)

	switch {
	case c != nil && c.Phase == v1alpha1.ChangeFailed,
		in.rolledBack(m) && was != "" && was != v1alpha1.UpgradeMachinePending:
		return v1alpha1.UpgradeMachineFailed
	case change.Begun(c):
		return v1alpha1.UpgradeMachineInProgress
	case was == v1alpha1.UpgradeMachineFailed && c == nil && (!all || isOf(in.Component, other)):
		return was // what failed was abandoned or replaced, and not tried again
	case all:
		return v1alpha1.UpgradeMachineDone
	case some:
		return v1alpha1.UpgradeMachineInProgress
	}

	return v1alpha1.UpgradeMachinePending
}

// rolledBack reports whether a machine returns, or has returned, to the Talos of before.
func (in Input) rolledBack(m *v1alpha1.TalosMachine) bool {
	if c := m.Status.Change; in.Component == upgrade.Talos && isOf(upgrade.Talos, c) {
		return c.Cause == v1alpha1.CauseRevert
	}

	return in.Component == upgrade.Talos && rollout.Reverted(m)
}

// isOf reports whether a change is one of a component.
func isOf(of upgrade.Component, c *v1alpha1.MachineChange) bool {
	return c != nil && string(c.Kind) == string(of)
}

// reached reports whether some and all of the components on a machine are where the run brings them.
func (in Input) reached(run *Run, m *v1alpha1.TalosMachine, was v1alpha1.UpgradeMachineState) (some, all bool) {
	if onlySchematic(&run.Spec) {
		// What a machine runs beside its version is in no status. What it was last healthy with after an upgrade is, and
		// that is outdated once it needs a change: it may have been rolled back by hand.
		return false, was == v1alpha1.UpgradeMachineDone && in.changeOf(run, m) == nil || m.Status.Change == nil &&
			m.Status.WorkingSystem == upgrade.SystemHash(run.Spec.To, run.Spec.Schematic)
	}

	versions := versionsOf(in.Component, m)
	left := slices.ContainsFunc(versions, func(v string) bool { return !isThere(&run.Spec, v) })

	return slices.ContainsFunc(versions, func(v string) bool { return isThere(&run.Spec, v) }), !left
}

// behind returns the first version on a machine that is not where the run brings it.
func (in Input) behind(run *Run, m *v1alpha1.TalosMachine) string {
	for _, v := range versionsOf(in.Component, m) {
		if v != "" && (onlySchematic(&run.Spec) || !isThere(&run.Spec, v)) {
			return v
		}
	}

	return ""
}

// isThere reports whether a version is that of a run, or past it in its direction: a path that goes on has machines
// beyond a run whose end was not observed in time.
func isThere(spec *v1alpha1.UpgradeRunSpec, version string) bool {
	if upgrade.Newer(spec.From, spec.To) {
		return version == spec.To || upgrade.Newer(spec.To, version)
	}

	return version == spec.To || upgrade.Newer(version, spec.To)
}

// ranks order what a bounded list keeps.
var ranks = map[v1alpha1.UpgradeMachineState]int{
	v1alpha1.UpgradeMachineFailed: 0, v1alpha1.UpgradeMachineInProgress: 1, v1alpha1.UpgradeMachineDone: 2,
	v1alpha1.UpgradeMachinePending: 3,
}

// shorten bounds a list of machines, which stays in the order of names.
func shorten(list []v1alpha1.UpgradeRunMachine) []v1alpha1.UpgradeRunMachine {
	if len(list) <= longestList {
		return list
	}

	slices.SortStableFunc(list, func(a, b v1alpha1.UpgradeRunMachine) int {
		return cmp.Compare(ranks[a.State], ranks[b.State])
	})

	list = list[:longestList]
	slices.SortFunc(list, func(a, b v1alpha1.UpgradeRunMachine) int { return strings.Compare(a.Name, b.Name) })

	return list
}
