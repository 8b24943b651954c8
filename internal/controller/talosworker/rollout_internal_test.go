package talosworker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// edit changes a machine of a test.
type edit func(*v1alpha1.TalosMachine)

// worker returns a ready machine that runs the desired configuration, unless edited.
func worker(i int, edits ...edit) v1alpha1.TalosMachine {
	m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w-%d", i)}}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionConfigured} {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}

	for _, e := range edits {
		e(&m)
	}

	m.Status.ComparedTo = rollout.ComparedTo(&v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}, &m)

	return m
}

func in(phase v1alpha1.ChangePhase) edit {
	return func(m *v1alpha1.TalosMachine) {
		m.Status.Change = &v1alpha1.MachineChange{ID: "change", Target: "2", Base: "1", Phase: phase, Reboot: true}
	}
}

var pending = in(v1alpha1.ChangePending)

func granted(m *v1alpha1.TalosMachine) { m.Spec.Change = &v1alpha1.ChangeGrant{ID: m.Status.Change.ID} }

func reverts(m *v1alpha1.TalosMachine) { m.Status.Change.Cause = v1alpha1.CauseRevert }

func upgrades(m *v1alpha1.TalosMachine) { m.Status.Change.Kind = v1alpha1.ChangeTalos }

func broken(m *v1alpha1.TalosMachine) { m.Status.Conditions[0].Status = metav1.ConditionFalse }

func worked(m *v1alpha1.TalosMachine) { m.Status.WorkingHash = "2" }

// decide does what the controller does with live machines: it makes a plan with all machines, and decides which ones
// begin.
func decide(t interface{ Fatal(...any) }, o rollout.Options, machines []v1alpha1.TalosMachine) (rollout.Output, []string) {
	before := &v1alpha1.PlanStatus{ID: "plan"}
	for _, m := range machines {
		before.Machines = append(before.Machines, v1alpha1.PlannedMachine{Name: m.Name, Target: "2", Base: "1"})
	}

	out, err := rollout.Assess(rollout.Input{
		Options: o, Machines: machines, ControlPlane: &v1alpha1.TalosControlPlane{}, Worker: &v1alpha1.TalosWorker{},
		Plan: before, Now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, c := range next(machines, o, &out) {
		names = append(names, c.Name)
	}

	return out, names
}

// limit parses a budget as users write it; an empty text results in none.
func limit(text string) *intstr.IntOrString {
	if text == "" {
		return nil
	}

	return new(intstr.Parse(text))
}

func TestNext(t *testing.T) {
	of := func(budget string, policy v1alpha1.RebootPolicy) rollout.Options {
		return rollout.Options{Budget: limit(budget), RebootPolicy: policy, Drift: v1alpha1.DriftReport}
	}
	two := of("2", v1alpha1.RebootAutomatic)
	byHand := of("100%", v1alpha1.RebootManual)
	staged, failed := in(v1alpha1.ChangeAwaitingReboot), in(v1alpha1.ChangeFailed)
	tolerant := of("1", v1alpha1.RebootAutomatic)
	tolerant.MaxFailed = limit("1")

	for _, tc := range []struct {
		name     string
		options  rollout.Options
		machines []v1alpha1.TalosMachine
		want     string
		waits    string
	}{
		{"the canary goes alone", two, []v1alpha1.TalosMachine{worker(0, pending), worker(1, pending), worker(2, pending)}, "w-0", ""},
		{"nobody follows it until it is done", two, []v1alpha1.TalosMachine{worker(0, pending, granted), worker(1, pending), worker(2, pending)}, "", ""},
		{"or while it settles", two, []v1alpha1.TalosMachine{worker(0, in(v1alpha1.ChangeSettling)), worker(1, pending)}, "", ""},
		{"then as many as the budget allows", two, []v1alpha1.TalosMachine{worker(0, worked), worker(1, pending), worker(2, pending), worker(3, pending)}, "w-1 w-2", ""},
		{"one by default", of("", v1alpha1.RebootAutomatic), []v1alpha1.TalosMachine{worker(0, worked), worker(1, pending), worker(2, pending)}, "w-1", ""},
		{"a part of the group", of("50%", v1alpha1.RebootAutomatic), []v1alpha1.TalosMachine{worker(0, worked), worker(1, pending), worker(2, pending), worker(3, pending)}, "w-1 w-2", ""},
		{"one where the budget cannot be read", of("many", v1alpha1.RebootAutomatic), []v1alpha1.TalosMachine{worker(0, worked), worker(1, pending), worker(2, pending)}, "w-1", ""},
		{"those under way use it up", two, []v1alpha1.TalosMachine{worker(0, worked), worker(1, pending, granted), worker(2, pending), worker(3, pending)}, "w-2", ""},
		{"and those that are broken for another reason", two, []v1alpha1.TalosMachine{worker(0, worked, broken), worker(1, broken), worker(2, pending)}, "", "budget of 2"},
		{"one that failed does, too", two, []v1alpha1.TalosMachine{worker(0, worked), worker(1, failed, broken), worker(2, pending)}, "", ""},
		{"but for those that may fail", tolerant, []v1alpha1.TalosMachine{worker(0, worked), worker(1, failed, broken), worker(2, pending), worker(3, pending)}, "w-2", ""},
		{"one that is rolled back uses it up", tolerant, []v1alpha1.TalosMachine{worker(0, worked), worker(1, pending, reverts, granted), worker(2, pending), worker(3, pending)}, "", ""},
		{"one that goes back goes at once", two, []v1alpha1.TalosMachine{worker(0, broken), worker(1, staged), worker(2, pending, reverts)}, "w-2", ""},
		{"a healthy one takes its turn", two, []v1alpha1.TalosMachine{worker(0, broken), worker(1, pending, reverts, upgrades)}, "", ""},
		{"and a broken one none", two, []v1alpha1.TalosMachine{worker(0, broken), worker(1, pending, reverts, upgrades, broken)}, "w-1", ""},
		{"a broken one that is to change needs none", of("1", v1alpha1.RebootAutomatic), []v1alpha1.TalosMachine{worker(0, worked), worker(1, pending, broken), worker(2, pending)}, "w-1", ""},
		{"one that goes back needs none", of("1", v1alpha1.RebootAutomatic), []v1alpha1.TalosMachine{worker(0, broken), worker(1, pending, reverts), worker(2, pending)}, "w-1", ""},
		{"a staged one has to survive before others are staged", byHand, []v1alpha1.TalosMachine{worker(0, staged, granted), worker(1, pending)}, "", "waiting for w-0 to be rebooted manually"},
		{"once one has, all are", byHand, []v1alpha1.TalosMachine{worker(0, worked), worker(1, staged, granted), worker(2, pending), worker(3, pending)}, "w-2 w-3", ""},
		{"one that was staged is rebooted when reboots are allowed", two, []v1alpha1.TalosMachine{worker(0, staged, granted), worker(1, pending)}, "w-0", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, names := decide(t, tc.options, tc.machines)
			if got := strings.Join(names, " "); got != tc.want || !strings.Contains(out.Plan.Message, tc.waits) {
				t.Errorf("%q begin, and the plan says %q", got, out.Plan.Message)
			}
		})
	}
}

// TestBudget: whatever the state of a group, no more machines are unavailable because of a rollout than the budget
// allows, the canary is disrupted alone, and no second machine is broken.
func TestBudget(t *testing.T) {
	states := []edit{
		func(*v1alpha1.TalosMachine) {}, pending, pending, pending, broken, worked,
		func(m *v1alpha1.TalosMachine) { pending(m); granted(m) },
		func(m *v1alpha1.TalosMachine) { pending(m); broken(m) },
		func(m *v1alpha1.TalosMachine) { in(v1alpha1.ChangeRebooting)(m); granted(m); broken(m) },
		func(m *v1alpha1.TalosMachine) { in(v1alpha1.ChangeSettling)(m); granted(m) },
		func(m *v1alpha1.TalosMachine) { in(v1alpha1.ChangeAwaitingReboot)(m); granted(m) },
	}

	rapid.Check(t, func(t *rapid.T) {
		o := rollout.Options{
			Budget:       limit(rapid.SampledFrom([]string{"", "1", "2", "5", "10%", "50%", "100%"}).Draw(t, "budget")),
			RebootPolicy: rapid.SampledFrom([]v1alpha1.RebootPolicy{v1alpha1.RebootAutomatic, v1alpha1.RebootManual}).Draw(t, "policy"),
		}

		var machines []v1alpha1.TalosMachine
		for i := range rapid.IntRange(1, 12).Draw(t, "machines") {
			machines = append(machines, worker(i, rapid.SampledFrom(states).Draw(t, "state")))
		}

		out, begin := decide(t, o, machines)

		allowed, done, away, sick := safety.Budget(o.Budget, len(machines)), false, 0, 0

		for _, m := range machines {
			isBroken := m.Status.Conditions[0].Status != metav1.ConditionTrue
			begins := slices.Contains(begin, m.Name)
			done = done || m.Status.WorkingHash == "2" && m.Status.Change == nil

			if begins && isBroken {
				sick++
			}

			if begins || isBroken || slices.Contains(out.Running, m.Name) {
				away++
			}
		}

		switch {
		case len(begin) > 0 && away > allowed && sick == 0:
			t.Fatalf("%v begin, and then %d of %d are away; %d may be", begin, away, len(machines), allowed)
		case !done && len(begin)+len(out.Running) > 1 && len(begin) > 0:
			t.Fatalf("%v begin beside %v before one was done", begin, out.Running)
		case sick > 1:
			t.Fatalf("%v begin, %d of them broken", begin, sick)
		}
	})
}

func TestCheckRollout(t *testing.T) {
	bad := &v1alpha1.RolloutOptions{Windows: []v1alpha1.MaintenanceWindow{{Schedule: "never"}}}
	if err := checkRollout("spec.rollout", bad); err == nil || !strings.Contains(err.Error(), "spec.rollout.windows[0]") {
		t.Errorf("got %v", err)
	}

	if err := checkRollout("spec.rollout", nil); err != nil {
		t.Error(err)
	}
}
