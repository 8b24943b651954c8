package taloscontrolplane_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestVersionSeenOnce: a spec that is older than a previously observed version is compared to what runs now. A spec
// that is older than that is still rejected, and checked again.
func TestVersionSeenOnce(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(1)

	e.until(cp, "the API answers", func() bool { return cp.Status.ObservedKubeVersion == kubernetes })

	cp.Status.ObservedKubeVersion = "v1.36.9"
	e.UpdateStatus(cp)
	e.until(cp, "the version that runs is seen", func() bool {
		return cp.Status.ObservedKubeVersion == kubernetes &&
			meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionStalled) == nil
	})

	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) { cp.Spec.KubernetesVersion = "v1.36.1" })

	res, err := e.pass(cp)
	if !errors.Is(err, reconcile.TerminalError(nil)) || res.RequeueAfter != e.r.Resync {
		t.Errorf("a downgrade is looked at again after %s (%v)", res.RequeueAfter, err)
	}

	e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDowngradeRefused, kubernetes)
}

// TestRefusalBelow: the rejection of a machine is reported on its control plane while it lasts.
func TestRefusalBelow(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(1)

	e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
		for kind, status := range map[string]metav1.ConditionStatus{
			v1alpha1.ConditionReady: metav1.ConditionFalse, v1alpha1.ConditionStalled: metav1.ConditionTrue,
		} {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
				Type: kind, Status: status, Reason: v1alpha1.ReasonConfigRefused, Message: "no such field",
			})
		}
	})
	e.step(cp)

	for kind, status := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionReady: metav1.ConditionFalse, v1alpha1.ConditionStalled: metav1.ConditionTrue,
	} {
		e.Condition(cp, kind, status, v1alpha1.ReasonConfigRefused, "cp-0: no such field")
	}

	e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
		meta.RemoveStatusCondition(&m.Status.Conditions, v1alpha1.ConditionStalled)
	})
	e.until(cp, "it is ready", func() bool {
		return meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionReady) &&
			meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionStalled) == nil
	})
}
