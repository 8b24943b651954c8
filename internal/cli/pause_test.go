package cli_test

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// showPauses shows on objects whether the cluster is paused, as passes do that begin after each change of its top-level
// object. list is for objects of that kind.
func (e *fleet) showPauses(top client.Object, list client.ObjectList, objects ...client.Object) {
	e.t.Helper()

	events, err := e.client.Watch(e.t.Context(), list, client.InNamespace(e.ns))
	if err != nil {
		e.t.Fatal(err)
	}

	// The test reads its own objects meanwhile.
	top, _ = top.DeepCopyObject().(client.Object)
	done := make(chan struct{})

	for i, o := range objects {
		objects[i], _ = o.DeepCopyObject().(client.Object)
	}

	go func() {
		defer close(done)

		for range events.ResultChan() {
			for _, o := range objects {
				err := e.showPause(e.t.Context(), top, o)
				if client.IgnoreNotFound(err) != nil && e.t.Context().Err() == nil {
					e.t.Error(err)
				}
			}
		}
	}()

	e.t.Cleanup(func() {
		events.Stop()
		<-done
	})
}

// showPause shows the pause on one object.
func (e *fleet) showPause(ctx context.Context, top, o client.Object) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		top, _ := top.DeepCopyObject().(client.Object)
		if err := e.client.Get(ctx, client.ObjectKeyFromObject(top), top); err != nil {
			return err
		}

		o, _ := o.DeepCopyObject().(client.Object)
		if err := e.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}

		var conditions *[]metav1.Condition

		switch o := o.(type) {
		case *vitistackv1alpha1.KubernetesCluster:
			conditions = &o.Status.Conditions
		case *v1alpha1.TalosControlPlane:
			conditions = &o.Status.Conditions
		case *v1alpha1.TalosWorker:
			conditions = &o.Status.Conditions
		case *v1alpha1.TalosMachine:
			conditions = &o.Status.Conditions
		}

		set := condition.Set{Conditions: conditions, Generation: o.GetGeneration()}
		set.Transient(false, false, nil)
		pause.Of(top).Show(set)

		return e.client.Status().Update(ctx, o)
	})
}
