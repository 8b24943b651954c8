package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestPauseHoldsEverythingBelow: a paused KubernetesCluster sends nothing to any node, neither a config to one with a
// new disk nor a reset when it is deleted; without the annotation both go on.
func TestPauseHoldsEverythingBelow(t *testing.T) {
	w := newWorld(t)
	nodes := []string{w.address(1), w.address(2)}
	w.boot(1)
	worker := w.boot(2)

	w.apply(clusterManifest("held", nodes[0], nodes[:1], nodes[1:]))
	w.running("held")

	m := &v1alpha1.TalosMachine{}
	name := "held-workers-0"

	w.get(m, name)
	w.namesNode(name)

	w.pause("held", "true")
	w.eventually("the pause reaches the machine",
		w.condition(m, name, v1alpha1.ConditionPaused, metav1.ConditionTrue))

	configs := worker.Faults().Calls("ApplyConfiguration")

	if err := worker.WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := worker.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	// The status stays live: the operator has observed the wiped machine, and has left it alone.
	w.eventually("the wiped machine shows", w.condition(m, name, v1alpha1.ConditionConfigured,
		metav1.ConditionFalse, v1alpha1.ReasonMaintenance))

	if got := worker.Faults().Calls("ApplyConfiguration"); got != configs {
		t.Errorf("%d configs were sent to a paused machine", got-configs)
	}

	w.pause("held", "false")
	w.running("held")

	// So does what the node runs on.
	infra := &vitistackv1alpha1.Machine{}
	w.annotateObject(infra, m.Spec.MachineRef.Name, v1alpha1.PausedAnnotation, "true")
	w.eventually("the pause of its Machine reaches it",
		w.condition(m, name, v1alpha1.ConditionPaused, metav1.ConditionTrue))
	w.annotateObject(infra, m.Spec.MachineRef.Name, v1alpha1.PausedAnnotation, "false")
	w.eventually("the machine goes on", func(context.Context) error {
		if m := w.machine(name); meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionPaused) != nil {
			return errors.New("it is paused")
		}

		return nil
	})
	w.running("held")

	w.pause("held", "true")
	w.eventually("the pause reaches the machine again",
		w.condition(m, name, v1alpha1.ConditionPaused, metav1.ConditionTrue))

	boot := worker.Status().BootID

	cluster := &vitistackv1alpha1.KubernetesCluster{}
	for _, o := range []client.Object{cluster, &v1alpha1.TalosControlPlane{}, m} {
		key := map[bool]string{true: "held", false: name}[o != client.Object(m)]
		w.get(o, key)

		if err := w.client.Delete(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}

	w.eventually("the deletion shows", w.condition(m, name, v1alpha1.ConditionDeleting, metav1.ConditionTrue))

	if s := worker.Status(); s.BootID != boot || s.ClusterName != "held" {
		t.Errorf("the worker was touched while it was paused: %+v", s)
	}

	w.pause("held", "false")
	w.eventually("the deletion goes on", w.gone(cluster, "held"))
}

// namesNode: the Machine says which TalosMachine runs on it.
func (w *world) namesNode(name string) {
	w.t.Helper()

	w.eventually("the Machine names its TalosMachine", func(ctx context.Context) error {
		m := &vitistackv1alpha1.Machine{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, m); err != nil {
			return err
		}

		if m.Status.ConsumerRef == nil || m.Status.ConsumerRef.Name != name {
			return fmt.Errorf("it names %v", m.Status.ConsumerRef)
		}

		return nil
	})
}

// pause annotates a KubernetesCluster.
func (w *world) pause(name, value string) {
	w.t.Helper()
	w.annotate(name, v1alpha1.PausedAnnotation, value)
}

// annotate sets an annotation of a KubernetesCluster.
func (w *world) annotate(name, annotation, value string) {
	w.t.Helper()

	w.annotateObject(&vitistackv1alpha1.KubernetesCluster{}, name, annotation, value)
}

func (w *world) annotateObject(o client.Object, name, annotation, value string) {
	w.t.Helper()
	w.get(o, name)

	patch := []byte(`{"metadata":{"annotations":{"` + annotation + `":"` + value + `"}}}`)
	if err := w.client.Patch(context.Background(), o, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		w.t.Fatal(err)
	}
}
