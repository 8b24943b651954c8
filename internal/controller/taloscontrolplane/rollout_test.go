package taloscontrolplane_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

// established returns a control plane with a working etcd, and machines with the status that their controller would
// write.
func (e *env) established(size int) (*v1alpha1.TalosControlPlane, []*node.Node) {
	e.Helper()

	cp, nodes := e.found(size)
	e.establish(cp)

	return cp, nodes
}

// establish reconciles a control plane whose machines wait for the bootstrap until its etcd is established.
func (e *env) establish(cp *v1alpha1.TalosControlPlane) {
	e.Helper()
	e.until(cp, "etcd is established", func() bool {
		b := e.state().Runtime.Bootstrap

		return b != nil && b.EstablishedAt != nil && cp.Status.ReadyReplicas == 0 &&
			meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionEtcdHealthy)
	})

	for i := range cp.Spec.Machines {
		e.show(cp, i, func(*v1alpha1.TalosMachine) {})
	}
}

// show writes the status of a ready and compared machine, as its controller would, with a change.
func (e *env) show(cp *v1alpha1.TalosControlPlane, i int, edit func(*v1alpha1.TalosMachine)) {
	e.Helper()

	m := e.talosMachine(i)
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionConfigured} {
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test"})
	}

	m.Status.Address, m.Status.ComparedTo = e.address(i), rollout.ComparedTo(cp, nil, m)

	edit(m)

	e.UpdateStatus(m)
}

func (e *env) talosMachine(i int) *v1alpha1.TalosMachine {
	e.Helper()

	m := &v1alpha1.TalosMachine{}
	e.Get(m, fmt.Sprintf("cp-%d", i))

	return m
}

// pending adds a change that makes the member temporarily unavailable.
func pending(m *v1alpha1.TalosMachine) {
	m.Status.Change = &v1alpha1.MachineChange{
		ID: "change-" + m.Name, Target: "2", Base: "1", Cause: v1alpha1.CauseSpec, Phase: v1alpha1.ChangePending,
		Since: metav1.NewTime(wait.Now()), Reboot: true, Etcd: true, Drain: true,
	}
}

func in(phase v1alpha1.ChangePhase) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		pending(m)
		m.Status.Change.Phase = phase
	}
}

func sick(m *v1alpha1.TalosMachine) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Test",
	})
}

// granted returns the names of the machines that may begin their current change.
func (e *env) granted(size int) string {
	e.Helper()

	var names []string

	for i := range size {
		if m := e.talosMachine(i); rollout.Granted(m) {
			names = append(names, m.Name)
		}
	}

	return strings.Join(names, " ")
}

func (e *env) disruption() clusterstate.Disruption {
	e.Helper()

	if d := e.state().Runtime.Disruption; d != nil {
		return *d
	}

	return clusterstate.Disruption{}
}

// step reconciles once, whatever the result is.
func (e *env) step(cp *v1alpha1.TalosControlPlane) {
	e.Helper()

	if _, err := e.pass(cp); err != nil {
		e.Errorf("%v", err)
	}
}

// TestOneAtATime: a control-plane node begins once that is recorded, the next one when it is complete, and the leader
// last.
func TestOneAtATime(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)

	for i := range 3 {
		e.show(cp, i, pending)
	}

	for _, i := range []int{1, 2, 0} {
		name := fmt.Sprintf("cp-%d", i)

		// Reconciliations, crashes and the progress of the machine change nothing.
		for _, phase := range []v1alpha1.ChangePhase{"", v1alpha1.ChangeDraining, v1alpha1.ChangeRebooting, v1alpha1.ChangeSettling} {
			if phase != "" {
				e.show(cp, i, in(phase))
			}

			e.restart()
			e.step(cp)

			if d := e.disruption(); d.Machine != name || d.Change != "change-"+name || d.Act != "Reboot" {
				t.Fatalf("%s is %s: recorded is %+v", name, phase, d)
			}

			if got := e.granted(3); got != name {
				t.Fatalf("%s is %s: %q may begin", name, phase, got)
			}
		}

		e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRollingOut, name+" Running")
		e.show(cp, i, func(m *v1alpha1.TalosMachine) { m.Status.Change, m.Status.WorkingHash = nil, "2" })
	}

	e.step(cp)
	e.step(cp)

	if d := e.disruption(); d.Machine != "" || cp.Status.Plan != nil {
		t.Errorf("left: %+v, %+v", d, cp.Status.Plan)
	}
}

// staleCache returns a control plane in an old state.
type staleCache struct {
	client.Client

	was *v1alpha1.TalosControlPlane
}

// Get implements client.Reader.
func (c staleCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if cp, ok := o.(*v1alpha1.TalosControlPlane); ok {
		c.was.DeepCopyInto(cp)

		return nil
	}

	return c.Client.Get(ctx, key, o, opts...)
}

// TestPlanOutlivesAStaleCache: a reconciliation that does not see the previous plan does not change it, so that the
// plan that a user has read can be approved.
func TestPlanOutlivesAStaleCache(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)

	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Rollout = &v1alpha1.RolloutOptions{Approval: v1alpha1.ApprovalManual}
	})

	for i := range 3 {
		e.show(cp, i, pending)
	}

	was := cp.DeepCopy()
	e.step(cp)

	printed := cp.Status.Plan.DeepCopy()

	e.Clock.Sleep(time.Minute)
	e.r.Client = staleCache{e.Client, was}
	res, err := e.pass(cp)
	e.r.Client = e.Client

	if err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > time.Second {
		t.Errorf("a pass on a stale cache: made again after %s (%v)", res.RequeueAfter, err)
	}

	if diff := cmp.Diff(printed, cp.Status.Plan); diff != "" {
		t.Errorf("the plan changed (-printed +now):\n%s", diff)
	}

	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) {
		metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.ApprovedAnnotation, printed.ID)
	})
	e.step(cp)

	if got := e.granted(3); got != "cp-1" {
		t.Errorf("with the approval of what was printed %q may begin; the plan is %+v", got, cp.Status.Plan)
	}
}

// TestApprovalEndsWithItsPlan: an approval does not apply to the same differences at another time.
func TestApprovalEndsWithItsPlan(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)

	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Rollout = &v1alpha1.RolloutOptions{Approval: v1alpha1.ApprovalManual}
	})
	e.show(cp, 0, pending)

	for i := 1; i < 3; i++ {
		e.show(cp, i, func(*v1alpha1.TalosMachine) {})
	}

	e.step(cp)

	first := cp.Status.Plan.DeepCopy()

	// The difference is reverted at the moment of the approval, before anything begins.
	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) {
		metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.ApprovedAnnotation, first.ID)
	})
	e.show(cp, 0, func(m *v1alpha1.TalosMachine) { m.Status.Change = nil })
	e.step(cp)

	if approved, ok := cp.Annotations[v1alpha1.ApprovedAnnotation]; ok || cp.Status.Plan != nil {
		t.Errorf("after its end the plan is %+v, approved is %q", cp.Status.Plan, approved)
	}

	e.show(cp, 0, pending)
	e.step(cp)

	if p := cp.Status.Plan; p == nil || p.ID != first.ID || p.Phase != v1alpha1.PlanAwaitingApproval || e.granted(1) != "" {
		t.Errorf("the same differences again: the plan is %+v (first %s), %q may begin", p, first.ID, e.granted(1))
	}

	// Another value of the annotation is kept: it approves nothing, and the operator must not remove it.
	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) {
		metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.ApprovedAnnotation, "another")
	})
	e.show(cp, 0, func(m *v1alpha1.TalosMachine) { m.Status.Change = nil })
	e.step(cp)

	if cp.Annotations[v1alpha1.ApprovedAnnotation] != "another" {
		t.Errorf("annotations: %v", cp.Annotations)
	}
}

// TestWindowOpens: no event reports that a maintenance window opens, so a reconciliation is scheduled for that time.
func TestWindowOpens(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)

	e.Clock.SetTime(e.Clock.Now().Truncate(time.Hour).Add(time.Hour - 8*time.Second))
	cp.Spec.Rollout = &v1alpha1.RolloutOptions{
		RebootPolicy: v1alpha1.RebootWindow,
		Windows:      []v1alpha1.MaintenanceWindow{{Schedule: "0 * * * *", Duration: metav1.Duration{Duration: time.Minute}}},
	}
	e.Update(cp)

	for i := range 3 {
		e.show(cp, i, pending)
	}

	res, err := e.pass(cp)
	if got := e.granted(3); err != nil || got != "" || res.RequeueAfter <= 0 || res.RequeueAfter > 8*time.Second {
		t.Errorf("before the window: %s may begin, the next pass comes in %s (%v)", got, res.RequeueAfter, err)
	}

	e.Clock.Sleep(9 * time.Second)
	e.step(cp)

	if got := e.granted(3); got != "cp-1" {
		t.Errorf("in the window %q may begin", got)
	}
}

// TestCrashBeforeTheGrant: a recorded disruption gets its grant.
func TestCrashBeforeTheGrant(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)

	for i := range 3 {
		e.show(cp, i, pending)
	}

	e.record(func(s *clusterstate.State) {
		s.Runtime.Disruption = &clusterstate.Disruption{Machine: "cp-2", Act: "Reboot", Since: e.Clock.Now(), Change: "change-cp-2"}
	})
	e.step(cp)

	if got := e.granted(3); got != "cp-2" || e.disruption().Machine != "cp-2" {
		t.Errorf("%q may begin, recorded is %+v", got, e.disruption())
	}
}

// TestRecordEnds: a record ends with its change: when it failed, when the machine returned its grant, and when it plans
// another change.
func TestRecordEnds(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.established(3)

	for name, edit := range map[string]func(*v1alpha1.TalosMachine){
		"failed":  in(v1alpha1.ChangeFailed),
		"another": func(m *v1alpha1.TalosMachine) { pending(m); m.Status.Change.ID = "another" },
		"none":    func(m *v1alpha1.TalosMachine) { m.Status.Change = nil },
	} {
		e.show(cp, 1, edit)
		e.record(func(s *clusterstate.State) {
			s.Runtime.Disruption = &clusterstate.Disruption{Machine: "cp-1", Act: "Reboot", Since: e.Clock.Now(), Change: "change-cp-1"}
		})

		// Meanwhile, the safety package permits no other disruption.
		nodes[2].Kill()
		e.step(cp)

		if d := e.disruption(); d.Machine != "" {
			t.Errorf("%s: recorded is %+v", name, d)
		}
	}
}

// TestHeld: no machine begins while a member is unavailable, or while another node is not ready; a machine that is not
// ready itself may begin.
func TestHeld(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.established(3)

	e.show(cp, 0, pending)
	e.show(cp, 1, sick)
	e.step(cp)
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRolloutWaiting, "cp-0: waiting until cp-1 is ready")

	e.show(cp, 1, func(*v1alpha1.TalosMachine) {})
	nodes[2].Kill()
	e.step(cp)
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRolloutWaiting, "waiting for "+
		"etcd to become healthy before disrupting")

	if got := e.granted(3); got != "" || e.disruption().Machine != "" {
		t.Errorf("%q may begin, recorded is %+v", got, e.disruption())
	}

	if err := nodes[2].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.show(cp, 0, func(m *v1alpha1.TalosMachine) { pending(m); sick(m) })
	e.until(cp, "it may begin", func() bool { return e.granted(3) == "cp-0" })
}

// TestTriedOneAtATime: a change without a reboot is also made on one machine at a time.
func TestTriedOneAtATime(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)

	light := func(m *v1alpha1.TalosMachine) {
		pending(m)
		m.Status.Change.Reboot, m.Status.Change.Etcd, m.Status.Change.Drain = false, false, false
	}

	for i := range 3 {
		e.show(cp, i, light)
	}

	for range 3 {
		e.step(cp)
	}

	if got := e.granted(3); got != "cp-1" || e.disruption().Machine != "" {
		t.Errorf("%q may begin, recorded is %+v", got, e.disruption())
	}
}

// TestStagedOneAtATime: with manual reboots, the first machine has to succeed before the next one is staged.
func TestStagedOneAtATime(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)

	cp.Spec.Rollout = &v1alpha1.RolloutOptions{RebootPolicy: v1alpha1.RebootManual}
	e.Update(cp)

	for i := range 3 {
		e.show(cp, i, pending)
	}

	e.step(cp)

	if m := e.talosMachine(1); !rollout.Granted(m) || m.Spec.Change.Reboot || e.granted(3) != "cp-1" || e.disruption().Machine != "" {
		t.Errorf("%q may begin: %+v; recorded is %+v", e.granted(3), m.Spec.Change, e.disruption())
	}

	e.show(cp, 1, in(v1alpha1.ChangeAwaitingReboot))
	e.step(cp)
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRolloutWaiting, "waiting for cp-1 to be rebooted manually")

	if got := e.granted(3); got != "cp-1" {
		t.Errorf("%q may begin", got)
	}

	e.show(cp, 1, func(m *v1alpha1.TalosMachine) { m.Status.Change, m.Status.WorkingHash = nil, "2" })
	e.step(cp)

	if got := e.granted(3); got != "cp-2" {
		t.Errorf("%q may begin", got)
	}
}

// TestEtcdBrokenByConfig: while no etcd responds, a configuration change still reaches its node, because it may repair
// etcd.
func TestEtcdBrokenByConfig(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.established(1)

	e.show(cp, 0, func(m *v1alpha1.TalosMachine) { in(v1alpha1.ChangeFailed)(m); sick(m) })
	e.record(func(s *clusterstate.State) {
		s.Runtime.Disruption = &clusterstate.Disruption{Machine: "cp-0", Act: "Reboot", Since: e.Clock.Now(), Change: "change-cp-0"}
	})
	nodes[0].Faults().Fail("EtcdMemberList", codes.Unavailable, 1, 0)
	e.step(cp)
	e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionTrue, v1alpha1.ReasonBootstrapped, "EtcdHealthy")
	e.Condition(cp, v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse, v1alpha1.ReasonEtcdUnhealthy, "cp-0")

	if cp.Status.Plan == nil || cp.Status.Plan.Phase != v1alpha1.PlanStopped || e.disruption().Machine != "" {
		t.Errorf("plan %+v, recorded %+v", cp.Status.Plan, e.disruption())
	}

	// A user reverts it.
	e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
		pending(m)
		sick(m)
		m.Status.Change.ID, m.Status.Change.Cause, m.Status.Change.Target = "back", v1alpha1.CauseRevert, "1"
	})
	e.step(cp)

	if m := e.talosMachine(0); !rollout.Granted(m) || !m.Spec.Change.Reboot || e.disruption().Change != "back" {
		t.Errorf("%+v, recorded %+v", m.Spec.Change, e.disruption())
	}
}
