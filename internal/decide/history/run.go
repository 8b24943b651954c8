package history

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// longestMessage is the maximum length of a message.
const longestMessage = 1000

// Planned returns the run that the machines of a cluster are brought through now, whether or not it is recorded; nil if
// there is none. From and To are the same where machines get other schematics: that of the spec is the one of the first
// machine.
func (in Input) Planned() *v1alpha1.UpgradeRunSpec {
	if run := in.begin(0); run != nil {
		return &run.Spec
	}

	return nil
}

// Brings returns the change that brings a machine to a version, or to any schematic where from and to are the same; nil
// if it has none.
func (in Input) Brings(from, to string, m *v1alpha1.TalosMachine) *v1alpha1.MachineChange {
	return in.changeOf(&Run{Spec: v1alpha1.UpgradeRunSpec{From: from, To: to}, any: true}, m)
}

// PhaseOf returns the phase of a run that brings a version, or schematics where from and to are the same, as its
// machines alone tell it.
func (in Input) PhaseOf(from, to string) v1alpha1.UpgradeRunPhase {
	run := Run{Spec: v1alpha1.UpgradeRunSpec{From: from, To: to}, any: true}

	if onlySchematic(&run.Spec) && !in.bringsSchematics() && !slices.ContainsFunc(in.Machines, in.wantsSchematic) {
		if slices.ContainsFunc(in.Machines, func(m v1alpha1.TalosMachine) bool { return in.rolledBack(&m) }) {
			return v1alpha1.UpgradeRunCalledOff
		}

		return v1alpha1.UpgradeRunSucceeded
	}

	return in.goOn(run).Status.Phase
}

// wantsSchematic reports whether a machine has yet to get another schematic.
func (in Input) wantsSchematic(m v1alpha1.TalosMachine) bool {
	return takesPart(&m) && upgrade.OnlySchematic(m.Status.Change) && !in.unselected(&m)
}

// goOn returns an open run as it is now.
func (in Input) goOn(run Run) Run {
	list := in.progress(&run)
	st := v1alpha1.UpgradeRunStatus{
		Conditions: slices.Clone(run.Status.Conditions), StartTime: run.Status.StartTime, Total: int32(len(list)),
	}

	if st.StartTime == nil {
		st.StartTime = in.stamp()
	}

	for _, e := range list {
		switch e.State {
		case v1alpha1.UpgradeMachineDone:
			st.Done++
		case v1alpha1.UpgradeMachineFailed:
			st.Failed++
		case v1alpha1.UpgradeMachinePending, v1alpha1.UpgradeMachineInProgress:
		}
	}

	st.Progress = fmt.Sprintf("%d/%d", st.Done, st.Total)
	st.Phase, st.Message = in.phase(&run, &st, list)
	st.PointOfNoReturn = in.pointOfNoReturn(&run, st.Phase)
	st.Message = kube.Shorten(st.Message, longestMessage)
	st.WaitingSince = in.waitingSince(&run.Status, &st)
	st.Machines = shorten(list)

	switch st.Phase {
	case v1alpha1.UpgradeRunSucceeded, v1alpha1.UpgradeRunFailed, v1alpha1.UpgradeRunCalledOff:
		st.CompletionTime = in.stamp()
	case v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunWaiting, v1alpha1.UpgradeRunStopped:
	}

	run.Status = st
	in.setConditions(&run)

	return run
}

// waitingSince returns since when a run has waited for what its message says; nil if it waits for nothing.
func (in Input) waitingSince(was, is *v1alpha1.UpgradeRunStatus) *metav1.Time {
	switch open := is.Phase == v1alpha1.UpgradeRunRunning || is.Phase == v1alpha1.UpgradeRunWaiting; {
	case !open || is.Message == "":
		return nil
	case was.Message == is.Message && was.WaitingSince != nil:
		return was.WaitingSince
	}

	return in.stamp()
}

// pointOfNoReturn tells whether a run can be called off; empty for one that takes a version back, for one of Talos, and
// where it is unknown. That it is passed stays true. That it is ahead is true of an open run only, and only as long as
// the control plane says so: it may be passed by now, and a finished run cannot be called off.
func (in Input) pointOfNoReturn(run *Run, phase v1alpha1.UpgradeRunPhase) v1alpha1.PointOfNoReturn {
	point := v1alpha1.PointOfNoReturn("")
	if u := in.ControlPlane.Status.Upgrade; u != nil && u.KubernetesBegun == run.Spec.To {
		point = u.PointOfNoReturn
	}

	ended := phase == v1alpha1.UpgradeRunFailed || phase == v1alpha1.UpgradeRunCalledOff

	switch {
	case in.Component != upgrade.Kubernetes || !upgrade.Newer(run.Spec.To, run.Spec.From):
		return ""
	case phase == v1alpha1.UpgradeRunSucceeded:
		return v1alpha1.PointOfNoReturnPassed
	case point == "", ended && point == v1alpha1.PointOfNoReturnAhead:
		if run.Status.PointOfNoReturn == v1alpha1.PointOfNoReturnPassed {
			return v1alpha1.PointOfNoReturnPassed
		}

		return ""
	}

	return point
}

// phase returns the phase of a run with these counts and machines, and what it waits for or why it ended.
func (in Input) phase(
	run *Run, st *v1alpha1.UpgradeRunStatus, list []v1alpha1.UpgradeRunMachine,
) (v1alpha1.UpgradeRunPhase, string) {
	all := st.Total > 0 && st.Done == st.Total
	planned := in.isPlanned(run) && (run.any || !onlySchematic(&run.Spec)) // another one may follow in the same step

	switch {
	case all && !planned:
		return v1alpha1.UpgradeRunSucceeded, ""
	case planned, in.unclear(), in.busy(run):
		return in.openPhase(run, list)
	case st.Failed > 0:
		return v1alpha1.UpgradeRunFailed, in.ended(run) + "; " + failures(list)
	}

	return v1alpha1.UpgradeRunCalledOff, in.ended(run)
}

// busy reports whether a machine does something for the run whatever the control plane plans now: a change that has
// begun goes on to its end.
func (in Input) busy(run *Run) bool {
	return slices.ContainsFunc(in.Machines, func(m v1alpha1.TalosMachine) bool {
		if !takesPart(&m) {
			return false
		}

		c := in.changeOf(run, &m)

		switch _, all := in.reached(run, &m, ""); {
		case onlySchematic(&run.Spec):
			// A configuration that differs comes first, so a change of that kind holds it, too.
			return in.awaitsSchematic() && m.Status.Change != nil && (upgrade.OnlySchematic(c) && !in.unselected(&m) ||
				isListed(run, m.Name)) || change.Begun(c) && c.Phase != v1alpha1.ChangeFailed
		case c != nil && c.Phase == v1alpha1.ChangeFailed:
			return all // it runs the version and is not healthy: it may become so, or be retried
		default:
			return change.Begun(c)
		}
	})
}

// awaitsSchematic reports whether machines that want another schematic get it: in a step of the path that may not have
// been planned yet.
func (in Input) awaitsSchematic() bool {
	return in.automatic() && (in.ControlPlane.Status.Upgrade == nil || in.bringsSchematics())
}

func (in Input) unselected(m *v1alpha1.TalosMachine) bool {
	return len(rollout.Unselected(in.ControlPlane, []v1alpha1.TalosMachine{*m})) > 0
}

func isListed(run *Run, name string) bool {
	return slices.ContainsFunc(run.Status.Machines, func(e v1alpha1.UpgradeRunMachine) bool {
		return e.Name == name && e.State != v1alpha1.UpgradeMachineDone
	})
}

// openPhase returns the phase of a run that has not ended.
func (in Input) openPhase(run *Run, list []v1alpha1.UpgradeRunMachine) (v1alpha1.UpgradeRunPhase, string) {
	changing := slices.ContainsFunc(in.Machines, func(m v1alpha1.TalosMachine) bool {
		c := in.changeOf(run, &m)

		return takesPart(&m) && change.Begun(c) && c.Phase != v1alpha1.ChangeFailed
	})

	switch stops, waits := in.stops(run, list), in.waits(run); {
	case stops != "":
		return v1alpha1.UpgradeRunStopped, stops
	case changing:
		return v1alpha1.UpgradeRunRunning, held(list)
	case waits != "":
		return v1alpha1.UpgradeRunWaiting, waits
	}

	return v1alpha1.UpgradeRunRunning, ""
}

// waits returns what a run waits for: what the path of the cluster waits for, else the plan of the control plane, else
// the first machine that has a change to begin, else the plan of the first worker group. It is empty if nothing is
// known to be in the way.
func (in Input) waits(run *Run) string {
	cp := in.ControlPlane
	if u := cp.Status.Upgrade; u != nil && u.Message != "" {
		return u.Message
	}

	if p := cp.Status.Plan; isWaiting(p) {
		return p.Message
	}

	for i := range in.Machines {
		m := &in.Machines[i]
		if c := in.changeOf(run, m); takesPart(m) && c != nil && !change.Begun(c) && c.Message != "" {
			return m.Name + ": " + c.Message
		}
	}

	for i := range in.Workers {
		if w := &in.Workers[i]; isWaiting(w.Status.Plan) && w.Status.Plan.Message != "" && w.DeletionTimestamp.IsZero() {
			return "TalosWorker " + w.Name + ": " + w.Status.Plan.Message
		}
	}

	return ""
}

func isWaiting(p *v1alpha1.PlanStatus) bool {
	return p != nil && (p.Phase == v1alpha1.PlanAwaitingApproval || p.Phase == v1alpha1.PlanWaiting)
}

// isPlanned reports whether the machines of the cluster are brought through a run now.
func (in Input) isPlanned(run *Run) bool {
	if onlySchematic(&run.Spec) {
		return in.bringsSchematics()
	}

	return in.planned(in.Component) == run.Spec.To
}

// failures names the machines that have failed, each with the reason.
func failures(list []v1alpha1.UpgradeRunMachine) string {
	var out []string

	for _, e := range list {
		if e.State == v1alpha1.UpgradeMachineFailed {
			out = append(out, fmt.Sprintf("%s failed: %s", e.Name, e.Message))
		}
	}

	return strings.Join(out, "; ")
}

// held says which machines wait for a user in the middle of their upgrade, and why. Each message begins with its
// machine.
func held(list []v1alpha1.UpgradeRunMachine) string {
	var out []string

	for _, e := range list {
		if e.State == v1alpha1.UpgradeMachineInProgress && e.Message != "" {
			out = append(out, e.Message)
		}
	}

	return strings.Join(out, "; ")
}

// ended says why a run ended before each machine was done.
func (in Input) ended(run *Run) string {
	for _, of := range []upgrade.Component{upgrade.Talos, upgrade.Kubernetes} {
		if version := in.planned(of); version != "" {
			return fmt.Sprintf("the cluster is brought to %s %s instead", of, version)
		}
	}

	if back := slices.IndexFunc(in.Machines, func(m v1alpha1.TalosMachine) bool { return in.rolledBack(&m) }); back >= 0 {
		return in.Machines[back].Name + " was rolled back"
	}

	if !in.automatic() {
		return fmt.Sprintf("spec.upgrade.%s is no longer Automatic", strings.ToLower(string(in.Component)))
	}

	return "the spec no longer asks for " + in.title(&run.Spec)
}

// reasons of the phases, for the condition Complete.
var reasons = map[v1alpha1.UpgradeRunPhase]string{
	v1alpha1.UpgradeRunRunning: v1alpha1.ReasonUpgrading, v1alpha1.UpgradeRunWaiting: v1alpha1.ReasonUpgradeWaiting,
	v1alpha1.UpgradeRunStopped: v1alpha1.ReasonUpgradeStopped, v1alpha1.UpgradeRunSucceeded: v1alpha1.ReasonUpgraded,
	v1alpha1.UpgradeRunFailed: v1alpha1.ReasonUpgradeFailed, v1alpha1.UpgradeRunCalledOff: v1alpha1.ReasonUpgradeCalledOff,
}

// setConditions sets the conditions of a run from its phase.
func (in Input) setConditions(run *Run) {
	st := &run.Status

	message := fmt.Sprintf("%d of %d machines run %s", st.Done, st.Total, in.title(&run.Spec))
	if st.Message != "" {
		message += ": " + st.Message
	}

	reason := reasons[st.Phase]
	if st.Phase == v1alpha1.UpgradeRunStopped && in.hookFailed(run) != "" {
		reason = v1alpha1.ReasonUpgradeHookFailed
	}

	if st.Phase == v1alpha1.UpgradeRunWaiting && in.manifestsRefused(run) {
		reason = v1alpha1.ReasonManifestsRefused
	}

	set := func(kind string, is bool) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, ObservedGeneration: 1,
			Message: kube.Shorten(message, longestMessage), LastTransitionTime: *in.stamp(),
		}

		switch {
		case is:
			c.Status = metav1.ConditionTrue
		case kind != v1alpha1.ConditionComplete:
			meta.RemoveStatusCondition(&st.Conditions, kind)

			return
		}

		meta.SetStatusCondition(&st.Conditions, c)
	}

	stopped := st.Phase == v1alpha1.UpgradeRunStopped

	set(v1alpha1.ConditionComplete, st.Phase == v1alpha1.UpgradeRunSucceeded)
	set(v1alpha1.ConditionReconciling, !Finished(st) && !stopped)
	set(v1alpha1.ConditionStalled, stopped || st.Phase == v1alpha1.UpgradeRunFailed)
}
