package notification

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// What was sent is recorded in annotations.
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosupgrades;kubernetesupgrades,verbs=list;watch;patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosworkers,verbs=list;watch
// The addresses of webhooks.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the controller. Records, plans and control planes change often, so only what is told, or
// what determines who is told, wakes it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	told := builder.WithPredicates(predicate.Funcs{
		UpdateFunc: changed, DeleteFunc: func(event.DeleteEvent) bool { return false },
	})

	return ctrl.NewControllerManagedBy(mgr).
		Named("notification").
		For(&v1alpha1.TalosControlPlane{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
			predicate.AnnotationChangedPredicate{}, predicate.Funcs{UpdateFunc: changed}))).
		Owns(&v1alpha1.TalosUpgrade{}, told).
		Owns(&v1alpha1.KubernetesUpgrade{}, told).
		Watches(&v1alpha1.TalosWorker{}, handler.EnqueueRequestsFromMapFunc(byWorker), told).
		Watches(&vitistackv1alpha1.KubernetesCluster{}, pause.ControlPlanes(r.Client),
			builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("notification", failure.EndQuietly(r))))
}

// changed passes the changes of an object that a notification may tell.
func changed(e event.UpdateEvent) bool { return toldOf(e.ObjectOld) != toldOf(e.ObjectNew) }

// toldOf is what notifications tell of an object: the phase of a record, the machines that have failed and those that
// are held, or that its manifests are refused, or the plan of a group that awaits approval, or what holds the upgrade
// of a control plane.
func toldOf(o client.Object) string {
	switch o := o.(type) {
	case *v1alpha1.TalosControlPlane:
		return fmt.Sprint(approvalOf(o.Status.Plan), " ", notification.BlockOf(o.Status.Upgrade))
	case *v1alpha1.TalosWorker:
		return approvalOf(o.Status.Plan)
	}

	_, status := partsOf(o)
	if notification.ManifestsRefused(status) {
		return v1alpha1.ReasonManifestsRefused
	}

	return fmt.Sprint(status.Phase, notification.Failing(status), notification.Held(status))
}

func approvalOf(p *v1alpha1.PlanStatus) string {
	if p == nil || p.Phase != v1alpha1.PlanAwaitingApproval {
		return ""
	}

	return p.ID
}

// byWorker triggers the control plane of a worker group.
func byWorker(_ context.Context, o client.Object) []reconcile.Request {
	w, ok := o.(*v1alpha1.TalosWorker)
	if !ok {
		return nil
	}

	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: w.Namespace, Name: w.Spec.ControlPlaneRef.Name,
	}}}
}
