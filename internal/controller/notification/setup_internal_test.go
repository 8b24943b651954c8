package notification

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestChanged: what is told of an object wakes the controller, and nothing else does.
func TestChanged(t *testing.T) {
	awaits := func(id string) *v1alpha1.PlanStatus {
		return &v1alpha1.PlanStatus{ID: id, Phase: v1alpha1.PlanAwaitingApproval}
	}
	cp := func(p *v1alpha1.PlanStatus) client.Object {
		return &v1alpha1.TalosControlPlane{Status: v1alpha1.TalosControlPlaneStatus{Plan: p}}
	}
	blocked := func(reason string) client.Object {
		return &v1alpha1.TalosControlPlane{Status: v1alpha1.TalosControlPlaneStatus{
			Upgrade: &v1alpha1.UpgradeStatus{Target: "v1.13.9", Reason: reason},
		}}
	}
	group := func(p *v1alpha1.PlanStatus) client.Object {
		return &v1alpha1.TalosWorker{Status: v1alpha1.TalosWorkerStatus{Plan: p}}
	}
	talos := func(phase v1alpha1.UpgradeRunPhase, done int32) client.Object {
		return &v1alpha1.TalosUpgrade{Status: v1alpha1.UpgradeRunStatus{Phase: phase, Done: done}}
	}
	kubernetes := func(phase v1alpha1.UpgradeRunPhase) client.Object {
		return &v1alpha1.KubernetesUpgrade{Status: v1alpha1.UpgradeRunStatus{Phase: phase}}
	}
	with := func(state v1alpha1.UpgradeMachineState, message string) client.Object {
		return &v1alpha1.TalosUpgrade{Status: v1alpha1.UpgradeRunStatus{
			Phase:    v1alpha1.UpgradeRunRunning,
			Machines: []v1alpha1.UpgradeRunMachine{{Name: "a", State: state, Message: message}},
		}}
	}
	failing := func() client.Object { return with(v1alpha1.UpgradeMachineFailed, "") }
	held := func(by string) client.Object { return with(v1alpha1.UpgradeMachineInProgress, by) }
	refused := func() client.Object {
		return &v1alpha1.KubernetesUpgrade{Status: v1alpha1.UpgradeRunStatus{Phase: v1alpha1.UpgradeRunWaiting, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReconciling, Reason: v1alpha1.ReasonManifestsRefused},
		}}}
	}

	for name, c := range map[string]struct {
		before, after client.Object
		wakes         bool
	}{
		"no plan":          {cp(nil), cp(&v1alpha1.PlanStatus{ID: "a", Phase: v1alpha1.PlanRollingOut}), false},
		"a plan":           {cp(nil), cp(awaits("a")), true},
		"another plan":     {group(awaits("a")), group(awaits("b")), true},
		"approved":         {group(awaits("a")), group(&v1alpha1.PlanStatus{ID: "a", Phase: v1alpha1.PlanRollingOut}), true},
		"the same plan":    {group(awaits("a")), group(awaits("a")), false},
		"a machine":        {talos(v1alpha1.UpgradeRunRunning, 1), talos(v1alpha1.UpgradeRunRunning, 2), false},
		"stopped":          {talos(v1alpha1.UpgradeRunRunning, 1), talos(v1alpha1.UpgradeRunStopped, 1), true},
		"a failed machine": {talos(v1alpha1.UpgradeRunRunning, 1), failing(), true},
		"still failed":     {failing(), failing(), false},
		"a held drain":     {held(""), held("a pod"), true},
		"still held":       {held("a pod"), held("another pod"), false},
		"a blocked start":  {blocked(""), blocked(v1alpha1.ReasonImagePull), true},
		"still blocked":    {blocked(v1alpha1.ReasonImagePull), blocked(v1alpha1.ReasonImagePull), false},
		"refused":          {kubernetes(v1alpha1.UpgradeRunWaiting), refused(), true},
		"still refused":    {refused(), refused(), false},
		"the other record": {kubernetes(""), kubernetes(v1alpha1.UpgradeRunRunning), true},
	} {
		if got := changed(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); got != c.wakes {
			t.Errorf("%s: %v", name, got)
		}
	}

	w := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w"}}
	w.Spec.ControlPlaneRef.Name = "c"

	if got := byWorker(t.Context(), w); len(got) != 1 || got[0].String() != "ns/c" {
		t.Errorf("%v", got)
	}
}
