// Package pause determines whether an object is paused by the paused annotation or by its reconcile mode, on itself or
// on anything above it.
package pause

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

func clusterOf(o client.Object) (string, bool) {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "KubernetesCluster" ||
		owner.APIVersion != vitistackv1alpha1.GroupVersion.String() {
		return "", false
	}

	return owner.Name, true
}

// ControlPlanes triggers the TalosControlPlanes that a KubernetesCluster controls.
func ControlPlanes(c client.Reader) handler.EventHandler {
	return onChange(func(ctx context.Context, o client.Object) []reconcile.Request {
		list := &v1alpha1.TalosControlPlaneList{}
		if !listed(ctx, c, list, o, kube.Controlled{Owner: o.GetUID()}) {
			return nil
		}

		var out []reconcile.Request

		for i := range list.Items {
			out = appendControlled(out, &list.Items[i], o)
		}

		return out
	})
}

// Workers triggers the TalosWorkers that a KubernetesCluster controls.
func Workers(c client.Reader) handler.EventHandler {
	return onChange(func(ctx context.Context, o client.Object) []reconcile.Request {
		list := &v1alpha1.TalosWorkerList{}
		if !listed(ctx, c, list, o, kube.Controlled{Owner: o.GetUID()}) {
			return nil
		}

		var out []reconcile.Request

		for i := range list.Items {
			out = appendControlled(out, &list.Items[i], o)
		}

		return out
	})
}

// Machines triggers the TalosMachines below a KubernetesCluster.
func Machines(c client.Reader) handler.EventHandler {
	return onChange(func(ctx context.Context, o client.Object) []reconcile.Request {
		planes, machines := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosMachineList{}
		if !listed(ctx, c, planes, o, kube.Controlled{Owner: o.GetUID()}) || !listed(ctx, c, machines, o) {
			return nil
		}

		below := map[string]bool{}

		for i := range planes.Items {
			below[planes.Items[i].Name] = metav1.IsControlledBy(&planes.Items[i], o)
		}

		var out []reconcile.Request

		for i := range machines.Items {
			if m := &machines.Items[i]; below[m.Spec.ControlPlaneRef.Name] {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
			}
		}

		return out
	})
}

// onChange handles changed KubernetesClusters only. When the operator starts, all objects below them are reconciled
// anyway, and finding them for each of hundreds of clusters would take longer than the rest of the start.
func onChange(below handler.MapFunc) handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(
		ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
	) {
		for _, req := range below(ctx, e.ObjectNew) {
			queue.Add(req)
		}
	}}
}

func listed(
	ctx context.Context, c client.Reader, into client.ObjectList, o client.Object, opts ...client.ListOption,
) bool {
	err := c.List(ctx, into, append(opts, client.InNamespace(o.GetNamespace()), kube.Shared)...)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing what a KubernetesCluster controls failed; the resync will find it")
	}

	return err == nil
}

func appendControlled(out []reconcile.Request, child, owner client.Object) []reconcile.Request {
	if !metav1.IsControlledBy(child, owner) {
		return out
	}

	return append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(child)})
}
