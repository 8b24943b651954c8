package upgradehistory_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestRecord: one record for each version, with its owner, told of at its end, and nothing is written twice.
func TestRecord(t *testing.T) {
	e := newEnvAlone(t)
	e.expect("idle", "")

	e.plan(target)
	e.pass()
	e.expect("begun", "c-talos-1 v1.12.4>v1.13.9 Running 0/2")

	run := &v1alpha1.TalosUpgrade{}
	e.Get(run, "c-talos-1")

	if !metav1.IsControlledBy(run, e.cp) || run.Labels[v1alpha1.ControlPlaneLabel] != "c" || run.Spec.ControlPlaneRef.Name != "c" {
		t.Errorf("%+v, %+v", run.ObjectMeta, run.Spec)
	}

	run.Spec.To = "v1.13.10"
	if err := e.Admin.Update(e.Context(), run); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the spec of an upgrade record is immutable") {
		t.Errorf("another version in a record: %v", err)
	}

	e.runs("c-0", target)
	e.pass()
	e.expect("half", "c-talos-1 v1.12.4>v1.13.9 Running 1/2")

	if told := e.Told(); len(told) > 0 {
		t.Errorf("told before the end: %v", told)
	}

	before := measured(t)

	e.Clock.Sleep(time.Minute)
	e.runs("c-1", target)
	e.plan("v1.13.10")
	e.pass()

	if n := measured(t) - before; n != 1 {
		t.Errorf("%d runs measured", n)
	}

	e.expect("the next one", "c-talos-1 v1.12.4>v1.13.9 Succeeded 2/2, c-talos-2 v1.13.9>v1.13.10 Running 0/2")

	if told := e.Told(); len(told) != 1 || !strings.Contains(told[0], "Normal Upgraded Succeeded: 2 of 2 machines run Talos v1.13.9") {
		t.Errorf("told %v", told)
	}

	// A record that is deleted while its run goes on is written anew.
	e.Get(run, "c-talos-2")
	e.Delete(run)
	e.pass()
	e.expect("deleted", "c-talos-1 v1.12.4>v1.13.9 Succeeded 2/2, c-talos-2 v1.13.9>v1.13.10 Running 0/2")
}

// TestWaitingTold: an event for each thing that a run begins to wait for, and one when it goes on.
func TestWaitingTold(t *testing.T) {
	e := newEnv(t)

	waits := func(when, message string, want ...string) {
		t.Helper()

		e.cp.Status.Upgrade = &v1alpha1.UpgradeStatus{ObservedGeneration: e.cp.Generation, TalosVersion: target, Message: message}
		e.UpdateStatus(e.cp)
		e.pass()
		e.pass()

		told := e.Told()

		ok := len(told) == len(want)
		for i := range min(len(told), len(want)) {
			ok = ok && strings.Contains(told[i], want[i])
		}

		if !ok {
			t.Errorf("%s: told %q, want %q", when, told, want)
		}
	}

	waits("from the begin", "a window", "Normal UpgradeWaiting waiting: a window")
	waits("still", "a window")
	e.runs("c-0", target)
	waits("while a machine is done", "a window")
	waits("for something else", "a backup", "Normal UpgradeWaiting waiting: a backup")
	waits("goes on", "", "Normal Upgrading no longer waiting: a backup")
	waits("still going on", "")
}

// measured returns how many runs of Talos have succeeded, by the metrics.
func measured(t *testing.T) uint64 {
	t.Helper()

	h, ok := metrics.RunDuration.WithLabelValues("Talos", "Succeeded").(prometheus.Metric)
	if !ok {
		t.Fatal("it is no metric")
	}

	m := &dto.Metric{}
	if err := h.Write(m); err != nil {
		t.Fatal(err)
	}

	return m.GetHistogram().GetSampleCount()
}

// TestKubernetesRecord: the other kind, and the failure of a machine.
func TestKubernetesRecord(t *testing.T) {
	e := newEnv(t)

	e.plan(target)
	e.cp.Status.Upgrade.TalosVersion, e.cp.Status.Upgrade.KubernetesVersion = "", "v1.36.4"
	e.cp.Status.Upgrade.KubernetesBegun, e.cp.Status.Upgrade.PointOfNoReturn = "v1.36.4", v1alpha1.PointOfNoReturnPassed
	e.UpdateStatus(e.cp)
	e.pass()

	m := &v1alpha1.TalosMachine{}
	e.Get(m, "c-1")

	m.Status.Change = &v1alpha1.MachineChange{
		ID: "1", Kind: v1alpha1.ChangeKubernetes, Base: "a", Target: "b", Cause: v1alpha1.CauseSpec, Phase: v1alpha1.ChangeFailed,
		Since: metav1.NewTime(e.Clock.Now()), Image: "registry.k8s.io/kube-apiserver:v1.36.4", Message: "no such image",
	}
	e.UpdateStatus(m)
	e.pass()

	run := &v1alpha1.KubernetesUpgrade{}
	e.Get(run, "c-kubernetes-1")

	if st := run.Status; st.Phase != v1alpha1.UpgradeRunStopped || st.Failed != 1 || len(st.Machines) != 2 || st.Machines[1].Message != "no such image" ||
		st.PointOfNoReturn != v1alpha1.PointOfNoReturnPassed {
		t.Errorf("%+v", st)
	}

	e.plan("")
	e.pass()
	e.Get(run, "c-kubernetes-1")

	if told := e.Told(); run.Status.Phase != v1alpha1.UpgradeRunFailed || len(told) != 1 || !strings.Contains(told[0], "Warning UpgradeFailed Failed: ") {
		t.Errorf("%s: %v", run.Status.Phase, told)
	}
}

// TestTolerated: a failed worker stops a run once its group does, and not before. The groups of other clusters do not
// count.
func TestTolerated(t *testing.T) {
	e := newEnv(t)
	one := intstr.FromInt32(1)
	group := func(name, controlPlane string) *v1alpha1.TalosWorker {
		w := &v1alpha1.TalosWorker{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
			Spec: v1alpha1.TalosWorkerSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: controlPlane},
				Machines:        []v1alpha1.MachineEntry{{Name: name + "-0", Address: "10.0.0.9"}},
				GroupPolicy:     v1alpha1.GroupPolicy{Rollout: &v1alpha1.RolloutOptions{MaxFailed: &one}},
			},
		}
		e.Create(w)

		w.Status.Plan = &v1alpha1.PlanStatus{ID: "1", Phase: v1alpha1.PlanWaiting, CreatedAt: metav1.NewTime(e.Clock.Now())}
		e.UpdateStatus(w)

		return w
	}
	machine := func(of *v1alpha1.TalosWorker) {
		m := &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: e.Namespace, Name: of.Name + "-0", Labels: map[string]string{v1alpha1.ControlPlaneLabel: "c"},
			},
			Spec: v1alpha1.TalosMachineSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}, Role: v1alpha1.RoleWorker,
				WorkerRef: &v1alpha1.ObjectReference{Name: of.Name},
			},
		}
		e.Create(m)
		e.runs(m.Name, before)
		e.Get(m, m.Name)

		m.Status.Change = &v1alpha1.MachineChange{
			ID: "1", Kind: v1alpha1.ChangeTalos, Base: "a", Target: "b", Cause: v1alpha1.CauseSpec, Phase: v1alpha1.ChangeFailed,
			Since: metav1.NewTime(e.Clock.Now()), Message: "no", Fields: []v1alpha1.FieldChange{{Field: "Talos", New: target}},
		}
		e.UpdateStatus(m)
	}

	w := group("w", "c")
	machine(w)
	e.plan(target)
	e.pass()
	e.expect("tolerated", "c-talos-1 v1.12.4>v1.13.9 Running 0/3")

	w.Status.Plan.Phase = v1alpha1.PlanStopped
	e.UpdateStatus(w)
	e.pass()
	e.expect("stopped", "c-talos-1 v1.12.4>v1.13.9 Stopped 0/3")

	e.Delete(w)
	machine(group("other", "d"))
	e.pass()
	e.expect("another cluster's", "c-talos-1 v1.12.4>v1.13.9 Stopped 0/4")
}

// TestHeld: while a cluster is paused or in a dry run no record is written, and afterwards they catch up.
func TestHeld(t *testing.T) {
	e := newEnv(t)
	e.plan(target)

	for annotation, value := range map[string]string{
		v1alpha1.PausedAnnotation: "true", v1alpha1.ReconcileModeAnnotation: string(v1alpha1.ReconcileModeDryRun),
	} {
		harness.Change(e.Env, e.cp, func(cp *v1alpha1.TalosControlPlane) { cp.Annotations = map[string]string{annotation: value} })
		e.expect(annotation, "")
	}

	harness.Change(e.Env, e.cp, func(cp *v1alpha1.TalosControlPlane) { cp.Annotations = nil })
	e.pass()
	e.expect("resumed", "c-talos-1 v1.12.4>v1.13.9 Running 0/2")
}

// TestDeleted: a control plane on its way out gets no records.
func TestDeleted(t *testing.T) {
	e := newEnv(t)
	e.plan(target)
	harness.Change(e.Env, e.cp, func(cp *v1alpha1.TalosControlPlane) { cp.Finalizers = []string{v1alpha1.Finalizer} })
	e.Delete(e.cp)
	e.expect("deleted", "")
	harness.Change(e.Env, e.cp, func(cp *v1alpha1.TalosControlPlane) { cp.Finalizers = nil })
	e.expect("gone", "")
}

// TestCrash: the operator dies after each of its writes, and the records become the same.
func TestCrash(t *testing.T) {
	e := newEnv(t)
	crashes := 0

	settle := func() {
		for {
			e.restart()
			e.Client.DieAfter(1)

			_, err := e.tryPass()
			if err == nil {
				return
			}

			if !e.Client.Dead() {
				t.Fatal(err)
			}

			crashes++
		}
	}

	e.plan(target)
	settle()
	e.runs("c-0", target)
	settle()
	e.runs("c-1", target)
	e.plan("v1.13.10")
	settle()
	e.plan("")
	settle()
	e.restart()
	e.expect("in the end", "c-talos-1 v1.12.4>v1.13.9 Succeeded 2/2, c-talos-2 v1.13.9>v1.13.10 CalledOff 0/2")

	if crashes != 7 { // two creations with their first statuses, one machine, two ends
		t.Errorf("%d crashes", crashes)
	}
}

// TestOutdatedCache: a cache that lags behind ends no run, begins none a second time, and overwrites nothing.
func TestOutdatedCache(t *testing.T) {
	e := newEnv(t)
	none := e.remember(&v1alpha1.TalosUpgradeList{}, &v1alpha1.TalosMachineList{})

	e.plan(target)
	e.pass()

	// It does not show the run that has begun.
	e.r.Client = none
	e.expect("no records in the cache", "c-talos-1 v1.12.4>v1.13.9 Running 0/2")

	// Not even live: the name is taken.
	e.r.Reader = none

	if _, err := e.tryPass(); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created again: %v", err)
	}

	// It does not show that machines are done, and the control plane has nothing left to do.
	e.restart()
	e.runs("c-0", target)
	e.pass()

	half := e.remember(&v1alpha1.TalosUpgradeList{}, &v1alpha1.TalosMachineList{})

	e.Clock.Sleep(time.Minute)
	e.runs("c-1", target)
	e.plan("")
	e.r.Client = half
	e.pass()
	e.expect("the end", "c-talos-1 v1.12.4>v1.13.9 Succeeded 2/2")

	// It shows a run that is finished as open, and does so live, too.
	e.runs("c-1", before)
	e.r.Reader = half

	if res, err := e.tryPass(); err != nil || res.RequeueAfter == 0 || res.RequeueAfter >= time.Hour {
		t.Errorf("%v, %v", res, err)
	}

	e.restart()
	e.expect("it stays", "c-talos-1 v1.12.4>v1.13.9 Succeeded 2/2")
}

// TestKeptRecords: older ones are deleted, those of others are left alone.
func TestKeptRecords(t *testing.T) {
	e := newEnv(t)

	other := &v1alpha1.TalosUpgrade{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "other", Labels: map[string]string{v1alpha1.ControlPlaneLabel: "c"}},
		Spec:       v1alpha1.UpgradeRunSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}, From: before, To: target},
	}
	e.Create(other)

	for i := range 11 {
		e.plan(fmt.Sprintf("v1.13.%d", i+1))
		e.pass()
	}

	e.plan("")
	e.pass()

	list := strings.Split(e.records(), ", ")
	if len(list) != 11 || strings.Contains(e.records(), "c-talos-1 ") {
		t.Errorf("%q", list)
	}

	e.Get(other, "other")

	if c := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionComplete); c != nil {
		t.Errorf("%+v", c)
	}
}
