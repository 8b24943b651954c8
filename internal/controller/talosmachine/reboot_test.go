package talosmachine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// rebooting: the reboot is recorded.
func rebooting(m *v1alpha1.TalosMachine) bool {
	return m.Status.Intent != nil && m.Status.Intent.Step == v1alpha1.StepReboot
}

// cordoned reports whether a node is unschedulable.
func (e *env) cordoned(name string) bool {
	e.Helper()

	n, err := e.api().CoreV1().Nodes().Get(e.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}

	return n.Spec.Unschedulable
}

// TestControlPlaneNeedsPermission: a control-plane node reboots only if the disruption is recorded for it and the
// safety package permits it, with live evidence.
func TestControlPlaneNeedsPermission(t *testing.T) {
	e := found(t, 3, 0)
	boot := e.boots("cp-1")

	e.patchAll(needsReboot)

	if c := e.planned("cp-1"); !c.Reboot || !c.Drain || !c.Etcd || c.Try {
		t.Errorf("planned: %+v", c)
	}

	e.givesBack("cp-1", true)
	e.planned("cp-0")
	e.disrupt("cp-0")
	e.givesBack("cp-1", true)

	e.disrupt("cp-1")
	e.grant("cp-1", true)
	e.nodes["cp-2"].Kill()
	e.waits("cp-1", "waiting for etcd to become healthy before disrupting")

	if e.boots("cp-1") != boot || e.nodes["cp-1"].Faults().Calls("Reboot") > 0 {
		t.Error("it has rebooted")
	}

	if err := e.nodes["cp-2"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.until("cp-1", "it is changed", done)

	if e.boots("cp-1") == boot || e.cordoned("cp-1") {
		t.Errorf("cordoned: %t", e.cordoned("cp-1"))
	}
}

// TestNoReboot: a node that never reboots as requested fails the change.
func TestNoReboot(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(needsReboot)
	e.planned("w-0")
	e.nodes["w-0"].Faults().Fail("Reboot", codes.Unavailable, 1, 0)
	e.grant("w-0", true)
	e.until("w-0", "a reboot is asked for", rebooting)
	e.sleep(patience)

	m := e.until("w-0", "the change fails", failed)
	if m.Status.Intent != nil {
		t.Errorf("%s", show(m))
	}

	// The node is power-cycled manually, and the change completes.
	e.nodes["w-0"].Faults().Clear()
	e.reboot("w-0")
	e.until("w-0", "it is changed", done)

	if e.cordoned("w-0") {
		t.Error("still cordoned")
	}
}

// TestRebootIntoAnother: a node that comes back with another configuration than the staged one fails the change.
func TestRebootIntoAnother(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(needsReboot)
	e.planned("w-0")
	e.nodes["w-0"].Faults().Fail("Reboot", codes.Unavailable, 1, 1)
	e.grant("w-0", true)
	e.until("w-0", "a reboot is recorded", rebooting)
	e.edit("w-0", immediate)

	m := e.until("w-0", "the change fails", failed)
	if want := "w-0 has rebooted and does not run the config that was staged"; m.Status.Change.Message != want {
		t.Errorf("%s", show(m))
	}
}

// TestSpecChangesMeanwhile: the configuration that a node boots with was sent by the operator, even if the spec has
// changed since: it is no manual edit, and the next change is planned from there.
func TestSpecChangesMeanwhile(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(needsReboot)
	first := e.planned("w-0")
	e.grant("w-0", true)
	e.until("w-0", "it reboots", rebooting)

	compared := e.machine("w-0").Status.ComparedTo
	e.patchAll(immediate)

	e.Eventually("it is compared while it runs neither", func(context.Context) error {
		if m, _, _ := e.pass("w-0"); m.Status.ComparedTo != compared && rebooting(m) {
			t.Error("between two configs it counts as compared")
		} else if !rebooting(m) {
			return nil
		}

		e.sleep(time.Second)

		return fmt.Errorf("it reboots")
	})

	m := e.until("w-0", "another change is planned", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangePending)(m) && m.Status.Change.ID != first.ID
	})
	if len(m.Status.Change.Undoes) > 0 || m.Status.Change.Base != first.Target || len(m.Status.Drift) > 0 {
		t.Errorf("%s, drift %+v", show(m), m.Status.Drift)
	}
}

// TestStaged: without permission to reboot, a configuration stays staged until a manual reboot, or until the
// permission.
func TestStaged(t *testing.T) {
	e := found(t, 1, 1)
	boot := e.boots("w-0")
	staged := in(v1alpha1.ChangeAwaitingReboot)

	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.Rollout.RebootPolicy = v1alpha1.RebootManual })
	e.patchAll(needsReboot)

	if c := e.planned("w-0"); !c.Reboot || c.Drain {
		t.Errorf("planned: %+v", c)
	}

	e.grant("w-0", false)

	m := e.until("w-0", "it is staged", staged)
	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonAwaitingReboot, "when w-0 reboots")

	calls := e.mutations("w-0")

	for range 3 {
		e.sleep(patience)
		e.pass("w-0")
	}

	if e.mutations("w-0") != calls || e.boots("w-0") != boot || m.Status.Intent != nil || e.runs("w-0", "SHELF") {
		t.Errorf("%d calls; %s", e.mutations("w-0")-calls, show(m))
	}

	e.reboot("w-0")
	e.until("w-0", "it is changed", done)

	// Reboots become allowed: pods are evicted first, and come back.
	e.patchAll("machine: {env: {SHELF: two}}")
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is staged", staged)
	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.Rollout.RebootPolicy = v1alpha1.RebootAutomatic })
	e.until("w-0", "it would be drained", func(m *v1alpha1.TalosMachine) bool { return staged(m) && m.Status.Change.Drain })

	boot = e.boots("w-0")

	e.grant("w-0", true)
	e.until("w-0", "it is changed", done)

	if e.boots("w-0") == boot || e.cordoned("w-0") {
		t.Errorf("cordoned: %t", e.cordoned("w-0"))
	}
}

// TestStagedIsReplaced: a staged configuration is lost if another configuration is sent to the node, even the live one.
// It is staged again, so that the awaited reboot applies it.
func TestStagedIsReplaced(t *testing.T) {
	e := found(t, 1, 1)
	staged := in(v1alpha1.ChangeAwaitingReboot)

	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.Rollout.RebootPolicy = v1alpha1.RebootManual })
	e.patchAll(needsReboot)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is staged", staged)
	e.nextBoot("w-0", talos.NextBootOther)

	conn, err := e.connect("w-0")
	if err != nil {
		t.Fatal(err)
	}

	live, err := conn.MachineConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if _, err := conn.Apply(t.Context(), live, talos.ApplyOptions{Mode: talos.ApplyNoReboot}); err != nil {
		t.Fatal(err)
	}

	e.Eventually("it is staged again", func(ctx context.Context) error {
		if m, _, err := e.pass("w-0"); err != nil || !staged(m) {
			return fmt.Errorf("%s: %w", show(m), err)
		}

		st, err := conn.ConfigState(ctx)
		if err == nil && st.NextBoot != talos.NextBootOther {
			err = fmt.Errorf("%+v", st)
		}

		return err
	})

	// The node has it from the staging until it boots: then it reports none, which is no reason to stage it again.
	e.reboot("w-0")

	calls := e.mutations("w-0")

	e.until("w-0", "it is changed", done)
	e.nextBoot("w-0", talos.NextBootLive)

	if e.mutations("w-0") != calls || !e.runs("w-0", "SHELF") {
		t.Errorf("%d calls after the reboot", e.mutations("w-0")-calls)
	}
}

// nextBoot checks which configuration takes effect at the next boot of a node.
func (e *env) nextBoot(name string, want talos.NextBoot) {
	e.Helper()

	e.Eventually(name+" shows its config", func(ctx context.Context) error {
		conn, err := e.connect(name)
		if err != nil {
			return err
		}

		st, err := conn.ConfigState(ctx)
		if err == nil && st.NextBoot != want {
			e.Errorf("%s: %+v, want %d", name, st, want)
		}

		return err
	})
}

// TestUnstaged: a staged configuration that is no longer desired does not take effect at a later reboot.
func TestUnstaged(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.Rollout.RebootPolicy = v1alpha1.RebootManual })
	e.patchAll(needsReboot)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is staged", in(v1alpha1.ChangeAwaitingReboot))
	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.ClusterConfigPatches = nil })
	e.until("w-0", "nothing is to be done", done)
	e.reboot("w-0")
	e.until("w-0", "nothing is to be done", done)

	if e.runs("w-0", "SHELF") {
		t.Error("it runs what is no longer desired")
	}

	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionTrue, v1alpha1.ReasonUpToDate, "")
}

// TestBackWhileSick: a revert requested by a user waits neither for a window nor for pods that cannot be evicted.
func TestBackWhileSick(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll("machine: {kubelet: {extraArgs: {container-runtime: remote}}, env: {A: b}}")
	target := e.planned("w-0").Target
	e.grant("w-0", true)
	e.until("w-0", "the node is sick", in(v1alpha1.ChangeSettling))
	e.sleep(2 * patience)
	e.until("w-0", "the change fails", failed)

	if !e.cordoned("w-0") {
		t.Error("a sick node takes pods")
	}

	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.Rollout.RebootPolicy = v1alpha1.RebootManual })
	e.annotate("w-0", v1alpha1.RevertAnnotation, target)

	if c := e.planned("w-0"); !c.Reboot || c.Cause != v1alpha1.CauseRevert {
		t.Errorf("planned: %+v", c)
	}

	boot := e.boots("w-0")

	e.nodes["cp-0"].Freeze(true)
	e.grant("w-0", true)
	e.until("w-0", "it reboots", rebooting)
	e.nodes["cp-0"].Freeze(false)
	e.until("w-0", "it is taken back", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil })

	if e.boots("w-0") == boot || e.runs("w-0", "container-runtime") || e.cordoned("w-0") {
		t.Errorf("cordoned: %t", e.cordoned("w-0"))
	}
}

// TestControlPlaneWithoutAPI: if the configuration of a control-plane node may be the reason why the API does not
// respond, the corrected one does not wait for pods that only the API can evict.
func TestControlPlaneWithoutAPI(t *testing.T) {
	e := found(t, 1, 0)

	e.patchAll(sickening)
	e.planned("cp-0")
	e.grant("cp-0", false)
	e.until("cp-0", "the node is sick", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangeSettling)(m) && m.Status.Change.Message != ""
	})

	e.patchAll(needsReboot)
	e.planned("cp-0")
	e.disrupt("cp-0")
	e.grant("cp-0", true)

	boot := e.boots("cp-0")

	e.lockOut()
	e.until("cp-0", "it reboots", rebooting)
	e.r.Workloads = &workload.Clients{Clock: e.Clock}
	e.until("cp-0", "it is changed", done)

	if e.boots("cp-0") == boot {
		t.Error("it has not rebooted")
	}
}

// lockOut has the Kubernetes API reject the operator, whose certificates are valid in the future only.
func (e *env) lockOut() {
	ahead := testclock.NewFakePassiveClock(e.Clock.Now().Add(10 * 365 * 24 * time.Hour))
	e.r.Workloads = &workload.Clients{Clock: ahead}
}

// drainsForHours brings a machine into a drain that began an hour ago: the Kubernetes API does not accept the operator.
func (e *env) drainsForHours(name string) {
	e.Helper()

	e.patchAll(needsReboot)
	e.planned(name)
	e.grant(name, true)

	e.lockOut()

	m, _, err := e.pass(name)
	if err == nil || !in(v1alpha1.ChangeDraining)(m) {
		e.Fatalf("%v: %s", err, show(m))
	}

	m.Status.Change.Since = metav1.NewTime(m.Status.Change.Since.Add(-time.Hour))
	e.UpdateStatus(m)
}

// TestDiskLostDuringDrain: a node that returns without its configuration does not end the change that it was drained for.
func TestDiskLostDuringDrain(t *testing.T) {
	e := found(t, 1, 1)
	e.drainsForHours("w-0")
	e.wipe("w-0")
	e.until("w-0", "the change fails", failed)
}

// TestSilenceDuringDrain: a drain may take longer than a node has to come back. A node that becomes unreachable at its end
// has the whole time, because nothing was sent to it.
func TestSilenceDuringDrain(t *testing.T) {
	e := found(t, 1, 1)
	e.drainsForHours("w-0")
	e.nodes["w-0"].Kill()
	e.pass("w-0")
	e.sleep(patience - time.Minute)

	if m, _, _ := e.pass("w-0"); !in(v1alpha1.ChangeDraining)(m) {
		t.Fatalf("too early: %s", show(m))
	}

	e.sleep(2 * time.Minute)

	if m, _, _ := e.pass("w-0"); !failed(m) || !strings.Contains(m.Status.Change.Message, "while it was drained") {
		t.Fatalf("not failed: %s", show(m))
	}
}

// TestDrainNeedsAPI: a healthy node is not disrupted while its pods cannot be evicted.
func TestDrainNeedsAPI(t *testing.T) {
	e := found(t, 1, 1)
	boot := e.boots("w-0")

	e.patchAll(needsReboot)
	e.planned("w-0")
	e.grant("w-0", true)

	e.lockOut()

	for range 3 {
		e.sleep(time.Minute)

		if m, _, err := e.pass("w-0"); err == nil || !in(v1alpha1.ChangeDraining)(m) {
			t.Errorf("%v: %s", err, show(m))
		}
	}

	if e.boots("w-0") != boot || e.nodes["w-0"].Faults().Calls("Reboot") > 0 {
		t.Error("it has rebooted")
	}
}
