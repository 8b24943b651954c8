package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// difference is what a plan contains about one machine.
type difference struct{ name, base, target string }

// group is a group of machines with its history: users change the spec, edit nodes, approve plans and revert machines;
// machines do what they are allowed to, become unreachable and fail.
type group struct {
	t        *rapid.T
	options  rollout.Options
	machines machines
	plan     *v1alpha1.PlanStatus
	approved string
	// planned are the differences from which each plan was made.
	planned map[string][]difference
	at      time.Time
	ids     int
}

func newGroup(t *rapid.T) *group {
	g := &group{t: t, at: now, planned: map[string][]difference{}, options: options()}
	g.options.Approval = rapid.SampledFrom([]v1alpha1.Approval{v1alpha1.ApprovalAutomatic, v1alpha1.ApprovalManual}).Draw(t, "approval")
	g.options.Drift = rapid.SampledFrom([]v1alpha1.DriftPolicy{v1alpha1.DriftReport, v1alpha1.DriftEnforce}).Draw(t, "drift")

	for i := range rapid.IntRange(1, 5).Draw(t, "machines") {
		g.machines = append(g.machines, machine(fmt.Sprint("m-", i), worked("0")))
	}

	return g
}

// want sets the desired configuration of every machine: those that run another one plan a change.
func (g *group) want(target string) {
	for i := range g.machines {
		g.describe(&g.machines[i], target)
	}
}

func (g *group) describe(m *v1alpha1.TalosMachine, target string) {
	live := m.Status.ConfigHash
	m.Status.Change = nil

	if live == target {
		return
	}

	g.ids++
	m.Status.Change = &v1alpha1.MachineChange{
		ID: fmt.Sprint("change-", g.ids), Base: live, Target: target, Phase: v1alpha1.ChangePending,
		Cause: v1alpha1.CauseSpec, Reboot: rapid.Bool().Draw(g.t, "reboot"),
	}

	if strings.HasPrefix(live, "edited") {
		m.Status.Change.Undoes = []string{"machine.y"}
	}
}

// event causes one event on one machine.
func (g *group) event() {
	m := &g.machines[rapid.IntRange(0, len(g.machines)-1).Draw(g.t, "machine")]
	c := m.Status.Change

	switch rapid.SampledFrom([]string{"edit", "fall silent", "answer", "go on", "go on", "go on", "fail", "retry", "revert"}).Draw(g.t, "event") {
	case "edit":
		if c != nil && c.Phase == v1alpha1.ChangePending {
			m.Status.ConfigHash = fmt.Sprint("edited", rapid.IntRange(0, 2).Draw(g.t, "edit"))
			g.describe(m, c.Target)
		}
	case "fall silent":
		m.Status.Conditions[0].Status = metav1.ConditionFalse
	case "answer":
		m.Status.Conditions[0].Status = metav1.ConditionTrue
	case "go on":
		g.goOn(m)
	case "fail":
		if c != nil && rollout.Granted(m) {
			c.Phase = v1alpha1.ChangeFailed
		}
	case "retry":
		if c != nil && c.Phase == v1alpha1.ChangeFailed {
			g.describe(m, c.Target)
		}
	case "revert":
		if c != nil && c.Phase == v1alpha1.ChangeFailed {
			c.Phase, c.Cause, c.Target = v1alpha1.ChangePending, v1alpha1.CauseRevert, m.Status.WorkingHash
			g.ids++
			c.ID = fmt.Sprint("change-", g.ids)
		}
	}
}

// goOn advances a change that may begin by one step.
func (g *group) goOn(m *v1alpha1.TalosMachine) {
	c := m.Status.Change

	switch {
	case c == nil || !rollout.Granted(m):
	case c.Phase == v1alpha1.ChangePending:
		c.Phase = v1alpha1.ChangeApplying
	case c.Phase == v1alpha1.ChangeApplying:
		c.Phase, m.Status.ConfigHash = v1alpha1.ChangeSettling, c.Target
	case c.Phase == v1alpha1.ChangeSettling:
		m.Status.WorkingHash, m.Status.Change = c.Target, nil
	}
}

// turn makes and checks a decision, and lets one machine begin, unless the operator crashes.
func (g *group) turn() {
	g.at = g.at.Add(time.Second)

	out, err := rollout.Assess(rollout.Input{
		Options: g.options, Machines: g.machines, ControlPlane: controlPlane(), Plan: g.plan, Approved: g.approved, Now: g.at,
	})
	if err != nil {
		g.t.Fatal(err)
	}

	g.checkPlan(out)
	g.checkReady(out)

	g.plan = out.Plan

	if len(out.Ready) > 0 && rapid.Bool().Draw(g.t, "one begins") {
		c := out.Ready[0]
		i := slices.IndexFunc(g.machines, func(m v1alpha1.TalosMachine) bool { return m.Name == c.Name })
		g.machines[i].Spec.Change = &v1alpha1.ChangeGrant{ID: c.Change.ID, Reboot: c.Reboot}
	}
}

// checkPlan: a plan contains all current differences, and only those from which it was made.
func (g *group) checkPlan(out rollout.Output) {
	var now []difference

	for _, m := range g.machines {
		if c := m.Status.Change; c != nil {
			now = append(now, difference{m.Name, c.Base, c.Target})
		}
	}

	if out.Plan == nil {
		if len(now) > 0 {
			g.t.Fatalf("no plan for %v", now)
		}

		return
	}

	id := out.Plan.ID
	if g.planned[id] == nil {
		if g.plan != nil && g.plan.ID == id {
			g.t.Fatal("a plan that nobody made")
		}

		g.planned[id] = now
	}

	for _, d := range now {
		i := slices.IndexFunc(g.planned[id], func(p difference) bool { return p.name == d.name })
		if i < 0 || g.planned[id][i].target != d.target {
			g.t.Fatalf("plan %s was made of %v, and stays although %v differs", id, g.planned[id], d)
		}
	}
}

// checkReady: a machine that may begin is reachable, has not begun, and does what was approved.
func (g *group) checkReady(out rollout.Output) {
	stopped := slices.ContainsFunc(g.machines, func(m v1alpha1.TalosMachine) bool {
		return m.Status.Change != nil && m.Status.Change.Phase == v1alpha1.ChangeFailed
	})

	for _, c := range out.Ready {
		i := slices.IndexFunc(g.machines, func(m v1alpha1.TalosMachine) bool { return m.Name == c.Name })
		m := &g.machines[i]

		switch ch := m.Status.Change; {
		case rollout.Granted(m), slices.Contains(out.Running, c.Name), ch.Phase != v1alpha1.ChangePending:
			g.t.Fatalf("%s begins twice: %+v", c.Name, ch)
		case m.Status.Conditions[0].Status != metav1.ConditionTrue:
			g.t.Fatalf("%s begins and is unreachable", c.Name)
		case ch.Cause == v1alpha1.CauseRevert:
		case stopped:
			g.t.Fatalf("%s begins although a machine failed", c.Name)
		default:
			g.checkAgreed(out.Plan.ID, difference{m.Name, ch.Base, ch.Target}, len(ch.Undoes) > 0)
		}
	}
}

// checkAgreed: a user has approved exactly this difference, if approval is required.
func (g *group) checkAgreed(plan string, d difference, undoes bool) {
	needed := g.options.Approval == v1alpha1.ApprovalManual || undoes && g.options.Drift == v1alpha1.DriftReport

	switch {
	case !needed:
	case plan != g.approved:
		g.t.Fatalf("%v begins, and plan %s has not been approved", d, plan)
	case !slices.Contains(g.planned[plan], d):
		g.t.Fatalf("%v begins, and what was approved is %v", d, g.planned[plan])
	}
}

// TestHistories: whatever happens to a group, no machine begins twice, while it is unreachable, after a failure, or
// with a difference that was not approved.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGroup(t)

		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "who") {
			case 0:
				g.want(fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "target")))
			case 1:
				if g.plan != nil {
					g.approved = g.plan.ID
				}
			case 2, 3, 4, 5:
				g.event()
			default:
				g.turn()
			}
		}
	})
}

// TestHistoriesEnd: once there is no more interference and the machines respond, every change is made.
func TestHistoriesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGroup(t)
		g.options.Approval, g.options.Drift = v1alpha1.ApprovalAutomatic, v1alpha1.DriftEnforce

		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			g.event()
			g.want("9")
			g.turn()
		}

		for i := range g.machines {
			g.machines[i].Status.Conditions[0].Status = metav1.ConditionTrue
		}

		g.want("9")

		// Four steps per machine, and turns may be lost to crashes.
		for range 400 {
			g.turn()

			for i := range g.machines {
				g.goOn(&g.machines[i])
			}
		}

		if g.turn(); g.plan != nil {
			t.Fatalf("left: %s: %s (%s)", g.plan.Phase, g.plan.Message, states(g.plan))
		}
	})
}
