// Package rollout maintains the plan of a group of machines: which configurations change, whether a user has approved
// the plan, and which machine is next. It is pure; the controllers of the groups consult the safety package and act.
package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/schedule"
)

// Defaults of RolloutOptions.
const (
	// DefaultHealthTimeout is how long a machine may take to become healthy after a change.
	DefaultHealthTimeout = 10 * time.Minute
	// DefaultTryTimeout is how long a machine tries a change that could cut it off before it rolls the change back.
	DefaultTryTimeout = time.Minute
)

// Options are RolloutOptions with all defaults applied.
type Options struct {
	Approval      v1alpha1.Approval
	RebootPolicy  v1alpha1.RebootPolicy
	Windows       []schedule.Window
	Budget        *intstr.IntOrString
	MaxFailed     *intstr.IntOrString
	HealthTimeout time.Duration
	TryTimeout    time.Duration
	SoakTime      time.Duration
	Drift         v1alpha1.DriftPolicy
}

// OptionsOf merges the options of the control plane with those of a worker group, nil for the control plane itself. An
// option of the group replaces that of the control plane entirely.
func OptionsOf(cp *v1alpha1.TalosControlPlane, w *v1alpha1.TalosWorker) Options {
	o, drift := cp.Spec.Rollout, cp.Spec.Drift

	if w != nil {
		o = cmp.Or(w.Spec.Rollout, o)
		drift = cmp.Or(w.Spec.Drift, drift)
	}

	if o == nil {
		o = &v1alpha1.RolloutOptions{}
	}

	out := Options{
		Approval:      cmp.Or(o.Approval, v1alpha1.ApprovalAutomatic),
		RebootPolicy:  cmp.Or(o.RebootPolicy, v1alpha1.RebootAutomatic),
		Budget:        o.MaxUnavailable,
		MaxFailed:     o.MaxFailed,
		HealthTimeout: duration(o.HealthTimeout, DefaultHealthTimeout),
		TryTimeout:    duration(o.TryTimeout, DefaultTryTimeout),
		SoakTime:      duration(o.SoakTime, 0),
		Drift:         cmp.Or(drift, v1alpha1.DriftReport),
	}

	for _, w := range o.Windows {
		out.Windows = append(out.Windows, schedule.Window{
			Schedule: w.Schedule, Duration: w.Duration.Duration, TimeZone: w.TimeZone,
		})
	}

	return out
}

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil || d.Duration <= 0 {
		return otherwise
	}

	return d.Duration
}

// Input is the evidence for a decision.
type Input struct {
	// Options of the group.
	Options Options
	// Machines that are listed, read live, in the order of their disruption.
	Machines []v1alpha1.TalosMachine
	// ControlPlane of the cluster, and Worker if the group is a worker group. The machines must have been compared to both
	// before any change begins.
	ControlPlane *v1alpha1.TalosControlPlane
	Worker       *v1alpha1.TalosWorker
	// Patches are the versions of what the machines take from ConfigMaps and Secrets now, by their names; those of
	// machines that are missing are unknown.
	Patches map[string]string
	// First are the machines of the control plane, if the group is a worker group and those have to soak before it begins.
	First []v1alpha1.TalosMachine
	// Plan is the current plan; nil if there is none.
	Plan *v1alpha1.PlanStatus
	// Approved is the ID of the plan that a user approved.
	Approved string
	// Now is the current time.
	Now time.Time
}

// Output is a decision.
type Output struct {
	// Plan to report; nil if nothing has to change.
	Plan *v1alpha1.PlanStatus
	// Ready machines may begin their change according to the plan, in this order.
	Ready []Candidate
	// Running machines have begun and not ended their change.
	Running []string
	// Tolerated machines have failed, or are rolled back, and stop nothing, because few enough have.
	Tolerated []string
	// Done: a machine of the plan has been changed and was healthy afterwards, so the canary has succeeded.
	Done bool
	// Soaked: machines that were upgraded soak, or have soaked, so that what is part of their health has to hold before
	// the next one is.
	Soaked bool
	// Again is when to reconcile again; zero if only an event can change the decision.
	Again time.Time
}

// Candidate is a machine whose change may begin.
type Candidate struct {
	// Name of the machine.
	Name string
	// Change of the machine.
	Change v1alpha1.MachineChange
	// Reboot: the machine may be rebooted for the change. Otherwise a change that needs a reboot is staged.
	Reboot bool
	// staged: the configuration is already staged on the machine's disk.
	staged bool
}

// Assess updates the plan and determines which machines are next.
func Assess(in Input) (Output, error) {
	out := Output{Plan: planOf(in)}
	if out.Plan == nil {
		return out, nil
	}

	for i := range out.Plan.Machines {
		switch p := &out.Plan.Machines[i]; p.State {
		case v1alpha1.PlannedDone:
			out.Done = out.Done || survived(in, p)
		case v1alpha1.PlannedRunning:
			out.Running = append(out.Running, p.Name)
		case v1alpha1.PlannedPending, v1alpha1.PlannedAwaitingReboot, v1alpha1.PlannedFailed:
		}
	}

	out.Soaked = in.soaked(out.Plan, out.Done)

	return out, out.decide(in)
}

// survived reports whether the machine was healthy with the configuration or the Talos of the plan. A machine whose
// difference disappeared for another reason, because the change was reverted, proves nothing.
func survived(in Input, p *v1alpha1.PlannedMachine) bool {
	return slices.ContainsFunc(in.Machines, func(m v1alpha1.TalosMachine) bool {
		return m.Name == p.Name && (m.Status.WorkingHash == p.Target ||
			m.Status.WorkingSystem == p.Target && !runsOther(&m, p.Target))
	})
}

// runsOther reports whether a machine is known to run another system than the given one: it may have fallen back, which
// does not change with what it was healthy after its last upgrade.
func runsOther(m *v1alpha1.TalosMachine, system string) bool {
	i := m.Status.Image

	return i != nil && m.Status.TalosVersion != "" && upgrade.SystemHash(m.Status.TalosVersion, i.Schematic) != system
}

// say sets the phase and the message of the plan.
func (out *Output) say(phase v1alpha1.PlanPhase, message string) {
	out.Plan.Phase, out.Plan.Message = phase, kube.Shorten(message, longestMessage)
}

// longestMessage is the maximum length of a status message, in bytes.
const longestMessage = 1000

// decide sets the phase and the message of the plan, and the machines that may begin.
func (out *Output) decide(in Input) error {
	names, why := failed(in.Machines)

	if len(names) > in.mayFail() || len(names) > 0 && !out.Done {
		out.say(v1alpha1.PlanStopped, why)
		out.Ready = candidates(in, reverts)

		return nil
	}

	out.Tolerated = names

	if err := out.goOn(in); err != nil {
		return err
	}

	if len(names) > 0 {
		out.tolerate(in, why)
	}

	return nil
}

// goOn sets the phase and the message of the plan, and the machines that may begin, if no machine stops it.
func (out *Output) goOn(in Input) error {
	p := out.Plan

	if name := notCompared(in); name != "" {
		out.say(v1alpha1.PlanWaiting, "the plan is not complete: waiting for "+name)

		return nil
	}

	approved := in.Approved == p.ID || in.continues()
	if in.Options.Approval == v1alpha1.ApprovalManual && !approved {
		out.say(v1alpha1.PlanAwaitingApproval, "approval is required for plan "+p.ID)

		return nil
	}

	out.say(v1alpha1.PlanRollingOut, "")
	out.Ready = candidates(in, func(c *v1alpha1.MachineChange) bool { return approved || !undoesEdit(in, c) })

	if held := heldEdits(in, approved); len(held) > 0 {
		out.say(v1alpha1.PlanAwaitingApproval, fmt.Sprintf("plan %s requires approval: it would undo changes made "+
			"outside the operator on %s", p.ID, strings.Join(held, ", ")))
	}

	out.holdUnselected(in)
	out.holdSchematics(in)

	if err := out.holdReboots(in); err != nil {
		return err
	}

	out.holdSoaking(in)

	return nil
}

// continues reports whether the plan is one of an upgrade of Kubernetes that was approved with the plan of its first
// component.
func (in Input) continues() bool {
	u := in.ControlPlane.Status.Upgrade

	return in.Worker == nil && u != nil && u.Approved && UpgradesKubernetes(in.Machines)
}

// UpgradesKubernetes reports whether the changes of machines, at least one, are those of an upgrade of Kubernetes.
func UpgradesKubernetes(machines []v1alpha1.TalosMachine) bool {
	found := false

	for i := range machines {
		if c := machines[i].Status.Change; c != nil {
			found = true

			if c.Kind != v1alpha1.ChangeKubernetes {
				return false
			}
		}
	}

	return found
}

// holdReboots removes machines that would reboot from Ready while no maintenance window is open. An upgrade of
// Kubernetes reboots none, but restarts what clusters depend on, so it waits for one, too.
func (out *Output) holdReboots(in Input) error {
	open, next, err := in.Options.window(in.Now)
	if err != nil {
		return err
	}

	out.Again = next

	var kept []Candidate

	for _, c := range out.Ready {
		c.Reboot = c.Change.Reboot && in.Options.RebootPolicy != v1alpha1.RebootManual

		switch {
		case c.Reboot && !open, c.Change.Kind == v1alpha1.ChangeKubernetes && !open:
			if out.Plan.Phase == v1alpha1.PlanRollingOut {
				out.say(v1alpha1.PlanWaiting, "reboots and upgrades wait for the maintenance window that opens at "+
					out.Again.Format(time.RFC3339))
			}
		case c.Change.Kind == v1alpha1.ChangeTalos && !c.Reboot:
			if out.Plan.Phase == v1alpha1.PlanRollingOut {
				out.say(v1alpha1.PlanWaiting, "upgrades need reboots, and rebootPolicy is Manual")
			}
		case c.staged && !c.Reboot: // there is nothing left to do without a reboot
		default:
			kept = append(kept, c)
		}
	}

	out.Ready = kept

	return nil
}

// Now reports whether maintenance windows are open at the given time, and whether the operator may reboot a machine
// then.
func (o Options) Now(now time.Time) (open, reboots bool, err error) {
	open, _, err = o.window(now)

	return open, open && o.RebootPolicy != v1alpha1.RebootManual, err
}

// Hold sets what the next machine waits for, unless another message is set or a change is running.
func (out *Output) Hold(message string) {
	switch p := out.Plan; {
	case p == nil || len(out.Running) > 0:
	case p.Phase == v1alpha1.PlanRollingOut && p.Message != "": // which machines have failed
		out.say(v1alpha1.PlanWaiting, message+"; "+p.Message)
	case p.Phase == v1alpha1.PlanRollingOut:
		out.say(v1alpha1.PlanWaiting, message)
	case p.Phase == v1alpha1.PlanStopped && len(out.Ready) > 0: // what is rolled back waits, too
		out.say(v1alpha1.PlanStopped, p.Message+"; "+message)
	}
}

// planOf keeps a plan while it contains every difference, and creates a new one otherwise.
func planOf(in Input) *v1alpha1.PlanStatus {
	var current []v1alpha1.PlannedMachine

	for i := range in.Machines {
		if in.Machines[i].Status.Change != nil {
			current = append(current, planned(&in.Machines[i]))
		}
	}

	if len(current) == 0 {
		return nil
	}

	missing := func(p v1alpha1.PlannedMachine) bool { return !contains(in.Plan, p) }
	if in.Plan == nil || slices.ContainsFunc(current, missing) {
		return &v1alpha1.PlanStatus{
			ID: idOf(in.Machines), CreatedAt: metav1.NewTime(in.Now.UTC().Truncate(time.Second)), Machines: current,
		}
	}

	out := in.Plan.DeepCopy()
	out.Check = nil // only a machine that is about to begin has it made
	out.Machines = slices.DeleteFunc(out.Machines, func(p v1alpha1.PlannedMachine) bool {
		return !slices.ContainsFunc(in.Machines, func(m v1alpha1.TalosMachine) bool { return m.Name == p.Name })
	})

	for i := range out.Machines {
		p := &out.Machines[i]
		p.State = v1alpha1.PlannedDone

		if j := slices.IndexFunc(current, func(c v1alpha1.PlannedMachine) bool { return c.Name == p.Name }); j >= 0 {
			p.State = current[j].State
		}
	}

	return out
}

func planned(m *v1alpha1.TalosMachine) v1alpha1.PlannedMachine {
	c := m.Status.Change
	p := v1alpha1.PlannedMachine{
		Name: m.Name, Target: c.Target, Base: c.Base, Reboot: c.Reboot,
		Fields: int32(len(change.Names(c.Fields))) + c.MoreFields,
	}

	switch c.Phase {
	case v1alpha1.ChangePending:
		p.State = v1alpha1.PlannedPending
		if Granted(m) {
			p.State = v1alpha1.PlannedRunning
		}
	case v1alpha1.ChangeFailed:
		p.State = v1alpha1.PlannedFailed
	case v1alpha1.ChangeAwaitingReboot:
		p.State = v1alpha1.PlannedAwaitingReboot
		if mayReboot(m) {
			p.State = v1alpha1.PlannedRunning
		}
	case v1alpha1.ChangeDraining, v1alpha1.ChangeApplying, v1alpha1.ChangeRebooting, v1alpha1.ChangeSettling:
		p.State = v1alpha1.PlannedRunning
	}

	return p
}

// contains reports whether a change is part of the plan: a change that has begun is matched by its target alone.
func contains(plan *v1alpha1.PlanStatus, p v1alpha1.PlannedMachine) bool {
	return slices.ContainsFunc(plan.Machines, func(o v1alpha1.PlannedMachine) bool {
		return o.Name == p.Name && o.Target == p.Target && (o.Base == p.Base || p.State != v1alpha1.PlannedPending)
	})
}

// idOf derives the ID of a plan only from its differences, so that a reconciliation with a stale cache finds the
// existing plan. The ID differs from that of the same differences at a later time because it includes the IDs of the
// changes: once a change was allowed to begin, the next one has another ID, which no user has approved yet.
func idOf(machines []v1alpha1.TalosMachine) string {
	var lines []string

	for i := range machines {
		if c := machines[i].Status.Change; c != nil {
			lines = append(lines, fmt.Sprintf("%s %s %s %s\n", machines[i].Name, c.Base, c.Target, c.ID))
		}
	}

	// The order of disruption is not part of the ID, because it depends on the etcd leader, which changes.
	slices.Sort(lines)

	sum := sha256.Sum256([]byte(strings.Join(lines, "")))

	return hex.EncodeToString(sum[:])[:12]
}

// Moved reports whether a reconciliation has created, replaced or ended the plan. Such a status is written with a
// precondition: a stale cache must neither bring a plan back nor lose its progress.
func Moved(before, now *v1alpha1.PlanStatus) bool {
	if before == nil || now == nil {
		return before != now
	}

	return before.ID != now.ID
}

// Reverted reports whether a machine runs what it ran before because the change of before is not desired on it.
func Reverted(m *v1alpha1.TalosMachine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionUpToDate)

	return c != nil && c.Reason == v1alpha1.ReasonReverted
}

func answers(m *v1alpha1.TalosMachine) bool {
	return m.DeletionTimestamp.IsZero() && isTrue(m, v1alpha1.ConditionReachable) &&
		isTrue(m, v1alpha1.ConditionConfigured)
}

func isTrue(m *v1alpha1.TalosMachine, kind string) bool {
	return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == kind && c.Status == metav1.ConditionTrue
	})
}

// undoesEdit reports whether the change reverts a change that was made outside of the operator, although the policy
// does not demand that.
func undoesEdit(in Input, c *v1alpha1.MachineChange) bool {
	return len(c.Undoes) > 0 && in.Options.Drift != v1alpha1.DriftEnforce
}

func heldEdits(in Input, approved bool) []string {
	var names []string

	for i := range in.Machines {
		c := in.Machines[i].Status.Change
		if c != nil && c.Phase == v1alpha1.ChangePending && !approved && undoesEdit(in, c) {
			names = append(names, in.Machines[i].Name)
		}
	}

	return names
}

// candidates returns the reachable machines that have not begun, or that wait for a reboot which is not allowed yet.
func candidates(in Input, may func(*v1alpha1.MachineChange) bool) []Candidate {
	var out []Candidate

	for i := range in.Machines {
		m := &in.Machines[i]

		c := m.Status.Change
		if c == nil || !answers(m) || !may(c) || m.Status.ComparedTo == "" && c.Kind != v1alpha1.ChangeTalos {
			continue // what would be sent to a machine that was compared to nothing is unknown
		}

		staged := c.Phase == v1alpha1.ChangeAwaitingReboot && !mayReboot(m)
		if staged || c.Phase == v1alpha1.ChangePending && !Granted(m) {
			out = append(out, Candidate{Name: m.Name, Change: *c, Reboot: c.Reboot, staged: staged})
		}
	}

	return out
}

// Granted reports whether a machine may have begun its change, even if its status does not show it yet.
func Granted(m *v1alpha1.TalosMachine) bool {
	return m.Spec.Change != nil && m.Status.Change != nil && m.Spec.Change.ID == m.Status.Change.ID
}

// mayReboot reports whether the machine may be rebooted for its change.
func mayReboot(m *v1alpha1.TalosMachine) bool { return Granted(m) && m.Spec.Change.Reboot }
