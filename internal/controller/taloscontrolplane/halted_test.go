package taloscontrolplane_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/harness"
)

// workers creates a worker group with one machine. The function that it returns shows the plan of the group, and the
// phase of the change that brings another Talos to the machine, which runs the old one.
func (e *env) workers(cp *v1alpha1.TalosControlPlane, to string) func(v1alpha1.PlanPhase, v1alpha1.ChangePhase) {
	e.Helper()

	w := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "group"}}
	w.Spec.ControlPlaneRef.Name = cp.Name
	w.Spec.Machines = []v1alpha1.MachineEntry{{Name: "w-0", Address: e.address(20)}}
	e.Create(w)

	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "w-0", Labels: map[string]string{
			v1alpha1.ControlPlaneLabel: cp.Name, v1alpha1.RoleLabel: string(v1alpha1.RoleWorker), v1alpha1.WorkerLabel: w.Name,
		}},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cp.Name}, WorkerRef: &v1alpha1.ObjectReference{Name: w.Name},
			Role: v1alpha1.RoleWorker, Address: e.address(20),
		},
	}
	e.Create(m)

	return func(plan v1alpha1.PlanPhase, phase v1alpha1.ChangePhase) {
		e.Helper()
		e.Get(w, w.Name)
		w.Status.Plan = &v1alpha1.PlanStatus{ID: "plan", Phase: plan, CreatedAt: metav1.NewTime(e.Clock.Now())}
		e.UpdateStatus(w)

		e.Get(m, m.Name)
		toTalos(m, to)
		m.Status.Change.Phase = phase
		m.Status.TalosVersion, m.Status.KubeletVersion = harness.TalosVersion, harness.KubernetesVersion

		for _, kind := range []string{v1alpha1.ConditionConfigured, v1alpha1.ConditionReachable} {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test"})
		}

		e.UpdateStatus(m)
	}
}

// TestHooksAfterWorkers: the hooks after an upgrade run when a worker stops it, with the workers held. The version stays,
// so that the worker can be retried, which begins with the hooks before the upgrade.
func TestHooksAfterWorkers(t *testing.T) {
	const to = "v1.13.10"

	e := newEnv(t)
	cp, _ := e.established(1)
	e.playsJobs()
	e.until(cp, "the version of the API servers is known", func() bool { return cp.Status.ObservedKubeVersion != "" })

	job := runtime.RawExtension{Raw: []byte(`{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`)}
	cp.Spec.TalosVersion = to
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, PrePull: v1alpha1.PrePullNever, Hooks: []v1alpha1.UpgradeHook{
		{Name: "check", When: v1alpha1.HookBefore, Namespace: e.Namespace, Job: job},
		{Name: "report", When: v1alpha1.HookAfter, Namespace: e.Namespace, Job: job},
	}}
	e.Update(cp)
	e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
		m.Status.TalosVersion, m.Status.KubeletVersion = to, harness.KubernetesVersion
	})
	e.record(func(s *clusterstate.State) {
		s.Runtime.Upgrade = &clusterstate.UpgradeRun{
			Component: "Talos", From: harness.TalosVersion, To: to, Attempt: 1, Phase: clusterstate.UpgradeBegun,
			PlannedAt: e.Clock.Now(),
		}
	})

	shows := e.workers(cp, to)
	held := func(when string, want bool, jobs int) {
		t.Helper()
		e.step(cp)

		u := cp.Status.Upgrade
		if _, all := e.jobs(); u == nil || u.TalosVersion != to || u.WorkersHeld != want || all != jobs {
			t.Fatalf("%s: %d Jobs, %+v, %+v", when, all, u, e.state().Runtime.Upgrade)
		}
	}

	shows(v1alpha1.PlanRollingOut, v1alpha1.ChangeRebooting)
	held("it goes on", false, 0)
	shows(v1alpha1.PlanStopped, v1alpha1.ChangeFailed)
	held("it has stopped", true, 0)
	held("it is held", true, 1)

	after := e.oneJob("after", 1)
	if !strings.Contains(after.Name, "report") {
		t.Errorf("%s", after.Name)
	}

	e.endJob(after, true)

	for range 3 {
		e.restart()
		e.playsJobs()
		held("the hooks after it have run", true, 1)
	}

	shows(v1alpha1.PlanWaiting, v1alpha1.ChangePending) // it is retried
	held("the hooks before it", true, 2)

	before := e.oneJob("before", 2)
	if !strings.Contains(before.Name, "check") {
		t.Errorf("%s", before.Name)
	}

	e.endJob(before, true)
	e.step(cp)
	held("it may begin", false, 2)

	if run := e.state().Runtime.Upgrade; run.Phase != clusterstate.UpgradeBegun {
		t.Errorf("%+v", run)
	}
}
