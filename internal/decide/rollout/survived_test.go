package rollout_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestFallenBackHasNotSurvived: a machine that was healthy with the Talos of the plan and fell back proves nothing, once
// its failed change is dropped, too.
func TestFallenBackHasNotSurvived(t *testing.T) {
	target := upgrade.SystemHash("v1.13.10", "")
	plan := &v1alpha1.PlanStatus{Machines: []v1alpha1.PlannedMachine{
		{Name: "a", Target: target, Base: "1"}, {Name: "b", Target: target, Base: "1"},
	}}

	for version, done := range map[string]bool{"v1.13.10": true, "v1.13.9": false} {
		a := machine("a", func(m *v1alpha1.TalosMachine) {
			m.Status.TalosVersion, m.Status.WorkingSystem, m.Status.Image = version, target, &v1alpha1.RunningImage{}
		})

		out, err := rollout.Assess(rollout.Input{
			Options: options(), ControlPlane: controlPlane(), Plan: plan, Now: now,
			Machines: machines{a, machine("b", pending("1", target))},
		})
		if err != nil || out.Done != done {
			t.Errorf("it runs %s: %v: done: %t", version, err, out.Done)
		}
	}
}
