package talosworker

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// +kubebuilder:rbac:groups=talos-operator.io,resources=talosworkers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosworkers/status,verbs=patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosworkers/finalizers,verbs=update
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosmachines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes,verbs=get;list;watch
// +kubebuilder:rbac:groups=vitistack.io,resources=kubernetesclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	changed := builder.WithPredicates(predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))

	return ctrl.NewControllerManagedBy(mgr).
		Named("talosworker").
		For(&v1alpha1.TalosWorker{}, changed).
		Owns(&v1alpha1.TalosMachine{}).
		Watches(&v1alpha1.TalosMachine{}, handler.EnqueueRequestsFromMapFunc(condition.WakeStalled(r.Client,
			func() client.ObjectList { return &v1alpha1.TalosWorkerList{} },
			func(w *v1alpha1.TalosWorker) []metav1.Condition { return w.Status.Conditions },
			v1alpha1.ReasonNameConflict)), builder.WithPredicates(condition.Let())).
		Watches(&v1alpha1.TalosControlPlane{}, handler.EnqueueRequestsFromMapFunc(r.byControlPlane), changed).
		Watches(&vitistackv1alpha1.KubernetesCluster{}, pause.Workers(r.Client),
			builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("talosworker", failure.EndQuietly(r))))
}

func (r *Reconciler) byControlPlane(ctx context.Context, o client.Object) []reconcile.Request {
	list := &v1alpha1.TalosWorkerList{}
	if err := r.Client.List(ctx, list, client.InNamespace(o.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing TalosWorkers failed; the resync will find them")

		return nil
	}

	var out []reconcile.Request

	for _, w := range list.Items {
		if w.Spec.ControlPlaneRef.Name == o.GetName() {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.Namespace, Name: w.Name}})
		}
	}

	return out
}
