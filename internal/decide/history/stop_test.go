package history_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestStops: a run has stopped where a user has to act before a group of machines goes on, and only there.
func TestStops(t *testing.T) {
	const (
		running, waiting, stopped = v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunWaiting, v1alpha1.UpgradeRunStopped
		hook                      = "hook check before Talos v1.13.9 (Job default/j) failed: exit code 1; no machine begins"
	)

	// workers is the group of the machines w and x, with a plan that tolerates failures unless told otherwise.
	workers := func(w *world, phase v1alpha1.PlanPhase, maxFailed *intstr.IntOrString) {
		group := v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
		group.Spec.Rollout = &v1alpha1.RolloutOptions{MaxFailed: maxFailed}
		group.Status.Plan = &v1alpha1.PlanStatus{Phase: phase, Message: "the plan of workers"}
		w.workers = []v1alpha1.TalosWorker{group}
	}
	one := intstr.FromInt32(1)
	hooks := func(w *world, reason string) {
		meta.SetStatusCondition(&w.cp.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: reason, Message: hook,
		})
	}
	config := func(w *world, name string) {
		w.machines[name].Status.Change = &v1alpha1.MachineChange{Kind: v1alpha1.ChangeConfig, Phase: v1alpha1.ChangeFailed}
	}
	fails := func(w *world, name string) { w.changes(name, v1alpha1.ChangeFailed, "no") }

	for name, c := range map[string]struct {
		do      func(*world)
		phase   v1alpha1.UpgradeRunPhase
		message string
	}{
		"a control plane": {func(w *world) { workers(w, v1alpha1.PlanRollingOut, &one); fails(w, "a") }, stopped, "a failed: no"},
		"a worker":        {func(w *world) { workers(w, v1alpha1.PlanRollingOut, nil); fails(w, "w") }, stopped, "w failed: no"},
		"a tolerated worker, and a soak": {func(w *world) {
			workers(w, v1alpha1.PlanWaiting, &one)
			fails(w, "w")
			w.changes("x", v1alpha1.ChangePending, "a soak")
		}, waiting, "x: a soak"},
		"a worker group that waits": {
			func(w *world) { workers(w, v1alpha1.PlanAwaitingApproval, nil) }, waiting, "TalosWorker workers: the plan of workers",
		},
		"a worker group that goes on": {func(w *world) { workers(w, v1alpha1.PlanRollingOut, nil) }, running, ""},
		"a worker that the control plane tolerates": {func(w *world) {
			workers(w, v1alpha1.PlanRollingOut, nil)
			w.workers[0].Spec.Rollout = nil
			w.cp.Spec.Rollout = &v1alpha1.RolloutOptions{MaxFailed: &one}
			fails(w, "w")
			w.changes("x", v1alpha1.ChangeApplying, "")
		}, running, ""},
		"a tolerated worker, and another one": {func(w *world) {
			workers(w, v1alpha1.PlanRollingOut, &one)
			fails(w, "w")
			w.changes("x", v1alpha1.ChangeApplying, "")
		}, running, ""},
		"more than is tolerated": {func(w *world) { workers(w, v1alpha1.PlanStopped, &one); fails(w, "w"); fails(w, "x") }, stopped, "w failed: no; x failed: no"},
		"a group that has no plan": {func(w *world) {
			workers(w, "", &one)
			w.workers[0].Status.Plan = nil
			fails(w, "w")
		}, stopped, "w failed: no"},
		"one group, while another one goes on": {func(w *world) { fails(w, "w"); w.changes("b", v1alpha1.ChangeApplying, "") }, stopped, "w failed: no"},
		"a configuration of the group": {func(w *world) {
			workers(w, v1alpha1.PlanStopped, nil)
			config(w, "w")
		}, stopped, "workers: the plan of workers"},
		"a configuration of the control plane": {func(w *world) {
			w.cp.Status.Plan = &v1alpha1.PlanStatus{Phase: v1alpha1.PlanStopped, Message: "a failed"}
			config(w, "a")
		}, stopped, "c: a failed"},
		"a configuration that is tolerated": {func(w *world) { workers(w, v1alpha1.PlanRollingOut, &one); config(w, "w") }, running, ""},
		"a configuration of a group that is done": {func(w *world) {
			workers(w, v1alpha1.PlanStopped, nil)
			w.runsTalos(newTalos, "w", "x")
			config(w, "w")
		}, running, ""},
		"another version that has failed, and is about to be replaced": {func(w *world) {
			workers(w, v1alpha1.PlanStopped, nil)
			w.changes("w", v1alpha1.ChangeFailed, "no", v1alpha1.FieldChange{Field: upgrade.FieldTalos, New: "v1.13.8"})
		}, running, ""},
		"a hook":           {func(w *world) { hooks(w, v1alpha1.ReasonUpgradeHookFailed) }, stopped, hook},
		"a hook that runs": {func(w *world) { hooks(w, v1alpha1.ReasonUpgradeHookRunning) }, running, ""},
		"a hook before another version": {func(w *world) {
			w.changes("a", v1alpha1.ChangeApplying, "")
			w.plan("", newKube, "")
			hooks(w, v1alpha1.ReasonUpgradeHookFailed)
		}, running, ""},
	} {
		w := newWorld()
		w.add("x")
		w.plan(newTalos, "", "")
		w.settle()
		c.do(w)
		w.settle()

		st := w.runs[upgrade.Talos][0].Status
		if st.Phase != c.phase || st.Message != c.message {
			t.Errorf("%s: %s %q", name, st.Phase, st.Message)
		}

		want := ""
		if c.phase == stopped {
			want = v1alpha1.ReasonUpgradeStopped
			if c.message == hook {
				want = v1alpha1.ReasonUpgradeHookFailed
			}
		}

		reason := ""
		if stalled := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled); stalled != nil {
			reason = stalled.Reason
		}

		if reason != want {
			t.Errorf("%s: stalled with reason %q", name, reason)
		}
	}
}
