package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/schedule"
)

type machines = []v1alpha1.TalosMachine

// TestAssess tests the possible states of a group without an earlier plan.
func TestAssess(t *testing.T) {
	for _, tc := range []struct {
		name     string
		options  rollout.Options
		machines machines
		phase    v1alpha1.PlanPhase
		message  string
		ready    string
		running  string
		states   string
	}{
		{
			"all machines may begin, in their order", options(),
			machines{machine("b", pending("1", "2")), machine("a", pending("1", "2"), needsReboot), machine("c")},
			v1alpha1.PlanRollingOut, "", "b a*", "", "b:Pending a:Pending",
		},
		{
			"a person has to approve", options(manual),
			machines{machine("a", pending("1", "2"))},
			v1alpha1.PlanAwaitingApproval, "approval is required for plan", "", "", "a:Pending",
		},
		{
			"a machine that answers has not been compared", options(),
			machines{machine("a", pending("1", "2")), machine("b", notCompared)},
			v1alpha1.PlanWaiting, "not complete: waiting for b", "", "", "a:Pending",
		},
		{
			"one that is unreachable is not waited for", options(),
			machines{machine("a", pending("1", "2")), machine("b", notCompared, silent), machine("c", notCompared, unconfigured)},
			v1alpha1.PlanRollingOut, "", "a", "", "a:Pending",
		},
		{
			"nor does one begin that is unreachable, or goes", options(),
			machines{machine("a", pending("1", "2"), silent), machine("b", pending("1", "2"), deleted), machine("c", pending("1", "2"))},
			v1alpha1.PlanRollingOut, "", "c", "", "a:Pending b:Pending c:Pending",
		},
		{
			"a machine that may begin and does not show it runs", options(),
			machines{machine("a", pending("1", "2"), granted(false)), machine("b", pending("1", "2"))},
			v1alpha1.PlanRollingOut, "", "b", "a", "a:Running b:Pending",
		},
		{
			"what is under way runs", options(),
			machines{
				machine("a", differs("1", "2", v1alpha1.ChangeDraining)), machine("b", differs("1", "2", v1alpha1.ChangeApplying)),
				machine("c", differs("1", "2", v1alpha1.ChangeRebooting), silent), machine("d", differs("1", "2", v1alpha1.ChangeSettling)),
			},
			v1alpha1.PlanRollingOut, "", "", "a b c d", "a:Running b:Running c:Running d:Running",
		},
		{
			"a machine that failed stops the others", options(),
			machines{machine("a", pending("1", "2")), machine("b", differs("1", "2", v1alpha1.ChangeFailed), says("it is sick"))},
			v1alpha1.PlanStopped, "b: it is sick", "", "", "a:Pending b:Failed",
		},
		{
			"it is named once", options(),
			machines{machine("b", differs("1", "2", v1alpha1.ChangeFailed), says("b is sick"))},
			v1alpha1.PlanStopped, "b is sick", "", "", "b:Failed",
		},
		{
			"one that goes back goes, whatever is asked of the others", options(manual, closed),
			machines{machine("a", pending("1", "2")), machine("b", pending("2", "1"), reverts, needsReboot)},
			v1alpha1.PlanStopped, "b is rolled back", "b*", "", "a:Pending b:Pending",
		},
		{
			"one that went back keeps the others where they are", options(),
			machines{machine("a", pending("1", "2")), machine("b", wasReverted)},
			v1alpha1.PlanStopped, "b was rolled back: it runs", "", "", "a:Pending",
		},
		{
			"what would undo an edit waits for a person, the others do not", options(),
			machines{machine("a", pending("1", "2"), undoes), machine("b", pending("1", "2"))},
			v1alpha1.PlanAwaitingApproval, "outside the operator on a", "b", "", "a:Pending b:Pending",
		},
		{
			"unless edits are to be undone", options(enforce),
			machines{machine("a", pending("1", "2"), undoes)},
			v1alpha1.PlanRollingOut, "", "a", "", "a:Pending",
		},
		{
			"or a person takes the machine back", options(),
			machines{machine("a", pending("1", "2"), undoes, reverts)},
			v1alpha1.PlanStopped, "a is rolled back", "a", "", "a:Pending",
		},
		{
			"reboots wait for the window, other changes do not", options(closed),
			machines{machine("a", pending("1", "2"), needsReboot), machine("b", pending("1", "2"))},
			v1alpha1.PlanWaiting, "window that opens at 2026-11-01T13:00:00Z", "b", "", "a:Pending b:Pending",
		},
		{
			"and it does not hide that a person has to act", options(closed),
			machines{machine("a", pending("1", "2"), needsReboot), machine("b", pending("1", "2"), undoes)},
			v1alpha1.PlanAwaitingApproval, "outside the operator on b", "", "", "a:Pending b:Pending",
		},
		{
			"the window is open", options(open),
			machines{machine("a", pending("1", "2"), needsReboot)},
			v1alpha1.PlanRollingOut, "", "a*", "", "a:Pending",
		},
		{
			"without reboots a change is staged", options(byHand),
			machines{machine("a", pending("1", "2"), needsReboot)},
			v1alpha1.PlanRollingOut, "", "a", "", "a:Pending",
		},
		{
			"and stays so", options(byHand),
			machines{machine("a", differs("1", "2", v1alpha1.ChangeAwaitingReboot), needsReboot, granted(false))},
			v1alpha1.PlanRollingOut, "", "", "", "a:AwaitingReboot",
		},
		{
			"until reboots are allowed", options(),
			machines{machine("a", differs("1", "2", v1alpha1.ChangeAwaitingReboot), needsReboot, granted(false))},
			v1alpha1.PlanRollingOut, "", "a*", "", "a:AwaitingReboot",
		},
		{
			"in the window", options(closed),
			machines{machine("a", differs("1", "2", v1alpha1.ChangeAwaitingReboot), needsReboot, granted(false))},
			v1alpha1.PlanWaiting, "window", "", "", "a:AwaitingReboot",
		},
		{
			"once", options(),
			machines{machine("a", differs("1", "2", v1alpha1.ChangeAwaitingReboot), needsReboot, granted(true))},
			v1alpha1.PlanRollingOut, "", "", "a", "a:Running",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := assess(t, tc.options, nil, "", tc.machines...)
			if out.Plan.Phase != tc.phase || !strings.Contains(out.Plan.Message, tc.message) || strings.Contains(out.Plan.Message, "b: b") || tc.message == "" && out.Plan.Message != "" {
				t.Errorf("the plan is %s: %q", out.Plan.Phase, out.Plan.Message)
			}

			got := []string{ready(out), strings.Join(out.Running, " "), states(out.Plan)}
			if diff := cmp.Diff([]string{tc.ready, tc.running, tc.states}, got); diff != "" {
				t.Errorf("ready, running and states (-want +got):\n%s", diff)
			}

			if opens := now.Add(time.Hour); strings.Contains(tc.message, "window") && !out.Again.Equal(opens) {
				t.Errorf("look again at %s", out.Again)
			}
		})
	}
}

// TestNothingToDo: without a difference there is no plan, and an old one ends.
func TestNothingToDo(t *testing.T) {
	before := assess(t, options(), nil, "", machine("a", pending("1", "2"))).Plan
	if out := assess(t, options(), before, before.ID, machine("a", worked("2"))); out.Plan != nil || len(out.Ready) > 0 {
		t.Errorf("%+v", out)
	}
}

// TestPlanIsKept: progress changes only states; a difference that was not in the plan results in another plan.
func TestPlanIsKept(t *testing.T) {
	first := assess(t, options(manual), nil, "", machine("a", pending("1", "2"), needsReboot), machine("b", pending("1", "2"))).Plan

	want := []v1alpha1.PlannedMachine{
		{Name: "a", Base: "1", Target: "2", Fields: 3, Reboot: true, State: v1alpha1.PlannedPending},
		{Name: "b", Base: "1", Target: "2", Fields: 3, State: v1alpha1.PlannedPending},
	}
	if diff := cmp.Diff(want, first.Machines); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}

	for _, tc := range []struct {
		name     string
		machines machines
		kept     bool
		states   string
		done     bool
	}{
		{"nothing happened", machines{machine("a", pending("1", "2")), machine("b", pending("1", "2"))}, true, "a:Pending b:Pending", false},
		{"one is on its way", machines{machine("a", differs("1", "2", v1alpha1.ChangeRebooting)), machine("b", pending("1", "2"))}, true, "a:Running b:Pending", false},
		{"one was changed and is healthy", machines{machine("a", worked("2")), machine("b", pending("1", "2"))}, true, "a:Done b:Pending", true},
		{"one needs no change any more, and has never been healthy with it", machines{machine("a", worked("1")), machine("b", pending("1", "2"))}, true, "a:Done b:Pending", false},
		{"one left the list", machines{machine("b", pending("1", "2"))}, true, "b:Pending", false},
		{"one that has begun was edited", machines{machine("a", differs("3", "2", v1alpha1.ChangeSettling)), machine("b", pending("1", "2"))}, true, "a:Running b:Pending", false},
		{"one that has not begun was edited", machines{machine("a", pending("3", "2")), machine("b", pending("1", "2"))}, false, "a:Pending b:Pending", false},
		{"another config is wanted", machines{machine("a", pending("1", "3")), machine("b", pending("1", "2"))}, false, "a:Pending b:Pending", false},
		{"another config is wanted of one that has begun", machines{machine("a", differs("1", "3", v1alpha1.ChangeSettling)), machine("b", pending("1", "2"))}, false, "a:Running b:Pending", false},
		{"another machine differs", machines{machine("a", worked("2")), machine("b", pending("1", "2")), machine("c", pending("1", "2"))}, false, "b:Pending c:Pending", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := assess(t, options(manual), first, first.ID, tc.machines...)

			if kept := out.Plan.ID == first.ID; kept != tc.kept || states(out.Plan) != tc.states || out.Done != tc.done {
				t.Errorf("kept %t, states %s, done %t", kept, states(out.Plan), out.Done)
			}

			if tc.kept && !out.Plan.CreatedAt.Equal(&first.CreatedAt) {
				t.Errorf("made at %s", out.Plan.CreatedAt)
			}

			if !tc.kept && (out.Plan.Phase != v1alpha1.PlanAwaitingApproval || len(out.Ready) > 0) {
				t.Errorf("the approval of another plan lets %s begin (%s)", ready(out), out.Plan.Phase)
			}
		})
	}
}

// TestApproval: an approval applies only to the plan with its ID, including what that plan undoes.
func TestApproval(t *testing.T) {
	a, b := machine("a", pending("1", "2"), undoes), machine("b", pending("1", "2"))
	first := assess(t, options(manual), nil, "", a, b).Plan

	if out := assess(t, options(manual), first, first.ID, a, b); out.Plan.Phase != v1alpha1.PlanRollingOut || ready(out) != "a b" {
		t.Errorf("approved: %s, %s ready", out.Plan.Phase, ready(out))
	}

	if out := assess(t, options(), first, first.ID, a, b); out.Plan.Phase != v1alpha1.PlanRollingOut || ready(out) != "a b" {
		t.Errorf("approved without need: %s, %s ready", out.Plan.Phase, ready(out))
	}

	// The same differences occur again after they were made: repeating the change was not approved.
	again, err := rollout.Assess(rollout.Input{
		Options: options(manual), Machines: machines{machine("a", pending("1", "2"), undoes, another), b},
		ControlPlane: controlPlane(), Approved: first.ID, Now: now.Add(24 * time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}

	if again.Plan.Phase != v1alpha1.PlanAwaitingApproval || len(again.Ready) > 0 || again.Plan.ID == first.ID {
		t.Errorf("an approval of yesterday lets %s begin", ready(again))
	}
}

// TestPlanOfAStaleCache: a reconciliation that does not know the previous plan creates the same one, at another time
// and with another etcd leader, so that a user approves the plan that was printed.
func TestPlanOfAStaleCache(t *testing.T) {
	a, b := machine("a", pending("1", "2")), machine("b", pending("1", "3"))
	first := assess(t, options(manual), nil, "", a, b).Plan

	again, err := rollout.Assess(rollout.Input{
		Options: options(manual), Machines: machines{b, a}, ControlPlane: controlPlane(), Now: now.Add(3 * time.Millisecond),
	})
	if err != nil || again.Plan.ID != first.ID {
		t.Errorf("plan %s became %s: %v", first.ID, again.Plan.ID, err)
	}

	if rollout.Moved(first, again.Plan) || rollout.Moved(nil, nil) {
		t.Error("the same plan counts as another one")
	}

	if !rollout.Moved(nil, first) || !rollout.Moved(first, nil) ||
		!rollout.Moved(first, assess(t, options(manual), nil, "", a).Plan) {
		t.Error("another plan counts as the same")
	}
}

// TestWorkersAreComparedToTheirGroup: a machine counts as compared only once it was compared to the spec of its group
// as well.
func TestWorkersAreComparedToTheirGroup(t *testing.T) {
	w := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
	m := machine("a", pending("1", "2"))

	in := rollout.Input{Options: options(), Machines: machines{m}, ControlPlane: controlPlane(), Worker: w, Now: now}
	if out, err := rollout.Assess(in); err != nil || out.Plan.Phase != v1alpha1.PlanWaiting {
		t.Errorf("compared to another generation of the group: %+v, %v", out.Plan, err)
	}

	in.Machines[0].Status.ComparedTo = rollout.ComparedTo(controlPlane(), w, &m)
	if out, err := rollout.Assess(in); err != nil || out.Plan.Phase != v1alpha1.PlanRollingOut {
		t.Errorf("compared to the group as it is: %+v, %v", out.Plan, err)
	}
}

func TestBadWindow(t *testing.T) {
	o := options(closed)
	o.Windows[0].TimeZone = "Nowhere/Land"

	in := rollout.Input{Options: o, Machines: machines{machine("a", pending("1", "2"))}, ControlPlane: controlPlane(), Now: now}
	if _, err := rollout.Assess(in); err == nil || !strings.Contains(err.Error(), "maintenance windows") {
		t.Errorf("got %v", err)
	}
}

// TestHold: the reason why no machine begins is reported if there is no other message.
func TestHold(t *testing.T) {
	out := assess(t, options(), nil, "", machine("a", pending("1", "2")))
	out.Hold("waiting for the moon")

	if out.Plan.Phase != v1alpha1.PlanWaiting || out.Plan.Message != "waiting for the moon" {
		t.Errorf("%s: %s", out.Plan.Phase, out.Plan.Message)
	}

	for _, out := range []rollout.Output{
		assess(t, options(manual), nil, "", machine("a", pending("1", "2"))),
		assess(t, options(), nil, "", machine("a", pending("1", "2"), granted(false))),
	} {
		before := out.Plan.DeepCopy()

		if out.Hold("waiting for the moon"); cmp.Diff(before, out.Plan) != "" {
			t.Errorf("%+v", out.Plan)
		}
	}

	none := rollout.Output{}
	none.Hold("nothing to hold")

	// What is rolled back while a rollout is stopped waits for something, too.
	back := assess(t, options(), nil, "", machine("a", pending("2", "1"), reverts))
	if back.Hold("waiting for the moon"); back.Plan.Phase != v1alpha1.PlanStopped ||
		!strings.HasSuffix(back.Plan.Message, "config; waiting for the moon") {
		t.Errorf("%s: %s", back.Plan.Phase, back.Plan.Message)
	}
}

// TestLargeGroup: no message exceeds the limit of the schema, which would make the status invalid.
func TestLargeGroup(t *testing.T) {
	const size, longest = 600, 1024

	group := func(edits ...edit) machines {
		var out machines
		for i := range size {
			out = append(out, machine(fmt.Sprintf("a-machine-with-a-long-name-%d", i), edits...))
		}

		return out
	}

	long := says(strings.Repeat("x", 1000))

	for name, m := range map[string]machines{
		"not compared": append(group(notCompared), machine("a", pending("1", "2"))),
		"edited":       group(pending("1", "2"), undoes),
		"failed":       group(differs("1", "2", v1alpha1.ChangeFailed), long),
	} {
		p := assess(t, options(), nil, "", m...).Plan
		if len(p.Message) > longest || !strings.Contains(p.Message, "a-machine-with-a-long-name-0") {
			t.Errorf("%s: a message of %d bytes: %s", name, len(p.Message), p.Message)
		}
	}

	out := assess(t, options(), nil, "", machine("a", pending("1", "2")))
	if out.Hold(strings.Repeat("x", 2000)); len(out.Plan.Message) > longest {
		t.Errorf("a message of %d bytes", len(out.Plan.Message))
	}
}

// TestOptionsOf: an option of the group replaces that of the control plane entirely, and defaults fill the rest.
func TestOptionsOf(t *testing.T) {
	cp := controlPlane()
	defaults := rollout.Options{
		Approval: v1alpha1.ApprovalAutomatic, RebootPolicy: v1alpha1.RebootAutomatic, Drift: v1alpha1.DriftReport,
		HealthTimeout: rollout.DefaultHealthTimeout, TryTimeout: rollout.DefaultTryTimeout,
	}

	if diff := cmp.Diff(defaults, rollout.OptionsOf(cp, &v1alpha1.TalosWorker{})); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}

	cp.Spec.Drift = v1alpha1.DriftEnforce
	cp.Spec.Rollout = &v1alpha1.RolloutOptions{
		Approval: v1alpha1.ApprovalManual, RebootPolicy: v1alpha1.RebootWindow, MaxUnavailable: new(intstr.FromInt32(2)),
		Windows:       []v1alpha1.MaintenanceWindow{{Schedule: "0 1 * * *", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "UTC"}},
		HealthTimeout: &metav1.Duration{Duration: time.Minute}, TryTimeout: &metav1.Duration{Duration: time.Second},
	}
	full := rollout.Options{
		Approval: v1alpha1.ApprovalManual, RebootPolicy: v1alpha1.RebootWindow, Budget: new(intstr.FromInt32(2)), Drift: v1alpha1.DriftEnforce,
		Windows:       []schedule.Window{{Schedule: "0 1 * * *", Duration: time.Hour, TimeZone: "UTC"}},
		HealthTimeout: time.Minute, TryTimeout: time.Second,
	}

	for _, w := range []*v1alpha1.TalosWorker{nil, {}} {
		if diff := cmp.Diff(full, rollout.OptionsOf(cp, w)); diff != "" {
			t.Errorf("of the control plane (-want +got):\n%s", diff)
		}
	}

	w := &v1alpha1.TalosWorker{}
	w.Spec.Rollout, w.Spec.Drift = &v1alpha1.RolloutOptions{MaxUnavailable: new(intstr.FromString("50%"))}, v1alpha1.DriftAdopt
	defaults.Budget, defaults.Drift = new(intstr.FromString("50%")), v1alpha1.DriftAdopt

	if diff := cmp.Diff(defaults, rollout.OptionsOf(cp, w)); diff != "" {
		t.Errorf("of the group (-want +got):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	good := v1alpha1.MaintenanceWindow{Schedule: "0 1 * * *", Duration: metav1.Duration{Duration: time.Hour}}

	if err := rollout.Validate(nil); err != nil {
		t.Error(err)
	}

	if err := rollout.Validate(&v1alpha1.RolloutOptions{Windows: []v1alpha1.MaintenanceWindow{good}}); err != nil {
		t.Error(err)
	}

	for _, bad := range []v1alpha1.MaintenanceWindow{
		{Schedule: "0 1 * *", Duration: good.Duration},
		{Schedule: good.Schedule},
		{Schedule: good.Schedule, Duration: good.Duration, TimeZone: "Nowhere/Land"},
	} {
		err := rollout.Validate(&v1alpha1.RolloutOptions{Windows: []v1alpha1.MaintenanceWindow{good, bad}})
		if err == nil || !strings.Contains(err.Error(), "windows[1]") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestReport: a plan explains why a group is not up to date, and without a plan the machines do. What no machine has
// reported is unknown.
func TestReport(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason string) edit {
		return func(m *v1alpha1.TalosMachine) {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionUpToDate, Status: status, Reason: reason, Message: "says " + reason,
			})
		}
	}
	plan := &v1alpha1.PlanStatus{ID: "p", Phase: v1alpha1.PlanRollingOut, Machines: []v1alpha1.PlannedMachine{
		{Name: "a", State: v1alpha1.PlannedDone},
		{Name: "b", State: v1alpha1.PlannedRunning},
		{Name: "c", State: v1alpha1.PlannedPending},
		{Name: "d", State: v1alpha1.PlannedPending},
	}}
	stopped := plan.DeepCopy()
	stopped.Phase, stopped.Message = v1alpha1.PlanStopped, "b is sick"

	for _, tc := range []struct {
		name            string
		plan            *v1alpha1.PlanStatus
		machines        machines
		status          metav1.ConditionStatus
		reason, message string
	}{
		{
			"up to date", nil,
			machines{machine("a", condition(metav1.ConditionTrue, "UpToDate"))},
			metav1.ConditionTrue,
			"UpToDate", "all machines run the desired configuration",
		},
		{
			"one that was never asked", nil, machines{
				machine("a", condition(metav1.ConditionTrue, "UpToDate")), machine("c", condition(metav1.ConditionUnknown, "Unknown")),
				machine("b"),
			}, metav1.ConditionUnknown, "WaitingForMachines", "not yet observed: b, c",
		},
		{"no machine yet", nil, nil, metav1.ConditionUnknown, "WaitingForMachines", "machines are being created"},
		{
			"one that has not seen an edit yet", nil, machines{
				machine("a", condition(metav1.ConditionTrue, "UpToDate")),
				machine("b", condition(metav1.ConditionTrue, "UpToDate"), notCompared),
			}, metav1.ConditionUnknown, "WaitingForMachines", "not yet compared to the current spec: b",
		},
		{
			"one machine", nil,
			machines{machine("a", condition(metav1.ConditionFalse, "Drifted")), machine("b")},
			metav1.ConditionFalse, "Drifted", "a: says Drifted",
		},
		{
			"machines of two minds", nil,
			machines{machine("a", condition(metav1.ConditionFalse, "Drifted")), machine("b", condition(metav1.ConditionFalse, "UpgradePending"))},
			metav1.ConditionFalse, "ConfigDiffers", "a: says Drifted; b: says UpgradePending",
		},
		{"a plan", plan, nil, metav1.ConditionFalse, "RollingOut", "plan p (a Done, b Running, 2 Pending)"},
		{
			"a plan that stopped", stopped, nil, metav1.ConditionFalse, "RolloutStopped",
			"plan p (a Done, b Running, 2 Pending): b is sick",
		},
	} {
		status, reason, message := rollout.Report(controlPlane(), nil, tc.plan, max(1, len(tc.machines)), tc.machines)
		if status != tc.status || reason != tc.reason || message != tc.message {
			t.Errorf("%s: %s: %s: %s", tc.name, status, reason, message)
		}
	}

	for phase, reason := range map[v1alpha1.PlanPhase]string{
		v1alpha1.PlanAwaitingApproval: v1alpha1.ReasonAwaitingApproval, v1alpha1.PlanWaiting: v1alpha1.ReasonRolloutWaiting,
		v1alpha1.PlanRollingOut: v1alpha1.ReasonRollingOut, v1alpha1.PlanStopped: v1alpha1.ReasonRolloutStopped,
	} {
		if _, got, _ := rollout.Report(controlPlane(), nil, &v1alpha1.PlanStatus{Phase: phase}, 0, nil); got != reason {
			t.Errorf("%s shows as %s", phase, got)
		}
	}

	if rollout.Pending(machines{machine("a")}) || !rollout.Pending(machines{machine("a"), machine("b", pending("1", "2"))}) {
		t.Error("Pending")
	}
}
