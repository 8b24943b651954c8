package e2e

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestResetWaitsForAPerson: a node that cannot be reached blocks a reset with a condition that names it, a pause holds
// the deletion, and the annotation releases the node, which keeps its data.
func TestResetWaitsForAPerson(t *testing.T) {
	w := newWorld(t)
	machine := w.boot(1)
	worker := w.boot(2)

	w.apply(fmt.Sprintf(`
apiVersion: talos-operator.io/v1alpha1
kind: TalosControlPlane
metadata: {name: alone}
spec:
  talosVersion: v1.13.9
  kubernetesVersion: v1.36.2
  endpoint: https://%[1]s:6443
  deletionPolicy: Reset
  machines: [{name: alone-0, address: %[1]s}]
---
apiVersion: talos-operator.io/v1alpha1
kind: TalosWorker
metadata: {name: alone-workers}
spec:
  controlPlaneRef: {name: alone}
  deletionPolicy: Reset
  machines: [{name: alone-1, address: %[2]s}]
`, w.address(1), w.address(2)))

	cp, group := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}

	w.eventually("the control plane is ready", w.condition(cp, "alone", v1alpha1.ConditionReady, metav1.ConditionTrue))
	w.eventually("the worker is ready", w.condition(group, "alone-workers", v1alpha1.ConditionReady, metav1.ConditionTrue))

	// A TalosMachine that is deleted manually leaves the node alone and comes back.
	boot, m := machine.Status().BootID, &v1alpha1.TalosMachine{}
	w.get(m, "alone-0")

	uid := m.UID
	if err := w.client.Delete(context.Background(), m); err != nil {
		t.Fatal(err)
	}

	w.eventually("the machine's object is made again", func(ctx context.Context) error {
		if err := w.condition(m, "alone-0", v1alpha1.ConditionReady, metav1.ConditionTrue)(ctx); err != nil || m.UID != uid {
			return err
		}

		return fmt.Errorf("still the old object")
	})

	// Workers go first: the control plane waits for them.
	if err := w.client.Delete(context.Background(), cp); err != nil {
		t.Fatal(err)
	}

	w.eventually("the control plane waits for the workers", w.condition(cp, "alone",
		v1alpha1.ConditionDeleting, metav1.ConditionTrue, v1alpha1.ReasonWaitingForWorkers))

	if machine.Status().BootID != boot {
		t.Error("the node was touched before its workers were gone")
	}

	worker.Kill()

	if err := w.client.Delete(context.Background(), group); err != nil {
		t.Fatal(err)
	}

	w.eventually("the silent worker is named", w.condition(m, "alone-1",
		v1alpha1.ConditionDeleting, metav1.ConditionTrue, v1alpha1.ReasonNodeUnreachable))

	patch := []byte(`{"metadata":{"annotations":{"` + v1alpha1.SkipResetAnnotation + `":"true"}}}`)
	if err := w.client.Patch(context.Background(), m, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}

	w.eventually("the released worker lets the deletion go on", w.gone(cp, "alone"))

	if s := machine.Status(); s.Stage != "maintenance" {
		t.Errorf("the control-plane node was not wiped: %+v", s)
	}

	if err := worker.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	if s := worker.Status(); s.ClusterName != "alone" {
		t.Errorf("the released worker lost its data: %+v", s)
	}
}
