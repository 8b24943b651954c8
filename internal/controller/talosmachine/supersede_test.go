package talosmachine_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/apid"
)

// TestStagedIsSuperseded: a staged configuration is removed from the disk when another change replaces it. The other
// one may wait for its approval, and a reboot in the meantime, whatever causes it, brings nothing that is no longer
// desired.
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
		t.Errorf("it runs what is no longer desired: %s", show(m))
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

// TestLeftAsItIs: in a dry run, and during a restore, the record of a change that was drained for is kept when the spec
// changes: the node is made schedulable again afterwards, while the successor waits for its approval.
func TestLeftAsItIs(t *testing.T) {
	for what, hold := range map[string]struct{ begin, end func(*env) }{
		"dry run": {
			func(e *env) { e.annotate("w-0", v1alpha1.ReconcileModeAnnotation, "DryRun") },
			func(e *env) {
				change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
					delete(m.Annotations, v1alpha1.ReconcileModeAnnotation)
				})
			},
		},
		"restore": {
			func(e *env) { e.record(func(r *clusterstate.Runtime) { r.Restore = &clusterstate.Restore{Name: "r"} }) },
			func(e *env) { e.record(func(r *clusterstate.Runtime) { r.Restore = nil }) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := found(t, 1, 1)
			e.patchAll(needsReboot)

			first := e.planned("w-0")

			e.nodes["w-0"].Faults().Add(apid.Rule{Method: "ApplyConfiguration", Code: codes.Unavailable, Count: 1})
			e.grant("w-0", true)

			if m, _, err := e.pass("w-0"); err == nil || !e.cordoned("w-0") {
				t.Fatalf("%v: %s", err, show(m))
			}

			hold.begin(e)
			e.patchAll("machine: {env: {BOOK: one}}")

			calls := e.mutations("w-0")

			for range 2 {
				if m, _, _ := e.pass("w-0"); m.Status.Change == nil || m.Status.Change.ID != first.ID || !e.cordoned("w-0") {
					t.Errorf("cordoned %t: %s", e.cordoned("w-0"), show(m))
				}
			}

			if e.mutations("w-0") != calls {
				t.Errorf("%d calls changed something", e.mutations("w-0")-calls)
			}

			hold.end(e)

			if second := e.planned("w-0"); second.ID == first.ID || e.cordoned("w-0") {
				t.Errorf("cordoned %t: %+v", e.cordoned("w-0"), second)
			}
		})
	}
}

// TestUnreadableWindows: maintenance windows that cannot be read forbid reboots, and nothing else.
func TestUnreadableWindows(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) {
		s.Rollout.RebootPolicy = v1alpha1.RebootWindow
		s.Rollout.Windows = []v1alpha1.MaintenanceWindow{{
			Schedule: "0 2 * * *", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "Nowhere/Land",
		}}
	})
	e.patchAll(immediate)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is changed", done)

	boot := e.boots("w-0")

	e.patchAll(needsReboot)
	e.planned("w-0")
	e.grant("w-0", true)
	e.pass("w-0")

	if m, _, err := e.pass("w-0"); err != nil || !in(v1alpha1.ChangePending)(m) || e.boots("w-0") != boot {
		t.Errorf("%v: %s", err, show(m))
	}
}
