package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestBadStaticPodStops: a static pod that does not run on the first of three control-plane machines stops there. The
// others keep their configs, and a corrected pod gets to all of them.
func TestBadStaticPodStops(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.boot(i + 1)
	}

	w.apply(clusterManifest("pods", w.address(1), []string{w.address(1), w.address(2), w.address(3)}, []string{w.address(4)}))
	w.running("pods")
	w.rollout("pods", v1alpha1.RolloutOptions{HealthTimeout: &metav1.Duration{Duration: 8 * time.Second}})
	w.eventually("all is well", w.upToDate("pods"))

	setImage := func(image string) {
		change(w, &vitistackv1alpha1.KubernetesCluster{}, "pods", func(k *vitistackv1alpha1.KubernetesCluster) {
			k.Spec.ControlPlane.MachineTemplate.Spec.StaticPods = []runtime.RawExtension{{Raw: []byte(
				`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"own"},"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}`)}}
		})
	}

	setImage("own:1-missing")
	w.plan(w.planOfControlPlane("pods"), v1alpha1.PlanStopped, "has not been healthy")

	failed := 0

	for i := range 3 {
		m := w.machine(fmt.Sprintf("pods-cp-%d", i))

		c := m.Status.Change
		if c == nil {
			t.Fatalf("pods-cp-%d has no change", i)
		}

		bad := c.Phase == v1alpha1.ChangeFailed
		if bad {
			failed++

			if told := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionStaticPodsFailed); told == nil ||
				!strings.Contains(told.Message, "default/own: container c: ImagePullBackOff") {
				t.Errorf("pods-cp-%d says %+v", i, told)
			}
		}

		if err := w.holds("pods", w.address(i+1), "own:1-missing", bad)(context.Background()); err != nil {
			t.Errorf("pods-cp-%d is %s: %v", i, c.Phase, err)
		}
	}

	if failed != 1 {
		t.Errorf("%d machines have failed", failed)
	}

	setImage("own:1")
	w.eventually("the corrected pod is everywhere", w.upToDate("pods"))
}
