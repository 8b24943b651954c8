package talosmachine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// Patches of every kind of change.
const (
	immediate   = "machine: {nodeLabels: {shelf: seven}}"
	needsReboot = "machine: {env: {SHELF: hush-hush}}"
	connection  = "machine: {certSANs: [tried.example.org]}"
	shutsOut    = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n"
	// sickening prevents the kubelet from running.
	sickening = "machine: {kubelet: {extraArgs: {container-runtime: remote}}}"
)

// TestNothingWithoutGrant: a planned change is reported, and nothing is sent before the group allows the machine to
// begin.
func TestNothingWithoutGrant(t *testing.T) {
	e := found(t, 1, 1)
	before, boot := e.mutations("w-0"), e.boots("w-0")

	e.patchAll(needsReboot)

	c := e.planned("w-0")
	if !c.Reboot || !c.Drain || c.Etcd || c.Try || c.Cause != v1alpha1.CauseSpec || len(c.Fields) != 1 || c.Fields[0].New != "<redacted>" {
		t.Errorf("planned: %+v", c)
	}

	for range 5 {
		if m, _, err := e.pass("w-0"); err != nil || m.Status.Change.ID != c.ID {
			t.Errorf("%v: %s", err, show(m))
		}
	}

	// A grant for another change does not count.
	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		m.Spec.Change = &v1alpha1.ChangeGrant{ID: "another", Reboot: true}
	})
	e.pass("w-0")

	if e.mutations("w-0") != before || e.boots("w-0") != boot {
		t.Errorf("%d calls changed something", e.mutations("w-0")-before)
	}

	e.grant("w-0", true)
	e.until("w-0", "it is changed", done)

	if e.boots("w-0") == boot || !e.runs("w-0", "SHELF") {
		t.Error("it has not rebooted into the config")
	}

	e.keepsSecrets("hush-hush")
}

// TestChangeOutlivesAStaleCache: a reconciliation that does not see the change planned by the previous one finds the
// same change, and does not overwrite its progress. The same difference is another change once this one was made.
func TestChangeOutlivesAStaleCache(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(policy(v1alpha1.DriftEnforce))
	e.edit("w-0", handMade)

	was := e.machine("w-0")
	first := e.planned("w-0")

	for range 2 {
		e.sleep(time.Minute)
		e.cache.lag(was)
		e.pass("w-0")
		e.cache.lag()

		if diff := cmp.Diff(first, e.machine("w-0").Status.Change); diff != "" {
			t.Fatalf("a pass on a stale cache changed the change (-first +now):\n%s", diff)
		}
	}

	e.grant("w-0", false)
	e.until("w-0", "it is undone", done)
	e.edit("w-0", handMade)

	again := e.planned("w-0")
	if again.Base != first.Base || again.Target != first.Target || again.ID == first.ID {
		t.Errorf("the permission for %+v would be one for %+v", first, again)
	}
}

// TestWithoutReboot: a change that needs no reboot is made without one, and is complete once the node has been healthy
// for some time. The configuration is then recorded as working.
func TestWithoutReboot(t *testing.T) {
	e := found(t, 1, 1)
	boot, calls := e.boots("w-0"), e.mutations("w-0")

	e.patchAll(immediate)

	if c := e.planned("w-0"); c.Reboot || c.Drain || c.Try {
		t.Errorf("planned: %+v", c)
	}

	e.grant("w-0", false)

	worked := e.machine("w-0").Status.WorkingHash

	m, _, err := e.pass("w-0")
	if err != nil || !in(v1alpha1.ChangeSettling)(m) || m.Status.Intent != nil {
		t.Errorf("%v: %s", err, show(m))
	}

	// The node is healthy, but not for long enough.
	for range 3 {
		if m, _, err = e.pass("w-0"); err != nil || !in(v1alpha1.ChangeSettling)(m) || m.Status.WorkingHash != worked {
			t.Errorf("%v: %s", err, show(m))
		}
	}

	e.sleep(10 * time.Second)

	if m, _, err = e.pass("w-0"); err != nil || !done(m) || m.Status.WorkingHash == worked {
		t.Errorf("%v: %s", err, show(m))
	}

	stored, err := e.r.Configs.Load(t.Context(), m)
	if err != nil || !strings.Contains(string(stored.Working), "shelf: seven") {
		t.Errorf("remembered: %q, %v", stored.Working, err)
	}

	if e.boots("w-0") != boot || e.mutations("w-0") != calls+1 {
		t.Errorf("%d calls changed something", e.mutations("w-0")-calls)
	}
}

// TestNotHealthy: a node that does not become healthy with its configuration fails the change, and is reverted to the
// last working configuration on request of a user, even while it is unhealthy.
func TestNotHealthy(t *testing.T) {
	e := found(t, 1, 1)
	worked := e.machine("w-0").Status.WorkingHash

	e.patchAll(sickening)
	target := e.planned("w-0").Target
	e.grant("w-0", false)
	e.until("w-0", "the node is sick", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangeSettling)(m) && m.Status.Change.Message != ""
	})

	e.sleep(patience - 30*time.Second)

	if m, _, err := e.pass("w-0"); err != nil || failed(m) {
		t.Fatalf("too early: %v: %s", err, show(m))
	}

	e.sleep(time.Minute)

	m, _, err := e.pass("w-0")
	if err != nil || !failed(m) || !strings.Contains(m.Status.Change.Message, "not been healthy for 5m0s") ||
		!strings.Contains(m.Status.Change.Message, v1alpha1.RevertAnnotation+"="+target) {
		t.Fatalf("%v: %s", err, show(m))
	}

	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonChangeFailed, "not been healthy")

	// Nothing continues by itself, not even in a restarted operator.
	calls := e.mutations("w-0")
	e.restart()

	if m, _, err = e.pass("w-0"); err != nil || !failed(m) || e.mutations("w-0") != calls || m.Status.WorkingHash != worked {
		t.Errorf("%v: %s", err, show(m))
	}

	e.annotate("w-0", v1alpha1.RevertAnnotation, target)

	if c := e.planned("w-0"); c.Cause != v1alpha1.CauseRevert || c.Target != worked {
		t.Errorf("planned: %+v", c)
	}

	e.grant("w-0", false)
	m = e.until("w-0", "it is taken back", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil })
	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonReverted, "last working config")

	if m.Status.ConfigHash != worked || e.runs("w-0", "container-runtime") {
		t.Errorf("runs %s, and %s worked", m.Status.ConfigHash, worked)
	}

	e.patchAll(immediate)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "the corrected config is there", done)
}

// TestWithdrawn: a change that is no longer desired and has not begun is dropped, whatever state the node is in.
func TestWithdrawn(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(sickening)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "the node is sick", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangeSettling)(m) && m.Status.Change.Message != ""
	})

	// Another change is planned for the unhealthy node, and withdrawn.
	e.patchAll("machine: {kubelet: {extraArgs: {container-runtime: remote}}, env: {A: b}}")
	e.planned("w-0")
	e.patchAll(sickening)

	m, _, err := e.pass("w-0")
	if err != nil || m.Status.Change != nil {
		t.Errorf("%v: %s", err, show(m))
	}

	e.sleep(2 * patience)

	if m, _, err = e.pass("w-0"); err != nil || m.Status.Change != nil {
		t.Errorf("%v: %s", err, show(m))
	}
}

// TestGone: a node that does not come back from its reboot fails the change; if it does later, the change is complete.
func TestGone(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(needsReboot)
	e.planned("w-0")
	e.grant("w-0", true)

	if m, _, err := e.pass("w-0"); err != nil || !in(v1alpha1.ChangeRebooting)(m) || m.Status.Intent == nil ||
		m.Status.Intent.Step != v1alpha1.StepReboot || m.Status.Intent.BootID == "" {
		t.Fatalf("%v: %s", err, show(m))
	}

	e.nodes["w-0"].Kill()
	e.sleep(patience - time.Second)

	if m, _, _ := e.pass("w-0"); failed(m) {
		t.Fatalf("too early: %s", show(m))
	}

	e.sleep(2 * time.Second)

	if m, _, _ := e.pass("w-0"); !failed(m) || !strings.Contains(m.Status.Change.Message, "has not come back for 5m0s") {
		t.Fatalf("not failed: %s", show(m))
	}

	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonChangeFailed, "not come back")

	if err := e.nodes["w-0"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.until("w-0", "it is back", done)
}

// TestPermissionIsGivenBack: a machine that got a grant and never began, because it is unreachable, does not block
// others.
func TestPermissionIsGivenBack(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(immediate)
	c := e.planned("w-0")
	e.nodes["w-0"].Kill()
	e.grant("w-0", false)
	e.pass("w-0")
	e.sleep(patience - 10*time.Second)

	if m, _, _ := e.pass("w-0"); m.Status.Change.ID != c.ID {
		t.Fatalf("too early: %s", show(m))
	}

	e.sleep(time.Minute)

	m, _, _ := e.pass("w-0")
	if !in(v1alpha1.ChangePending)(m) || m.Status.Change.ID == c.ID {
		t.Fatalf("the permission still stands: %s", show(m))
	}

	if again, _, _ := e.pass("w-0"); again.Status.Change.ID != m.Status.Change.ID {
		t.Error("given back twice")
	}

	if err := e.nodes["w-0"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	calls := e.mutations("w-0")
	e.until("w-0", "it is back", func(m *v1alpha1.TalosMachine) bool { return m.Status.Stage == "running" })

	if e.mutations("w-0") != calls || e.runs("w-0", "shelf") {
		t.Error("it begins with a permission that it has given back")
	}

	e.grant("w-0", false)
	e.until("w-0", "it is changed", done)
}

// TestRefused: a configuration that a node rejects fails the change, and the message quotes nothing of it.
func TestRefused(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(needsReboot)
	e.planned("w-0")
	e.nodes["w-0"].Faults().Fail("ApplyConfiguration", codes.InvalidArgument, 1, 1)
	e.grant("w-0", true)

	m := e.until("w-0", "the change fails", failed)
	if !strings.Contains(m.Status.Change.Message, "refused the request for the machine config") || m.Status.Intent != nil {
		t.Errorf("%s", show(m))
	}

	calls := e.mutations("w-0")

	for range 3 {
		e.sleep(time.Minute)
		e.pass("w-0")
	}

	if e.mutations("w-0") != calls {
		t.Error("it is sent again and again")
	}

	e.annotate("w-0", v1alpha1.RetryAnnotation, "true")

	again := e.planned("w-0")
	if _, asked := e.machine("w-0").Annotations[v1alpha1.RetryAnnotation]; asked || again.ID == m.Status.Change.ID {
		t.Errorf("the annotation is there: %t; the change is %+v", asked, again)
	}

	e.grant("w-0", true)
	e.until("w-0", "it is changed", done)
	e.keepsSecrets("hush-hush")
}

// TestRefusedPlan: a machine whose node rejects even the dry run has not been compared, so no plan is complete without
// it.
func TestRefusedPlan(t *testing.T) {
	e := found(t, 1, 1)
	compared := e.machine("w-0").Status.ComparedTo

	e.nodes["w-0"].Faults().Fail("ApplyConfiguration", codes.InvalidArgument, 1, 1)
	e.patchAll(immediate)

	m, _, err := e.pass("w-0")
	if err == nil || m.Status.ComparedTo != compared || m.Status.Change != nil {
		t.Errorf("%v: compared to %s, %s", err, m.Status.ComparedTo, show(m))
	}

	e.condition("w-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonConfigRefused, "refused")
	e.planned("w-0")

	if e.machine("w-0").Status.ComparedTo == compared {
		t.Error("not compared after all")
	}
}

// TestRetryOfSickNode: a configuration that is already live gets a new health timeout, and the other machines still
// wait for it.
func TestRetryOfSickNode(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(sickening)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "the node is sick", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangeSettling)(m) && m.Status.Change.Message != ""
	})
	e.sleep(2 * patience)
	e.until("w-0", "the change fails", failed)
	e.annotate("w-0", v1alpha1.RetryAnnotation, "true")

	m, _, err := e.pass("w-0")
	if _, asked := m.Annotations[v1alpha1.RetryAnnotation]; err != nil || asked || !in(v1alpha1.ChangeSettling)(m) {
		t.Errorf("%v: annotated %t, %s", err, asked, show(m))
	}

	e.sleep(patience / 2)

	if m, _, err = e.pass("w-0"); err != nil || failed(m) {
		t.Errorf("%v: %s", err, show(m))
	}

	e.sleep(patience)

	if m, _, err = e.pass("w-0"); err != nil || !failed(m) {
		t.Errorf("%v: %s", err, show(m))
	}
}

// TestRetryDuringRestore: a retry that is requested during a restore is carried out after it.
func TestRetryDuringRestore(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(sickening)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "the node is sick", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangeSettling)(m) && m.Status.Change.Message != ""
	})
	e.sleep(2 * patience)
	e.until("w-0", "the change fails", failed)
	e.record(func(r *clusterstate.Runtime) { r.Restore = &clusterstate.Restore{Name: "r"} })
	e.annotate("w-0", v1alpha1.RetryAnnotation, "true")

	for range 3 {
		e.sleep(patience)

		if m, _, err := e.pass("w-0"); err != nil || !failed(m) || m.Annotations[v1alpha1.RetryAnnotation] == "" {
			t.Fatalf("during the restore: %v, annotations %v, %s", err, m.Annotations, show(m))
		}
	}

	e.record(func(r *clusterstate.Runtime) { r.Restore = nil })
	e.until("w-0", "it is retried", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangeSettling)(m) && m.Annotations[v1alpha1.RetryAnnotation] == ""
	})
}

// TestRevertMovesNoVersion: reverting to an old configuration does not downgrade versions that an upgrade has changed
// since.
func TestRevertMovesNoVersion(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(sickening)
	target := e.planned("w-0").Target
	e.grant("w-0", false)
	e.until("w-0", "the node is sick", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangeSettling)(m) && m.Status.Change.Message != ""
	})

	const upgraded = "kubelet:v1.36.9"

	e.edit("w-0", "machine: {kubelet: {image: ghcr.io/siderolabs/"+upgraded+"}}")

	if m, _, err := e.pass("w-0"); err != nil || !in(v1alpha1.ChangeSettling)(m) {
		t.Errorf("a sick node is no longer waited for: %v: %s", err, show(m))
	}

	e.annotate("w-0", v1alpha1.RevertAnnotation, target)
	e.until("w-0", "it is to be taken back", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change != nil && m.Status.Change.Cause == v1alpha1.CauseRevert
	})
	e.grant("w-0", false)
	e.until("w-0", "it is taken back", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil })

	if e.runs("w-0", "container-runtime") || !e.runs("w-0", upgraded) {
		t.Errorf("sick: %t, upgraded: %t", e.runs("w-0", "container-runtime"), e.runs("w-0", upgraded))
	}
}

// TestRemembered: the first configuration with which a machine is healthy is recorded as working.
func TestRemembered(t *testing.T) {
	e := found(t, 1, 0)

	m := e.machine("cp-0")
	if stored, err := e.r.Configs.Load(t.Context(), m); err != nil || len(stored.Working) == 0 || len(stored.Adopted) != 0 {
		t.Errorf("remembered: %d bytes, %v, %v", len(stored.Working), stored.Adopted, err)
	}
}
