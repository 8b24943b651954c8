package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/test/wait"
)

// asked shows a sample as its controllers do once everything was observed: the first machine is of the control plane,
// the second one a worker.
func (s *shell) asked(c *sample) {
	s.t.Helper()

	c.cp.Status.ObservedGeneration, c.worker.Status.ObservedGeneration = c.cp.Generation, c.worker.Generation
	s.update(c)

	for i, m := range c.machine {
		worker := c.worker
		if i == 0 {
			worker = nil
		}

		m.Status.ComparedTo = rollout.ComparedTo(c.cp, worker, m)
		s.reach(m, metav1.ConditionTrue)
	}
}

func (s *shell) update(c *sample) {
	s.t.Helper()

	if err := s.client.Status().Update(s.t.Context(), c.cp); err != nil {
		s.t.Fatal(err)
	}

	if err := s.client.Status().Update(s.t.Context(), c.worker); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shell) reach(m *v1alpha1.TalosMachine, status metav1.ConditionStatus) {
	s.t.Helper()
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReachable, Status: status, Reason: "Test", Message: "said by the test",
	})

	if err := s.client.Status().Update(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

// changes has the worker change, and its group plan it.
func (s *shell) changes(c *sample, planned bool) {
	s.t.Helper()

	m := c.machine[1]
	m.Status.Change = &v1alpha1.MachineChange{
		ID: "x", Target: "2", Base: "1", Cause: v1alpha1.CauseSpec, Phase: v1alpha1.ChangePending, Since: metav1.NewTime(wait.Now()), Reboot: true, Drain: true,
		Fields: []v1alpha1.FieldChange{{Field: "machine.env.A", Old: "<redacted>"}, {Field: "machine.b", New: "2"}, {Field: "machine.c", Old: "1", New: "3"}}, MoreFields: 4,
	}

	if err := s.client.Status().Update(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}

	if planned {
		c.worker.Status.Plan = &v1alpha1.PlanStatus{
			ID: "0123456789ab", Phase: v1alpha1.PlanAwaitingApproval, Message: "a person has to approve it", CreatedAt: metav1.NewTime(wait.Now()),
			Machines: []v1alpha1.PlannedMachine{{Name: m.Name, Target: "2", Base: "1", State: v1alpha1.PlannedPending, Reboot: true}},
		}
		s.update(c)
	}
}

// TestPlan: exit codes and formats.
func TestPlan(t *testing.T) {
	s := newShellOf(t, "view")
	c := s.sample("planned")

	if _, _, failed, _ := s.runOut("--timeout", "plan", "planned"); !strings.Contains(failed, "not been reconciled since its spec changed") {
		t.Errorf("nothing was looked at: %s", failed)
	}

	s.asked(c)

	if out, _, failed := s.run("plan", "planned"); failed != "" || out != "Nothing changes.\n" {
		t.Errorf("%q, %q", out, failed)
	}

	c.machine[1].Status.ComparedTo = "0/0/0"
	s.reach(c.machine[1], metav1.ConditionFalse)

	if _, _, failed, _ := s.runOut("--timeout", "plan", "planned"); !strings.Contains(failed, "machine planned-w-0 has not been asked yet (said by the test)") {
		t.Errorf("a node that is unreachable: %s", failed)
	}

	s.asked(c)
	s.changes(c, false)

	if _, _, failed, _ := s.runOut("--timeout", "plan", "planned"); !strings.Contains(failed, "the change of planned-w-0 has not been planned yet") {
		t.Errorf("the group knows nothing of it: %s", failed)
	}

	s.changes(c, true)

	out, _, failed := s.run("plan", "planned")
	want := "talosworker/planned-w  plan 0123456789ab  AwaitingApproval: a person has to approve it\n\n" +
		"ORDER   MACHINE       STATE     CAUSE   FIELDS                                  REBOOT   DRAIN   ETCD   TRY\n" +
		"1       planned-w-0   Pending   Spec    machine.env.A, machine.b and 5 more     yes      yes     no     no\n"

	if failed != "" || squeeze(out) != squeeze(want) {
		t.Errorf("%q: %s", failed, cmp.Diff(want, out))
	}

	out, _, _ = s.run("plan", "planned", "-o", "diff")
	if diff := cmp.Diff("--- planned-w-0 (live)\n+++ planned-w-0 (Spec)\n-machine.env.A: <redacted>\n+machine.b: 2\n-machine.c: 1\n+machine.c: 3\n@@ 4 more fields @@\n", out); diff != "" {
		t.Error(diff)
	}

	out, _, _ = s.run("plan", "planned", "-o", "json")

	var result struct {
		Changes int
		Groups  []struct{ ID, Kind string }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.Changes != 1 || len(result.Groups) != 2 || result.Groups[1].ID != "0123456789ab" {
		t.Errorf("%+v, %v", result, err)
	}
}

// squeeze leaves the width of columns out.
func squeeze(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}

	return strings.Join(lines, "\n")
}

// TestApprove: what is shown is approved, and a dead node does not keep the others from their changes.
func TestApprove(t *testing.T) {
	s := newShell(t)
	c := s.sample("approved")
	s.asked(c)
	s.changes(c, false)

	approved := func() string {
		w := &v1alpha1.TalosWorker{}
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(c.worker), w); err != nil {
			t.Fatal(err)
		}

		return w.Annotations[v1alpha1.ApprovedAnnotation]
	}

	// "Nothing to approve" would be wrong.
	if out, _, failed, _ := s.runOut("--timeout", "approve", "approved"); !strings.Contains(failed, "has not been planned yet") {
		t.Errorf("%q, %q", out, failed)
	}

	s.changes(c, true)

	if _, _, failed := s.run("approve", "approved", "--plan", "ffffffffffff"); !strings.Contains(failed, "review the "+
		"plan again") || approved() != "" {
		t.Errorf("another plan: %q, %q", failed, approved())
	}

	c.machine[0].Status.ComparedTo = "0/0/0"
	s.reach(c.machine[0], metav1.ConditionFalse)

	out, warned, failed := s.run("approve", "approved", "--plan", "0123456789ab")
	if failed != "" || !strings.Contains(out, "talosworker/approved-w: plan 0123456789ab approved (1 machine)") || approved() != "0123456789ab" {
		t.Errorf("%q, %q, approved %q", out, failed, approved())
	}

	if !strings.Contains(warned, "machine approved-cp has not been asked yet") {
		t.Errorf("nobody is told of the dead node: %q", warned)
	}
}

// TestRevertAndRetry: what they ask for, and when there is nothing to ask for.
func TestRevertAndRetry(t *testing.T) {
	s := newShell(t)
	c := s.sample("back")
	m := c.machine[1]

	refused := func(part string, args ...string) {
		t.Helper()

		if out, _, failed := s.run(args...); !strings.Contains(failed, part) {
			t.Errorf("%v: %q, %q", args, out, failed)
		}
	}

	refused("reading TalosMachine nobody", "revert", "nobody")
	refused("never been healthy", "revert", m.Name)

	m.Status.WorkingHash = "1"
	s.reach(m, metav1.ConditionTrue)
	refused("no change under way", "revert", m.Name)
	refused("no change that failed", "retry", m.Name)

	s.changes(c, false)
	refused("no change that failed", "retry", m.Name)

	m.Status.Change.Phase = v1alpha1.ChangeFailed
	s.reach(m, metav1.ConditionTrue)

	for command, want := range map[string][2]string{
		"revert": {v1alpha1.RevertAnnotation, "2"}, "retry": {v1alpha1.RetryAnnotation, "true"},
	} {
		out, _, failed := s.run(command, m.Name)

		after := &v1alpha1.TalosMachine{}
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(m), after); err != nil {
			t.Fatal(err)
		}

		if failed != "" || !strings.HasPrefix(out, "talosmachine/back-w-0 ") || after.Annotations[want[0]] != want[1] {
			t.Errorf("%s: %q, %q, %v", command, out, failed, after.Annotations)
		}

		m.ResourceVersion = after.ResourceVersion
	}

	m.Status.Change.Target = "1"
	s.reach(m, metav1.ConditionTrue)
	refused("being rolled back already", "revert", m.Name)
}

// TestRetryHooks: with the name of a cluster, failed hooks before its upgrade are tried again.
func TestRetryHooks(t *testing.T) {
	s := newShell(t)
	c := s.sample("hooks")

	reports := func(reason string) {
		meta.SetStatusCondition(&c.cp.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: reason,
		})

		if err := s.client.Status().Update(t.Context(), c.cp); err != nil {
			t.Fatal(err)
		}
	}

	reports(v1alpha1.ReasonUpgradeHookRunning)

	bare := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	bare.Spec.TalosVersion, bare.Spec.KubernetesVersion, bare.Spec.ControlPlane.Replicas = talosV, kubernetes, 1
	bare.Spec.ClusterEndpoint = c.cp.Spec.Endpoint
	s.create(bare)

	for name, want := range map[string]string{
		c.cp.Name: "no failed hook stops an upgrade", "nobody": "reading TalosMachine nobody", "bare": "has no control plane yet",
	} {
		if out, _, failed := s.run("retry", name); !strings.Contains(failed, want) {
			t.Errorf("%s: %q, %q", name, out, failed)
		}
	}

	// A machine that has the name of the cluster is not in its way, and its state is told where there is no hook to retry.
	twin := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: c.cp.Name}, Spec: c.machine[1].Spec,
	}
	s.create(twin)

	if _, _, failed := s.run("retry", c.cp.Name); !strings.Contains(failed, "hooks has no change that failed") {
		t.Errorf("%q", failed)
	}

	reports(v1alpha1.ReasonUpgradeHookFailed)

	out, _, failed := s.run("retry", c.cp.Name)

	after := &v1alpha1.TalosControlPlane{}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(c.cp), after); err != nil {
		t.Fatal(err)
	}

	if failed != "" || out != "taloscontrolplane/hooks runs the hooks before its upgrade again\n" ||
		after.Annotations[v1alpha1.RetryAnnotation] != "true" {
		t.Errorf("%q, %q, %v", out, failed, after.Annotations)
	}
}

// TestRollback: a machine is rolled back from the Talos of its last upgrade, whether that failed or not.
func TestRollback(t *testing.T) {
	s := newShell(t)
	m := s.sample("undo").machine[1]
	before := &v1alpha1.PreviousSystem{TalosVersion: "v1.12.12", Image: "installer:v1.12.12", ReplacedBy: "2"}
	overwritten := &v1alpha1.PreviousSystem{TalosVersion: "v1.12.12", ReplacedBy: "2"}
	upgrade := func(phase v1alpha1.ChangePhase) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{
			ID: "id", Kind: v1alpha1.ChangeTalos, Cause: v1alpha1.CauseSpec, Base: "1", Target: "2", Phase: phase,
			Since: metav1.NewTime(wait.Now()), Fields: []v1alpha1.FieldChange{{Field: "Talos", Old: "v1.12.12", New: "v1.13.9"}},
		}
	}
	reverting := upgrade(v1alpha1.ChangePending)
	reverting.Cause = v1alpha1.CauseRevert

	for name, c := range map[string]struct {
		change         *v1alpha1.MachineChange
		previous       *v1alpha1.PreviousSystem
		runs           string
		requested      string
		unwanted, part string
	}{
		"it failed":          {upgrade(v1alpha1.ChangeFailed), before, "v1.13.9", "", "2", "rolled back to Talos v1.12.12"},
		"it is complete":     {nil, before, "v1.13.9", "", "2", "rolled back to Talos v1.12.12"},
		"another request":    {nil, before, "v1.13.9", "1", "2", "rolled back to Talos v1.12.12"},
		"it was not booted":  {upgrade(v1alpha1.ChangeFailed), before, "v1.12.12", "", "", "ran before the upgrade"},
		"nothing runs it":    {nil, before, "v1.12.12", "", "", "ran before the upgrade"},
		"it settles":         {upgrade(v1alpha1.ChangeSettling), before, "v1.13.9", "", "", "has a change in progress"},
		"nothing is known":   {nil, nil, "v1.13.9", "", "", "cannot be rolled back"},
		"it is overwritten":  {nil, overwritten, "v1.13.9", "", "", "may have overwritten Talos v1.12.12"},
		"it is under way":    {reverting, before, "v1.13.9", "", "", "being rolled back already"},
		"it was rolled back": {nil, before, "v1.12.12", "2", "2", "requested already"},
	} {
		m.Annotations = map[string]string{v1alpha1.RevertAnnotation: c.requested}
		if err := s.client.Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}

		m.Status.Change, m.Status.PreviousSystem, m.Status.TalosVersion = c.change, c.previous, c.runs
		s.reach(m, metav1.ConditionTrue)

		out, _, failed := s.run("rollback", m.Name)
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(out+failed, c.part) || m.Annotations[v1alpha1.RevertAnnotation] != c.unwanted {
			t.Errorf("%s: %q, %q, %v", name, out, failed, m.Annotations)
		}
	}

	m.Annotations, m.Status.Change, m.Status.WorkingHash = nil, upgrade(v1alpha1.ChangeFailed), "1"
	s.reach(m, metav1.ConditionTrue)

	if _, _, failed := s.run("revert", m.Name); !strings.Contains(failed, "talos-operator rollback "+m.Name) {
		t.Errorf("a revert of an upgrade: %q", failed)
	}
}
