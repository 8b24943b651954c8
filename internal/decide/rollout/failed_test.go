package rollout_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

func soaking(o *rollout.Options) { o.SoakTime = soakTime }

// last is not selected by the selector of TestMaxFailed.
func last(m *v1alpha1.TalosMachine) { m.Labels = map[string]string{"ring": "last"} }

func unwanted(target string) edit {
	return func(m *v1alpha1.TalosMachine) { m.Annotations = map[string]string{v1alpha1.RevertAnnotation: target} }
}

// TestMaxFailed: workers that have failed stop the others once they are too many, and never before one has succeeded.
func TestMaxFailed(t *testing.T) {
	sick := []edit{differs("1", "2", v1alpha1.ChangeFailed), says("it is sick")}
	back := []edit{pending("2", "1"), reverts, needsReboot}

	for name, c := range map[string]struct {
		maxFailed string
		worker    bool
		edits     []func(*rollout.Options)
		a, b, c   []edit
		done      bool
		phase     v1alpha1.PlanPhase
		message   string
		ready     string
		tolerated string
	}{
		"none by default":                 {"", true, nil, sick, []edit{pending("1", "2")}, nil, true, v1alpha1.PlanStopped, "a: it is sick", "", ""},
		"one may":                         {"1", true, nil, sick, []edit{pending("1", "2")}, nil, true, v1alpha1.PlanRollingOut, "1 of at most 1 machines have failed: a: it is sick", "b", "a"},
		"two are too many":                {"1", true, nil, sick, []edit{pending("1", "2")}, sick, true, v1alpha1.PlanStopped, "a: it is sick", "", ""},
		"a part of the group":             {"50%", true, nil, sick, []edit{pending("1", "2")}, sick, true, v1alpha1.PlanRollingOut, "2 of at most 2", "b", "a c"},
		"rounded down":                    {"20%", true, nil, sick, []edit{pending("1", "2")}, nil, true, v1alpha1.PlanStopped, "a: it is sick", "", ""},
		"what cannot be read":             {"many", true, nil, sick, []edit{pending("1", "2")}, nil, true, v1alpha1.PlanStopped, "a: it is sick", "", ""},
		"no control plane":                {"2", false, nil, sick, []edit{pending("1", "2")}, nil, true, v1alpha1.PlanStopped, "a: it is sick", "", ""},
		"the first one succeeds":          {"2", true, nil, sick, []edit{pending("1", "2")}, nil, false, v1alpha1.PlanStopped, "a: it is sick", "", ""},
		"nothing else is left":            {"1", true, nil, sick, nil, nil, true, v1alpha1.PlanStopped, "a: it is sick", "", "a"},
		"the others wait":                 {"1", true, []func(*rollout.Options){closed}, sick, []edit{pending("1", "2"), needsReboot}, nil, true, v1alpha1.PlanWaiting, "maintenance window", "", "a"},
		"it has soaked":                   {"1", true, []func(*rollout.Options){soaking}, append(sick, isReady(false, time.Minute), soaks(time.Hour)), []edit{pending("1", "2")}, nil, true, v1alpha1.PlanRollingOut, "1 of at most 1", "b", "a"},
		"another one soaks":               {"1", true, []func(*rollout.Options){soaking}, sick, []edit{pending("1", "2")}, []edit{soaks(time.Minute)}, true, v1alpha1.PlanWaiting, "c was changed, and the next machine begins once it has been healthy for 30m0s (soakTime); 1 of at most 1 machines have failed: a: it is sick", "", "a"},
		"the others, and a reason":        {"1", true, []func(*rollout.Options){closed}, sick, []edit{pending("1", "2"), needsReboot}, nil, true, v1alpha1.PlanWaiting, "; 1 of at most 1 machines have failed: a: it is sick", "", "a"},
		"not selected":                    {"1", true, nil, sick, []edit{last, pending("1", "2"), ofTalos}, nil, true, v1alpha1.PlanStopped, "a: it is sick", "", "a"},
		"one of them runs":                {"1", true, nil, sick, []edit{last, pending("1", "2"), ofTalos, granted(true)}, nil, true, v1alpha1.PlanRollingOut, "1 of at most 1", "", "a"},
		"a config, not selected":          {"1", true, nil, sick, []edit{last, pending("1", "2")}, nil, true, v1alpha1.PlanRollingOut, "1 of at most 1", "b", "a"},
		"it goes back":                    {"1", true, nil, back, []edit{pending("1", "2")}, nil, true, v1alpha1.PlanRollingOut, "a is rolled back", "a* b", "a"},
		"it goes back at any time":        {"1", true, []func(*rollout.Options){closed}, back, []edit{pending("1", "2")}, nil, true, v1alpha1.PlanWaiting, "maintenance window", "b a*", "a"},
		"it went back, and is off":        {"", true, nil, []edit{unwanted("2"), silent}, []edit{pending("1", "2"), ofTalos}, nil, true, v1alpha1.PlanStopped, "a was rolled back from the Talos that b would get", "", ""},
		"it went back, off and tolerated": {"1", true, nil, []edit{unwanted("2"), silent}, []edit{pending("1", "2"), ofTalos}, nil, true, v1alpha1.PlanRollingOut, "a was rolled back from the Talos", "b*", "a"},
		"from another Talos":              {"", true, nil, []edit{unwanted("3"), silent}, []edit{pending("1", "2"), ofTalos}, nil, true, v1alpha1.PlanRollingOut, "", "b*", ""},
		"a configuration":                 {"", true, nil, []edit{unwanted("2"), silent}, []edit{pending("1", "2")}, nil, true, v1alpha1.PlanRollingOut, "", "b", ""},
		"it went back":                    {"1", true, nil, []edit{wasReverted}, []edit{pending("1", "2")}, nil, true, v1alpha1.PlanRollingOut, "a was rolled back: it runs", "b", "a"},
	} {
		o := options(c.edits...)
		if c.maxFailed != "" {
			o.MaxFailed = new(intstr.Parse(c.maxFailed))
		}

		machines, plan := machines{machine("a", c.a...), machine("b", c.b...), machine("c", c.c...), machine("d", worked("2"))}, &v1alpha1.PlanStatus{ID: "plan"}
		if !c.done {
			machines[3] = machine("d")
		}

		for _, m := range machines {
			plan.Machines = append(plan.Machines, v1alpha1.PlannedMachine{Name: m.Name, Target: "2", Base: "1"})
			if m.Status.Change != nil && m.Status.Change.Target == "1" {
				plan.Machines[len(plan.Machines)-1] = v1alpha1.PlannedMachine{Name: m.Name, Target: "1", Base: "2"}
			}
		}

		in := rollout.Input{Options: o, Machines: machines, ControlPlane: controlPlane(), Plan: plan, Now: now}
		in.ControlPlane.Spec.Upgrade = &v1alpha1.UpgradeOptions{MachineSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "ring", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"last"}},
		}}}

		if c.worker {
			in.Worker = &v1alpha1.TalosWorker{}

			for i := range in.Machines {
				in.Machines[i].Status.ComparedTo = rollout.ComparedTo(in.ControlPlane, in.Worker, &in.Machines[i])
			}
		}

		out, err := rollout.Assess(in)
		if err != nil || out.Plan.Phase != c.phase || !strings.Contains(out.Plan.Message, c.message) || ready(out) != c.ready ||
			strings.Join(out.Tolerated, " ") != c.tolerated {
			t.Errorf("%s: %v: %s, %s, ready: %s, tolerated: %v", name, err, out.Plan.Phase, out.Plan.Message, ready(out), out.Tolerated)
		}
	}
}

// TestHoldKeepsFailures: what the next machine waits for does not hide which machines have failed.
func TestHoldKeepsFailures(t *testing.T) {
	for has, want := range map[string]string{"": "the budget", "a has failed": "the budget; a has failed"} {
		out := rollout.Output{Plan: &v1alpha1.PlanStatus{Phase: v1alpha1.PlanRollingOut, Message: has}}
		out.Hold("the budget")

		if out.Plan.Phase != v1alpha1.PlanWaiting || out.Plan.Message != want {
			t.Errorf("%q: %+v", has, out.Plan)
		}
	}
}

// TestNothingComparedRollsBack: a machine whose desired configuration is unknown cannot use a grant, not even to be
// rolled back; the rollback of an operating system needs no configuration.
func TestNothingComparedRollsBack(t *testing.T) {
	for kind, ready := range map[v1alpha1.ChangeKind]int{"": 0, v1alpha1.ChangeTalos: 1} {
		back := machine("b", pending("2", "1"), reverts)
		back.Status.Change.Kind, back.Status.ComparedTo = kind, ""

		out, err := rollout.Assess(rollout.Input{
			Options: options(), ControlPlane: controlPlane(), Now: now,
			Machines: []v1alpha1.TalosMachine{machine("a", differs("1", "2", v1alpha1.ChangeFailed)), back},
		})
		if err != nil || len(out.Ready) != ready {
			t.Errorf("%q: %+v, %v", kind, out.Ready, err)
		}
	}
}
