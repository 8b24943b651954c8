package upgradehistory

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestPlanChanged: what a record tells of a control plane wakes the controller, and nothing else does.
func TestPlanChanged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.TalosControlPlaneStatus)
		wakes  bool
	}{
		"nothing":    {func(*v1alpha1.TalosControlPlaneStatus) {}, false},
		"nodes":      {func(st *v1alpha1.TalosControlPlaneStatus) { st.ObservedKubeVersion = "v1.36.2" }, false},
		"the order":  {func(st *v1alpha1.TalosControlPlaneStatus) { st.Plan.Machines = nil }, false},
		"the path":   {func(st *v1alpha1.TalosControlPlaneStatus) { st.Upgrade = nil }, true},
		"a message":  {func(st *v1alpha1.TalosControlPlaneStatus) { st.Plan.Message = "waits" }, true},
		"no plan":    {func(st *v1alpha1.TalosControlPlaneStatus) { st.Plan = nil }, true},
		"a phase":    {func(st *v1alpha1.TalosControlPlaneStatus) { st.Plan.Phase = v1alpha1.PlanStopped }, true},
		"a hook":     {func(st *v1alpha1.TalosControlPlaneStatus) { st.Conditions[0].Reason = v1alpha1.ReasonUpgradeHookFailed }, true},
		"a reason":   {func(st *v1alpha1.TalosControlPlaneStatus) { st.Conditions[0].Reason = v1alpha1.ReasonRollingOut }, false},
		"components": {func(st *v1alpha1.TalosControlPlaneStatus) { st.Upgrade.Message = "waits" }, true},
	} {
		was := &v1alpha1.TalosControlPlane{}
		was.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9"}
		was.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUpToDate, Message: "why"}}
		was.Status.Plan = &v1alpha1.PlanStatus{Phase: v1alpha1.PlanRollingOut, Machines: []v1alpha1.PlannedMachine{{Name: "a"}}}

		is := was.DeepCopy()
		c.change(&is.Status)

		if got := planChanged(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.wakes {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestStopChanged: whether the failed machines of a worker group stop a run wakes the controller.
func TestStopChanged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.TalosWorker)
		wakes  bool
	}{
		"nothing":        {func(*v1alpha1.TalosWorker) {}, false},
		"another wait":   {func(w *v1alpha1.TalosWorker) { w.Status.Plan.Message = "a window" }, true},
		"another effect": {func(w *v1alpha1.TalosWorker) { w.Status.Plan.Machines = make([]v1alpha1.PlannedMachine, 1) }, false},
		"it has stopped": {func(w *v1alpha1.TalosWorker) { w.Status.Plan.Phase = v1alpha1.PlanStopped }, true},
		"no plan":        {func(w *v1alpha1.TalosWorker) { w.Status.Plan = nil }, true},
		"a tolerance":    {func(w *v1alpha1.TalosWorker) { w.Generation++ }, true},
	} {
		was := &v1alpha1.TalosWorker{}
		was.Status.Plan = &v1alpha1.PlanStatus{Phase: v1alpha1.PlanWaiting, Message: "a soak"}

		is := was.DeepCopy()
		c.change(is)

		if got := stopChanged(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.wakes {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestProgressed: the same for machines.
func TestProgressed(t *testing.T) {
	ready := func(reason, message string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionReady, Reason: reason, Message: message,
			})
		}
	}

	for name, c := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		wakes  bool
	}{
		"nothing":      {func(*v1alpha1.TalosMachine) {}, false},
		"a boot":       {func(m *v1alpha1.TalosMachine) { m.Status.BootID = "b" }, false},
		"talos":        {func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = "v1.13.9" }, true},
		"kubelet":      {func(m *v1alpha1.TalosMachine) { m.Status.KubeletVersion = "v1.36.2" }, true},
		"components":   {func(m *v1alpha1.TalosMachine) { m.Status.ComponentVersions.Scheduler = "v1.36.2" }, true},
		"works":        {func(m *v1alpha1.TalosMachine) { m.Status.WorkingSystem = "a" }, true},
		"configured":   {func(m *v1alpha1.TalosMachine) { m.Status.Conditions = nil }, true},
		"deleted":      {func(m *v1alpha1.TalosMachine) { m.DeletionTimestamp = &metav1.Time{} }, false},
		"being gone":   {func(m *v1alpha1.TalosMachine) { m.DeletionTimestamp = &metav1.Time{Time: metav1.Unix(1, 0).Time} }, true},
		"another":      {func(m *v1alpha1.TalosMachine) { m.Status.Change.ID = "2" }, true},
		"a phase":      {func(m *v1alpha1.TalosMachine) { m.Status.Change.Phase = v1alpha1.ChangeFailed }, true},
		"a message":    {func(m *v1alpha1.TalosMachine) { m.Status.Change.Message = "why" }, true},
		"no change":    {func(m *v1alpha1.TalosMachine) { m.Status.Change = nil }, true},
		"staged":       {func(m *v1alpha1.TalosMachine) { m.Status.Change.Staged = true }, true},
		"not ready":    {ready(v1alpha1.ReasonNodeNotReady, "etcd"), false},
		"held":         {ready(v1alpha1.ReasonDrainHeld, "a pod"), true},
		"drains":       {ready(v1alpha1.ReasonDraining, "a pod"), true},
		"another time": {func(m *v1alpha1.TalosMachine) { m.Status.Change.Since = metav1.Unix(1, 0) }, false},
	} {
		was := &v1alpha1.TalosMachine{}
		was.Status.ComponentVersions = &v1alpha1.ComponentVersions{}
		was.Status.Change = &v1alpha1.MachineChange{ID: "1", Kind: v1alpha1.ChangeTalos}
		was.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigured, Status: metav1.ConditionTrue}}

		is := was.DeepCopy()
		c.change(is)

		if got := progressed(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.wakes {
			t.Errorf("%s: %v", name, got)
		}
	}
}
