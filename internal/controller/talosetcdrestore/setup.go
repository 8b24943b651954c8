package talosetcdrestore

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdrestores,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdrestores/status,verbs=patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes;talosetcdbackups,verbs=get;list;watch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	changed := builder.WithPredicates(predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))

	return ctrl.NewControllerManagedBy(mgr).
		Named("talosetcdrestore").
		For(&v1alpha1.TalosEtcdRestore{}, changed).
		Watches(&v1alpha1.TalosControlPlane{}, handler.EnqueueRequestsFromMapFunc(r.byControlPlane), changed).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("talosetcdrestore", failure.EndQuietly(r))))
}

// byControlPlane triggers the restores of a control plane.
func (r *Reconciler) byControlPlane(ctx context.Context, o client.Object) []reconcile.Request {
	list := &v1alpha1.TalosEtcdRestoreList{}
	if err := r.Client.List(ctx, list, client.InNamespace(o.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing TalosEtcdRestores failed; they are reconciled at the next resync")

		return nil
	}

	var out []reconcile.Request

	for i := range list.Items {
		if restore := &list.Items[i]; restore.Spec.ControlPlaneRef.Name == o.GetName() && !newScope(restore).ended() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(restore)})
		}
	}

	return out
}
