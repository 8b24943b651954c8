package kubernetescluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// +kubebuilder:rbac:groups=vitistack.io,resources=kubernetesclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=vitistack.io,resources=kubernetesclusters/status,verbs=patch
// +kubebuilder:rbac:groups=vitistack.io,resources=kubernetesclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=vitistack.io,resources=machines,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosworkers,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	// A required name that is in use by another owner is refused. Such an object does not belong to the cluster, so its
	// events are not events of an owned object.
	waiting := handler.EnqueueRequestsFromMapFunc(condition.WakeStalled(r.Client,
		func() client.ObjectList { return &vitistackv1alpha1.KubernetesClusterList{} },
		func(c *vitistackv1alpha1.KubernetesCluster) []metav1.Condition { return c.Status.Conditions },
		vitistackv1alpha1.ReasonOwnerReferenceError))
	let := builder.WithPredicates(condition.Let())

	return ctrl.NewControllerManagedBy(mgr).
		Named("kubernetescluster").
		For(&vitistackv1alpha1.KubernetesCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&vitistackv1alpha1.Machine{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&v1alpha1.TalosControlPlane{}).
		Owns(&v1alpha1.TalosWorker{}).
		Watches(&vitistackv1alpha1.Machine{}, waiting, let).
		Watches(&v1alpha1.TalosControlPlane{}, waiting, let).
		Watches(&v1alpha1.TalosWorker{}, waiting, let).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("kubernetescluster", failure.EndQuietly(r))))
}
