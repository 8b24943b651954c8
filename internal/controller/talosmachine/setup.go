package talosmachine

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
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// machineRefIndex is the name of the field index over the Machines that TalosMachines refer to.
const machineRefIndex = "machineRef"

// +kubebuilder:rbac:groups=talos-operator.io,resources=talosmachines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosmachines/status,verbs=patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosmachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=vitistack.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=vitistack.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=vitistack.io,resources=kubernetesclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes;talosworkers,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the controller. Changes of a TalosMachine's status do not trigger it: only its spec and
// annotations, the objects above it, its Machine, and the node itself do.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	if err := mgr.Add(r.Installs); err != nil {
		return fmt.Errorf("adding the runner of installers: %w", err)
	}

	ctx := context.Background() // indexes are set up before the manager has a context
	indexer := mgr.GetFieldIndexer()

	err := indexer.IndexField(ctx, &v1alpha1.TalosMachine{}, machineset.AddressIndex, machineset.IndexAddress)
	if err != nil {
		return fmt.Errorf("indexing TalosMachines by address: %w", err)
	}

	if err := indexer.IndexField(ctx, &v1alpha1.TalosMachine{}, machineRefIndex, indexMachineRef); err != nil {
		return fmt.Errorf("indexing TalosMachines by Machine: %w", err)
	}

	changed := builder.WithPredicates(predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))

	return ctrl.NewControllerManagedBy(mgr).
		Named("talosmachine").
		For(&v1alpha1.TalosMachine{}, changed).
		Watches(&v1alpha1.TalosControlPlane{}, handler.EnqueueRequestsFromMapFunc(r.byLabel(v1alpha1.ControlPlaneLabel)),
			builder.WithPredicates(predicate.Or[client.Object](
				predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, told(true)))).
		Watches(&v1alpha1.TalosControlPlane{}, handler.EnqueueRequestsFromMapFunc(r.byControlPlane),
			builder.WithPredicates(told(false))).
		Watches(&v1alpha1.TalosWorker{}, handler.EnqueueRequestsFromMapFunc(r.byLabel(v1alpha1.WorkerLabel)), changed).
		Watches(&vitistackv1alpha1.KubernetesCluster{}, pause.Machines(r.Client),
			builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&vitistackv1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.byMachine)).
		Watches(&v1alpha1.TalosMachine{}, handler.EnqueueRequestsFromMapFunc(r.byAddress), builder.WithPredicates(gone())).
		Watches(&v1alpha1.TalosMachine{}, handler.EnqueueRequestsFromMapFunc(r.byNeighbour),
			builder.WithPredicates(moved())).
		WatchesRawSource(source.Channel(r.Watcher.Events(), &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Channel(r.Installs.Ends(), &handler.EnqueueRequestForObject{})).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("talosmachine", failure.EndQuietly(r))))
}

// byAddress triggers the machines that wait for another one to release its address.
func (r *Reconciler) byAddress(ctx context.Context, o client.Object) []reconcile.Request {
	var out []reconcile.Request

	for _, address := range machineset.IndexAddress(o) {
		out = append(out, r.requests(ctx, client.MatchingFields{machineset.AddressIndex: address})...)
	}

	return out
}

// gone passes only deletions.
func gone() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func indexMachineRef(o client.Object) []string {
	if m, ok := o.(*v1alpha1.TalosMachine); ok && m.Spec.MachineRef != nil {
		return []string{m.Spec.MachineRef.Name}
	}

	return nil
}

// byLabel triggers the machines that have an object's name in a label.
func (r *Reconciler) byLabel(label string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.requests(ctx, client.InNamespace(o.GetNamespace()), client.MatchingLabels{label: o.GetName()})
	}
}

// byControlPlane triggers the control-plane machines of a cluster.
func (r *Reconciler) byControlPlane(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(o.GetNamespace()), client.MatchingLabels{
		v1alpha1.ControlPlaneLabel: o.GetName(), v1alpha1.RoleLabel: string(v1alpha1.RoleControlPlane),
	})
}

func (r *Reconciler) byMachine(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{machineRefIndex: o.GetName()})
}

func (r *Reconciler) requests(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	list := &v1alpha1.TalosMachineList{}
	if err := r.Client.List(ctx, list, append(opts, kube.Shared)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing TalosMachines failed; the resync will find them")

		return nil
	}

	return controlPlaneFirst(list.Items)
}

// controlPlaneFirst returns requests for machines in the order in which their cluster waits for them: each component of
// an upgrade of Kubernetes begins on the control plane, and a group may have hundreds of workers ahead in the queue.
func controlPlaneFirst(machines []v1alpha1.TalosMachine) []reconcile.Request {
	var first, last []reconcile.Request

	for i := range machines {
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines[i])}

		if machines[i].Spec.WorkerRef == nil {
			first = append(first, request)
		} else {
			last = append(last, request)
		}
	}

	return append(first, last...)
}

// told passes the updates of a control plane's status that concern its machines, or its workers alone: it gets its PKI,
// or an upgrade takes another step.
func told(workers bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.TalosControlPlane)
		after, also := e.ObjectNew.(*v1alpha1.TalosControlPlane)

		return ok && also && ((before.Status.SecretBundle == nil) != (after.Status.SecretBundle == nil) ||
			rollout.Step(before, workers) != rollout.Step(after, workers) ||
			rollout.ImagesFor(before, nil) != rollout.ImagesFor(after, nil))
	}}
}
