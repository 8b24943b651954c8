package talosetcdbackup

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdbackups,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdbackups/status,verbs=patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	if err := mgr.Add(r.Runner); err != nil {
		return fmt.Errorf("adding the work of backups to the manager: %w", err)
	}

	return ctrl.NewControllerManagedBy(mgr).
		Named("talosetcdbackup").
		For(&v1alpha1.TalosEtcdBackup{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(source.Channel(r.Runner.Ends(), &handler.EnqueueRequestForObject{})).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("talosetcdbackup", failure.EndQuietly(r))))
}
