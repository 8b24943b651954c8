package talosmachine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// onTrial: the node has a configuration that it rolls back unless it is confirmed.
func onTrial(m *v1alpha1.TalosMachine) bool {
	return m.Status.Intent != nil && m.Status.Intent.Step == v1alpha1.StepTry
}

func tryFor(d time.Duration) func(*v1alpha1.TalosControlPlaneSpec) {
	return func(s *v1alpha1.TalosControlPlaneSpec) { s.Rollout.TryTimeout = &metav1.Duration{Duration: d} }
}

// TestTry: a change that could cut the node off is tried, and kept once the node has accepted a new connection a moment
// later, because its network configuration takes effect with a delay.
func TestTry(t *testing.T) {
	e := found(t, 1, 1)
	calls := e.mutations("w-0")

	e.patchAll(connection)

	if c := e.planned("w-0"); !c.Try || c.Reboot || c.Etcd {
		t.Errorf("planned: %+v", c)
	}

	e.grant("w-0", false)

	// The operator crashes in each reconciliation and resumes from the record.
	for range 3 {
		e.restart()

		if m, _, err := e.pass("w-0"); err != nil || !onTrial(m) || !in(v1alpha1.ChangeApplying)(m) {
			t.Fatalf("%v: %s", err, show(m))
		}

		e.sleep(time.Second)
	}

	if e.mutations("w-0") != calls+1 {
		t.Errorf("%d calls, and one try is all it takes", e.mutations("w-0")-calls)
	}

	e.sleep(3 * time.Second)

	if m, _, err := e.pass("w-0"); err != nil || onTrial(m) || !in(v1alpha1.ChangeSettling)(m) || e.mutations("w-0") != calls+2 {
		t.Errorf("not confirmed: %v: %s", err, show(m))
	}

	e.until("w-0", "it is changed", done)

	// The node does not roll it back.
	conn, err := e.connect("w-0")
	if err != nil {
		t.Fatal(err)
	}

	if st, err := conn.ConfigState(t.Context()); err != nil || st.NextBoot != talos.NextBootLive ||
		!e.runs("w-0", "tried.example.org") {
		t.Errorf("the config is not on the disk: %+v, %v", st, err)
	}
}

// TestUntriedWithAReboot: a change that could cut a node off is not combined with a change that reboots, because it
// could not be rolled back. The rest of the change proceeds alone.
func TestUntriedWithAReboot(t *testing.T) {
	e := found(t, 1, 1)
	calls := e.mutations("w-0")

	e.patchAll(needsReboot + "\n---\n" + shutsOut)

	if c := e.planned("w-0"); !c.Try || !c.Reboot {
		t.Errorf("planned: %+v", c)
	}

	for _, reboot := range []bool{true, false} {
		e.grant("w-0", reboot)

		m := e.until("w-0", "the change fails", failed)
		if !strings.Contains(m.Status.Change.Message, "NetworkDefaultActionConfig would take effect with the reboot") {
			t.Errorf("%s", show(m))
		}

		if e.mutations("w-0") != calls || e.runs("w-0", "NetworkDefaultActionConfig") {
			t.Errorf("%d calls", e.mutations("w-0")-calls)
		}
	}

	e.patchAll(needsReboot)
	e.planned("w-0")
	e.grant("w-0", true)
	e.until("w-0", "the rest is there", done)
}

// TestShutOut: a firewall rule that blocks the operator is not confirmed; the node rolls it back, and it is tried only
// once.
func TestShutOut(t *testing.T) {
	e := found(t, 1, 1)
	// It is measured by the clock of the node: long enough for two reconciliations on a busy computer.
	const trial = 30 * time.Second

	e.rollout(tryFor(trial))
	e.until("w-0", "it is compared", done)

	calls := e.mutations("w-0")

	e.patchAll(shutsOut)

	// A user who approves a rule sees its contents.
	if c := e.planned("w-0"); !slices.ContainsFunc(c.Fields, func(f v1alpha1.FieldChange) bool {
		return f.Field == "NetworkDefaultActionConfig: ingress" && f.New == "block"
	}) {
		t.Errorf("planned: %+v", c.Fields)
	}

	e.grant("w-0", false)

	if m, _, err := e.pass("w-0"); err != nil || !onTrial(m) {
		t.Fatalf("%v: %s", err, show(m))
	}

	e.sleep(4 * time.Second)

	if m, _, err := e.pass("w-0"); err != nil || !onTrial(m) || e.mutations("w-0") != calls+1 {
		t.Errorf("confirmed: %v: %s", err, show(m))
	}

	// The operator checks the node, and its clock does not fall behind that of the node: a change that disappears early in
	// its trial counts as never sent.
	e.sleep(trial / 2)

	m := e.until("w-0", "the change fails", failed)
	if !strings.Contains(m.Status.Change.Message, "rolled the change of NetworkDefaultActionConfig back") {
		t.Errorf("%s", show(m))
	}

	if e.mutations("w-0") != calls+1 || e.runs("w-0", "NetworkDefaultActionConfig") {
		t.Errorf("tried %d times", e.mutations("w-0")-calls)
	}

	// The spec is reverted as well, and nothing has to be done.
	e.patchAll(immediate)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "the corrected config is there", done)
}

// TestTryIsOvertaken: the configuration on trial is no longer desired. It is not confirmed, and the next one follows
// once the node has rolled it back.
func TestTryIsOvertaken(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(tryFor(4 * time.Second))

	e.patchAll(connection)
	first := e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is on trial", onTrial)

	calls := e.mutations("w-0")

	e.patchAll(immediate)

	// The node's clock runs, the operator's need not.
	var m *v1alpha1.TalosMachine

	e.Eventually("another change is planned", func(context.Context) error {
		if m, _, _ = e.pass("w-0"); in(v1alpha1.ChangePending)(m) && m.Status.Change.ID != first.ID {
			return nil
		}

		return errors.New(show(m))
	})

	if e.runs("w-0", "tried.example.org") || m.Status.Intent != nil || len(m.Status.Change.Undoes) > 0 || e.mutations("w-0") != calls {
		t.Errorf("kept: %t; %s", e.runs("w-0", "tried.example.org"), show(m))
	}

	e.grant("w-0", false)
	e.until("w-0", "it is changed", done)
}

// TestConfirmedAndForgotten: a crash occurs after the confirmation and before it is recorded, and the spec changes: the
// trial is over nevertheless, and its configuration is no manual edit.
func TestConfirmedAndForgotten(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(connection)
	first := e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is on trial", onTrial)

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

	e.patchAll(immediate)
	e.sleep(trial)

	m := e.until("w-0", "another change is planned", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangePending)(m) && m.Status.Change.ID != first.ID
	})
	if m.Status.Intent != nil || len(m.Status.Change.Undoes) > 0 {
		t.Errorf("%s", show(m))
	}
}

// TestConfirmedAndWithdrawn: the spec returns to the old configuration right after a trial was confirmed. What was
// confirmed is applied, and no manual edit: it is undone without an approval.
func TestConfirmedAndWithdrawn(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(connection)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is confirmed", in(v1alpha1.ChangeSettling))
	e.rollout(func(cp *v1alpha1.TalosControlPlaneSpec) { cp.ClusterConfigPatches = nil })

	m := e.until("w-0", "the way back is planned", in(v1alpha1.ChangePending))
	if len(m.Status.Change.Undoes) > 0 || drifted(m) {
		t.Errorf("%s", show(m))
	}
}

// TestTryOfControlPlane: a node that may be cut off may also be cut off from the other members, so the safety package
// is consulted.
func TestTryOfControlPlane(t *testing.T) {
	e := found(t, 3, 0)
	calls := e.mutations("cp-1")

	e.patchAll(connection)

	c := e.planned("cp-1")
	if !c.Try || !c.Etcd {
		t.Errorf("planned: %+v", c)
	}

	e.givesBack("cp-1", false)
	e.disrupt("cp-1")
	e.grant("cp-1", false)
	e.nodes["cp-2"].Kill()
	e.waits("cp-1", "waiting for etcd to become healthy before disrupting")

	if e.mutations("cp-1") != calls {
		t.Errorf("%d calls changed something", e.mutations("cp-1")-calls)
	}

	if err := e.nodes["cp-2"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.until("cp-1", "it is changed", done)
}

// disrupt records a disruption, as the control-plane controller does before it allows a machine to begin.
func (e *env) disrupt(name string) {
	e.Helper()

	change := e.machine(name).Status.Change.ID
	e.record(func(r *clusterstate.Runtime) {
		r.Disruption = &clusterstate.Disruption{Machine: name, Act: "Reboot", Since: e.Clock.Now(), Change: change}
	})
}

// givesBack lets a machine begin without a record of its disruption, as after a restore that has replaced the state, and
// checks that it returns the grant, so that the control plane records the disruption and grants it again.
func (e *env) givesBack(name string, reboot bool) {
	e.Helper()
	e.grant(name, reboot)

	id := e.machine(name).Status.Change.ID

	m := e.until(name, "it returns the grant", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change != nil && m.Status.Change.ID != id
	})
	if !in(v1alpha1.ChangePending)(m) || m.Status.Intent != nil || e.cordoned(name) ||
		!strings.Contains(m.Status.Change.Message, "no record of this change") {
		e.Errorf("cordoned: %t; %s", e.cordoned(name), show(m))
	}

	if m, _, err := e.pass(name); err != nil || m.Status.Change.ID == id || !in(v1alpha1.ChangePending)(m) {
		e.Errorf("it does not wait for another grant: %v, %s", err, show(m))
	}
}

// waits checks that the change waits in every reconciliation, and for what.
func (e *env) waits(name, what string) {
	e.Helper()

	for range 3 {
		e.sleep(20 * time.Second)

		m, res, err := e.pass(name)
		if err != nil || m.Status.Change == nil || !strings.Contains(m.Status.Change.Message, what) || res.RequeueAfter == 0 {
			e.Errorf("it does not wait %q: %v, %+v: %s", what, err, res, show(m))
		}
	}
}
