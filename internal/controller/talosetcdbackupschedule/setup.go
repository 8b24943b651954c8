package talosetcdbackupschedule

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdbackupschedules,verbs=get;list;watch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdbackupschedules/status,verbs=patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdbackups,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes;talosetcdrestores,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	if err := mgr.Add(r.Runner); err != nil {
		return fmt.Errorf("adding the work of backup schedules to the manager: %w", err)
	}

	changed := builder.WithPredicates(predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))

	return ctrl.NewControllerManagedBy(mgr).
		Named("talosetcdbackupschedule").
		For(&v1alpha1.TalosEtcdBackupSchedule{}, changed).
		Watches(&v1alpha1.TalosEtcdBackup{}, r.schedules(ofBackup), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: outcomeChanged,
		})).
		Watches(&v1alpha1.TalosControlPlane{}, r.schedules(ofControlPlane), changed).
		WatchesRawSource(source.Channel(r.Runner.Ends(), &handler.EnqueueRequestForObject{})).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("talosetcdbackupschedule", failure.EndQuietly(r))))
}

// outcomeChanged passes the changes of a backup that matter to a schedule; progress does not.
func outcomeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.TalosEtcdBackup)
	after, ok2 := e.ObjectNew.(*v1alpha1.TalosEtcdBackup)

	return ok && ok2 && (scheduled.Finished(before) != scheduled.Finished(after) ||
		scheduled.Good(before) != scheduled.Good(after) ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero())
}

func ofBackup(o client.Object, s *v1alpha1.TalosEtcdBackupSchedule) bool {
	b, ok := o.(*v1alpha1.TalosEtcdBackup)

	return ok && scheduled.IsOf(b, s)
}

func ofControlPlane(o client.Object, s *v1alpha1.TalosEtcdBackupSchedule) bool {
	return s.Spec.BackupTemplate.Spec.ControlPlaneRef.Name == o.GetName()
}

// schedules triggers the schedules in the namespace that an object concerns.
func (r *Reconciler) schedules(
	concerns func(client.Object, *v1alpha1.TalosEtcdBackupSchedule) bool,
) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		list := &v1alpha1.TalosEtcdBackupScheduleList{}
		if err := r.Client.List(ctx, list, client.InNamespace(o.GetNamespace()), kube.Shared); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing backup schedules failed; the resync will find it")

			return nil
		}

		var out []reconcile.Request

		for i := range list.Items {
			if concerns(o, &list.Items[i]) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}

		return out
	})
}
