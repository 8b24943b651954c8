package rollout_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

func ofTalos(m *v1alpha1.TalosMachine) {
	m.Status.Change.Kind, m.Status.Change.Reboot = v1alpha1.ChangeTalos, true
}

func labelled(m *v1alpha1.TalosMachine) { m.Labels = map[string]string{"ring": "first"} }

// TestMachineSelector: only machines that the spec selects are upgraded; they are rolled back and configured whatever it
// selects.
func TestMachineSelector(t *testing.T) {
	first := &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "first"}}
	held := "not selected by upgrade.machineSelector: "

	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		a, b     []edit
		phase    v1alpha1.PlanPhase
		message  string
		ready    string
	}{
		"each one by default": {nil, []edit{pending("1", "2"), ofTalos}, []edit{pending("1", "2"), ofTalos}, v1alpha1.PlanRollingOut, "", "a* b*"},
		"an empty selector":   {&metav1.LabelSelector{}, []edit{pending("1", "2"), ofTalos}, nil, v1alpha1.PlanRollingOut, "", "a*"},
		"the selected one":    {first, []edit{pending("1", "2"), ofTalos}, []edit{pending("1", "2"), ofTalos, labelled}, v1alpha1.PlanRollingOut, "", "b*"},
		"of Kubernetes":       {first, []edit{pending("1", "2"), ofKubernetes}, []edit{pending("1", "2"), ofKubernetes, labelled}, v1alpha1.PlanRollingOut, "", "b"},
		"it is done":          {first, []edit{pending("1", "2"), ofTalos}, []edit{labelled}, v1alpha1.PlanWaiting, held + "a", ""},
		"it runs":             {first, []edit{pending("1", "2"), ofTalos}, []edit{pending("1", "2"), granted(true), ofTalos, labelled}, v1alpha1.PlanRollingOut, "", ""},
		"none":                {first, []edit{pending("1", "2"), ofTalos}, []edit{pending("1", "2"), ofTalos}, v1alpha1.PlanWaiting, held + "a, b", ""},
		"a configuration":     {first, []edit{pending("1", "2")}, []edit{pending("1", "2"), ofTalos}, v1alpha1.PlanRollingOut, "", "a"},
		"called off":          {first, []edit{pending("2", "1"), calledOff}, nil, v1alpha1.PlanRollingOut, "", "a"},
		"a rollback":          {first, []edit{pending("2", "1"), ofTalos, reverts}, nil, v1alpha1.PlanStopped, "rolled back", "a*"},
		"what is no selector": {&metav1.LabelSelector{MatchLabels: map[string]string{"-": "first"}}, []edit{pending("1", "2"), ofTalos}, nil, v1alpha1.PlanWaiting, held + "a", ""},
	} {
		in := rollout.Input{
			Options: options(), Machines: machines{machine("a", c.a...), machine("b", c.b...)}, ControlPlane: controlPlane(), Now: now,
		}
		in.ControlPlane.Spec.Upgrade = &v1alpha1.UpgradeOptions{MachineSelector: c.selector}

		out, err := rollout.Assess(in)
		if err != nil || out.Plan.Phase != c.phase || !strings.Contains(out.Plan.Message, c.message) || c.message == "" && out.Plan.Message != "" ||
			ready(out) != c.ready {
			t.Errorf("%s: %v: %s, %q, ready: %s", name, err, out.Plan.Phase, out.Plan.Message, ready(out))
		}
	}
}

func ofSchematic(m *v1alpha1.TalosMachine) {
	ofTalos(m)

	m.Status.Change.Fields = []v1alpha1.FieldChange{{Field: upgrade.FieldSchematic, Old: "a", New: "b"}}
}

// TestSchematicsOfWorkers: workers get another schematic after the control plane, and whatever else they need before.
func TestSchematicsOfWorkers(t *testing.T) {
	const after = "workers get another schematic after the control plane"

	step := func(version string, done bool, generation int64) *v1alpha1.UpgradeStatus {
		return &v1alpha1.UpgradeStatus{
			TalosVersion: version, SchematicsOnly: true, ControlPlaneDone: done, ObservedGeneration: generation,
		}
	}

	for name, c := range map[string]struct {
		status  *v1alpha1.UpgradeStatus
		a, b    []edit
		plane   bool
		message string
		ready   string
	}{
		"not planned yet":            {nil, []edit{ofSchematic}, nil, false, after, ""},
		"the control plane is first": {step("v1.13.9", false, 1), []edit{ofSchematic}, nil, false, after, ""},
		"it waits for something":     {&v1alpha1.UpgradeStatus{SchematicsOnly: true, Message: "the disk is full"}, []edit{ofSchematic}, nil, false, "the disk is full", ""},
		"planned for another spec":   {step("v1.13.9", true, 2), []edit{ofSchematic}, nil, false, after, ""},
		"the turn of a version":      {&v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9", ControlPlaneDone: true, ObservedGeneration: 1}, []edit{ofSchematic}, nil, false, after, ""},
		"after a configuration":      {step("v1.13.9", true, 1), []edit{ofSchematic}, []edit{}, false, "", "b a*"},
		"their turn":                 {step("v1.13.9", true, 1), []edit{ofSchematic}, nil, false, "", "a*"},
		"a configuration":            {step("v1.13.9", false, 1), nil, []edit{ofSchematic}, false, "", "a"},
		"a rollback":                 {step("v1.13.9", false, 1), []edit{ofSchematic, reverts}, nil, false, "rolled back", "a*"},
		"those of the control plane": {nil, []edit{ofSchematic}, nil, true, "", "a*"},
	} {
		in := rollout.Input{
			Options: options(), Machines: machines{
				machine("a", append([]edit{pending("1", "2")}, c.a...)...), machine("b", append([]edit{pending("1", "2")}, c.b...)...),
			}, ControlPlane: controlPlane(), Now: now,
		}
		if c.b == nil {
			in.Machines = in.Machines[:1]
		}

		in.ControlPlane.Status.Upgrade = c.status

		if !c.plane {
			in.Worker = &v1alpha1.TalosWorker{}
		}

		for i := range in.Machines {
			in.Machines[i].Status.ComparedTo = rollout.ComparedTo(in.ControlPlane, in.Worker, &in.Machines[i])
		}

		out, err := rollout.Assess(in)
		if err != nil || !strings.Contains(out.Plan.Message, c.message) || c.message == "" && out.Plan.Message != "" || ready(out) != c.ready {
			t.Errorf("%s: %v: %s, %q, ready: %s", name, err, out.Plan.Phase, out.Plan.Message, ready(out))
		}
	}
}

// TestValidateUpgrade: a selector that is none is refused.
func TestValidateUpgrade(t *testing.T) {
	o := &v1alpha1.UpgradeOptions{MachineSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "first"}}}
	if err := rollout.ValidateUpgrade(o); err != nil {
		t.Error(err)
	}

	if err := rollout.ValidateUpgrade(nil); err != nil {
		t.Error(err)
	}

	o.MachineSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "ring", Operator: "Like"}}
	if err := rollout.ValidateUpgrade(o); err == nil || !strings.Contains(err.Error(), "machineSelector: ") {
		t.Error(err)
	}
}

// TestPatchesOfOneVersion: nothing begins before each machine that responds was compared with the patches that there are
// now. A machine of which that is not known does not count.
func TestPatchesOfOneVersion(t *testing.T) {
	a, b := machine("a", pending("1", "2")), machine("b")
	a.Status.PatchesVersion, b.Status.PatchesVersion = "2", "1"
	in := rollout.Input{Options: options(), Machines: machines{a, b}, ControlPlane: controlPlane(), Now: now}

	for _, c := range []struct {
		patches map[string]string
		ready   string
	}{
		{map[string]string{"a": "2", "b": "2"}, ""},
		{map[string]string{"a": "2", "b": "1"}, "a"},
		{map[string]string{"a": "2"}, "a"},
		{nil, "a"},
	} {
		in.Patches = c.patches

		out, err := rollout.Assess(in)
		if err != nil || ready(out) != c.ready || c.ready == "" && !strings.Contains(out.Plan.Message, "waiting for b") {
			t.Errorf("%v: %q may begin, %s: %v", c.patches, ready(out), out.Plan.Message, err)
		}
	}
}
