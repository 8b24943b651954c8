package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// leaves waits until a machine of the cluster is being taken out.
func (w *world) leaves(cluster string) {
	w.t.Helper()
	w.eventually("a machine is being taken out", func(ctx context.Context) error {
		list := &v1alpha1.TalosMachineList{}

		err := w.client.List(ctx, list, client.InNamespace(w.ns), client.MatchingLabels{v1alpha1.ControlPlaneLabel: cluster})
		if err != nil {
			return err
		}

		for _, m := range list.Items {
			if !m.DeletionTimestamp.IsZero() {
				return nil
			}
		}

		return errors.New("none is")
	})
}

// TestLostWhileShrinking: a control plane shrinks from five machines to three, and all of them lose their disks while one
// is being taken out. Those that leave show their disks like those that stay, a person is asked as after every loss, and
// then the shrinking goes on.
func TestLostWhileShrinking(t *testing.T) {
	w := newWorld(t)
	w.modelledCluster("bare", []int{1, 2, 3, 4, 5}, nil)

	change(w, &v1alpha1.TalosControlPlane{}, "bare", func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Machines = w.entries("cp", 1, 2, 3)
	})
	w.leaves("bare")

	for i := 1; i <= 5; i++ {
		w.nodes[w.address(i)].Kill()
	}

	for i := 1; i <= 5; i++ {
		n := w.nodes[w.address(i)]
		if err := errors.Join(n.WipeDisk(), n.PowerOn(context.Background())); err != nil {
			t.Fatal(fmt.Errorf("machine %d: %w", i, err))
		}
	}

	w.eventually("the loss is told, and what to do", w.condition(&v1alpha1.TalosControlPlane{}, "bare",
		v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonEtcdLost))
	w.annotateObject(&v1alpha1.TalosControlPlane{}, "bare", v1alpha1.AllowBootstrapAnnotation, "true")
	w.runs("bare", 3, "cp-1", "cp-2", "cp-3")
}
