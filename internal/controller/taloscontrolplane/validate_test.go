package taloscontrolplane_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestVersionSeenOnce: a spec that is older than a version which was seen once is held against what runs now. What is
// older than that stays refused, and is looked at again.
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
	if err != nil || res.RequeueAfter != e.r.Resync {
		t.Errorf("a downgrade is looked at again after %s (%v)", res.RequeueAfter, err)
	}

	e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDowngradeRefused, kubernetes)
}
