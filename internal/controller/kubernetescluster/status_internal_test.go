package kubernetescluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestNotListed: a reconciliation that has not observed the objects below claims nothing of them.
func TestNotListed(t *testing.T) {
	c := &vitistackv1alpha1.KubernetesCluster{Status: vitistackv1alpha1.KubernetesClusterStatus{ControlPlaneReady: true}}
	ready := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}

	for listed, want := range map[bool]metav1.ConditionStatus{false: metav1.ConditionUnknown, true: metav1.ConditionTrue} {
		s := &scope{cluster: c.DeepCopy(), listed: listed}
		s.topology = newTopology(s.cluster)
		s.cp = &v1alpha1.TalosControlPlane{Status: v1alpha1.TalosControlPlaneStatus{Conditions: ready}}

		computeStatus(s, nil)

		if got := meta.FindStatusCondition(s.cluster.Status.Conditions, vitistackv1alpha1.ConditionReady); got.Status != want {
			t.Errorf("listed: %t, Ready: %+v", listed, got)
		}
	}
}
