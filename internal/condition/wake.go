package condition

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// Let passes events of objects that release their names or their owners, because another object may have waited for
// that.
func Let() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := metav1.GetControllerOf(e.ObjectOld), metav1.GetControllerOf(e.ObjectNew)

			return (before == nil) != (after == nil) || before != nil && before.UID != after.UID
		},
	}
}

// WakeStalled triggers the objects of a kind that are stalled for a reason, in the namespace of the object that an
// event is about. The function of, which returns their conditions, determines the kind.
func WakeStalled[T any, P interface {
	*T
	client.Object
}](c client.Reader, list func() client.ObjectList, of func(P) []metav1.Condition, reason string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		found := list()

		if err := c.List(ctx, found, client.InNamespace(o.GetNamespace()), kube.Shared); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing what may have waited failed; the resync will find it", "for", o.GetName())

			return nil
		}

		var out []reconcile.Request

		_ = meta.EachListItem(found, func(item runtime.Object) error { // it returns none
			if waiting, ok := item.(P); ok && isStalled(of(waiting), reason) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(waiting)})
			}

			return nil
		})

		return out
	}
}

func isStalled(conditions []metav1.Condition, reason string) bool {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled)

	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == reason
}
