package talosmachine_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestStagedIsSuperseded: a staged configuration is removed from the disk when another change replaces it. The other
// one may wait for its approval, and a reboot in the meantime, whatever causes it, brings nothing that nobody wants.
func TestStagedIsSuperseded(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.Rollout.RebootPolicy = v1alpha1.RebootManual })
	e.patchAll(needsReboot)

	first := e.planned("w-0")

	e.grant("w-0", false)
	e.until("w-0", "it is staged", in(v1alpha1.ChangeAwaitingReboot))
	e.nextBoot("w-0", talos.NextBootOther)
	e.annotate("w-0", v1alpha1.ReconcileModeAnnotation, "DryRun")
	e.patchAll("machine: {env: {BOOK: one}}")
	e.pass("w-0")
	e.nextBoot("w-0", talos.NextBootOther) // a dry run changes nothing

	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		delete(m.Annotations, v1alpha1.ReconcileModeAnnotation)
	})

	second := e.planned("w-0")
	if second.Target == first.Target || second.Base != first.Base {
		t.Errorf("planned: %+v", second)
	}

	e.nextBoot("w-0", talos.NextBootLive)
	e.reboot("w-0")

	m := e.until("w-0", "it is back", func(m *v1alpha1.TalosMachine) bool { return m.Status.Stage == "running" })
	if e.runs("w-0", "SHELF") || len(m.Status.Drift) > 0 || m.Status.Change == nil || len(m.Status.Change.Undoes) > 0 {
		t.Errorf("it runs what nobody wants: %s", show(m))
	}

	e.grant("w-0", false)
	e.until("w-0", "the other one is staged", in(v1alpha1.ChangeAwaitingReboot))
	e.reboot("w-0")
	e.until("w-0", "it is changed", done)
}

// TestSecondEdit: the approval to undo a change that was made outside of the operator is none to undo another value in
// the same field.
func TestSecondEdit(t *testing.T) {
	e := found(t, 1, 1)
	e.edit("w-0", handMade)
	e.until("w-0", "the edit shows", drifted)
	e.patchAll(immediate)

	first := e.planned("w-0")
	if len(first.Undoes) == 0 {
		t.Fatalf("planned: %+v", first)
	}

	e.edit("w-0", "machine: {nodeLabels: {by: robot}}")

	second := e.until("w-0", "another change is planned", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change != nil && m.Status.Change.ID != first.ID
	}).Status.Change
	if second.Target != first.Target || second.Base == first.Base {
		t.Errorf("planned: %+v after %+v", second, first)
	}
}

// TestRebootedMeanwhile: a node that is rebooted by hand into a staged configuration, while the spec changes, runs what
// the operator sent: that is no edit by hand, and the next change starts from there.
func TestRebootedMeanwhile(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.Rollout.RebootPolicy = v1alpha1.RebootManual })
	e.patchAll(needsReboot)

	first := e.planned("w-0")

	e.grant("w-0", false)
	e.until("w-0", "it is staged", in(v1alpha1.ChangeAwaitingReboot))
	e.reboot("w-0")
	e.patchAll("machine: {env: {BOOK: one}}")

	second := e.planned("w-0")
	if m := e.machine("w-0"); len(m.Status.Drift) > 0 || len(second.Undoes) > 0 || second.Base != first.Target {
		t.Errorf("it counts as an edit: %s", show(m))
	}
}
