package talosworker

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestRefusalBelow: the rejection of a machine is reported on its group, unless the machine is being deleted.
func TestRefusalBelow(t *testing.T) {
	refuses := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "w-0"}}
	refuses.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigRefused, Message: "no such field",
	}}

	s := &scope{
		worker: &v1alpha1.TalosWorker{}, controlPlane: &v1alpha1.TalosControlPlane{}, listed: true,
		machines: []v1alpha1.TalosMachine{refuses},
	}
	s.worker.Spec.Machines = []v1alpha1.MachineEntry{{Name: "w-0"}}

	computeStatus(s, nil)

	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionStalled} {
		c := meta.FindStatusCondition(s.worker.Status.Conditions, kind)
		if c == nil || c.Reason != v1alpha1.ReasonConfigRefused || c.Message != "w-0: no such field" {
			t.Errorf("%s is %+v", kind, c)
		}
	}

	s.machines[0].DeletionTimestamp = &metav1.Time{}
	s.machines[0].DeletionTimestamp.Time = s.machines[0].DeletionTimestamp.AddDate(2026, 0, 0)

	computeStatus(s, nil)

	if c := meta.FindStatusCondition(s.worker.Status.Conditions, v1alpha1.ConditionStalled); c != nil {
		t.Errorf("it is stalled by a machine that goes: %+v", c)
	}
}
