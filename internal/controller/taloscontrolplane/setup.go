package taloscontrolplane

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// machineRefIndex is the name of the field index over the Machines that TalosControlPlanes refer to.
const machineRefIndex = "machineRef"

// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes/status,verbs=patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes/finalizers,verbs=update
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosmachines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdbackups,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdbackupschedules;talosetcdrestores,verbs=get;list;watch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosworkers,verbs=get;list;watch
// +kubebuilder:rbac:groups=vitistack.io,resources=kubernetesclusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;update
// Whether the namespace is being deleted: the PKI of a cluster that runs must not go with it unnoticed.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	ctx := context.Background() // indexes are set up before the manager has a context

	err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.TalosControlPlane{}, machineRefIndex, indexMachineRefs)
	if err != nil {
		return fmt.Errorf("indexing TalosControlPlanes by Machine: %w", err)
	}

	changed := builder.WithPredicates(predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))

	return ctrl.NewControllerManagedBy(mgr).
		Named("taloscontrolplane").
		For(&v1alpha1.TalosControlPlane{}, changed).
		Owns(&v1alpha1.TalosMachine{}).
		Watches(&v1alpha1.TalosMachine{}, handler.EnqueueRequestsFromMapFunc(condition.WakeStalled(r.Client,
			func() client.ObjectList { return &v1alpha1.TalosControlPlaneList{} },
			func(cp *v1alpha1.TalosControlPlane) []metav1.Condition { return cp.Status.Conditions },
			v1alpha1.ReasonNameConflict)), builder.WithPredicates(condition.Let())).
		Watches(&v1alpha1.TalosMachine{}, handler.EnqueueRequestsFromMapFunc(byUpgradedWorker),
			builder.WithPredicates(predicate.Funcs{
				CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: upgraded,
			})).
		Watches(&v1alpha1.TalosWorker{}, handler.EnqueueRequestsFromMapFunc(byWorker), changed).
		Watches(&v1alpha1.TalosEtcdRestore{}, handler.EnqueueRequestsFromMapFunc(byRestore)).
		Watches(&v1alpha1.TalosEtcdBackup{}, handler.EnqueueRequestsFromMapFunc(byBackup),
			builder.WithPredicates(predicate.Funcs{
				CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: backupEnded,
			})).
		Watches(&vitistackv1alpha1.KubernetesCluster{}, pause.ControlPlanes(r.Client),
			builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&vitistackv1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.byMachine)).
		WatchesRawSource(source.Channel(r.APIs.Events(), &handler.EnqueueRequestForObject{})).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("taloscontrolplane", failure.EndQuietly(r))))
}

// byWorker triggers the control plane of a worker group, because its deletion waits for the workers.
func byWorker(_ context.Context, o client.Object) []reconcile.Request {
	w, ok := o.(*v1alpha1.TalosWorker)
	if !ok {
		return nil
	}

	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: w.Namespace, Name: w.Spec.ControlPlaneRef.Name,
	}}}
}

// byUpgradedWorker triggers the control plane of a worker: the path of an upgrade goes on, or ends, once the last
// worker has taken a step of it, and nothing else tells so before the resync.
func byUpgradedWorker(_ context.Context, o client.Object) []reconcile.Request {
	m, ok := o.(*v1alpha1.TalosMachine)
	if !ok || m.Spec.WorkerRef == nil {
		return nil
	}

	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: m.Namespace, Name: m.Spec.ControlPlaneRef.Name,
	}}}
}

// upgraded passes the end of an upgrade of a machine, versions that are observed after it, and whether it has its
// images before. What happens in between is of no use to the path, and a group may have hundreds of machines.
func upgraded(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.TalosMachine)
	after, ok2 := e.ObjectNew.(*v1alpha1.TalosMachine)

	if !ok || !ok2 {
		return false
	}

	if !equality.Semantic.DeepEqual(saidOfImages(before), saidOfImages(after)) {
		return true
	}

	if upgrades(after.Status.Change) {
		return false
	}

	return upgrades(before.Status.Change) || before.Status.TalosVersion != after.Status.TalosVersion ||
		before.Status.KubeletVersion != after.Status.KubeletVersion
}

// saidOfImages returns what a machine says about its images, without when and how often they could not be pulled: that
// changes with each retry.
func saidOfImages(m *v1alpha1.TalosMachine) v1alpha1.MachineImages {
	if m.Status.Images == nil {
		return v1alpha1.MachineImages{}
	}

	out := *m.Status.Images
	out.LastAttemptTime, out.Failures = nil, 0

	return out
}

func upgrades(c *v1alpha1.MachineChange) bool {
	return c != nil && (c.Kind == v1alpha1.ChangeTalos || c.Kind == v1alpha1.ChangeKubernetes)
}

// byBackup triggers the control plane of a backup: a disruption may wait for it, and nothing else tells of its end
// before the resync.
func byBackup(_ context.Context, o client.Object) []reconcile.Request {
	b, ok := o.(*v1alpha1.TalosEtcdBackup)
	if !ok {
		return nil
	}

	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: b.Namespace, Name: b.Spec.ControlPlaneRef.Name,
	}}}
}

// backupEnded passes the end of a backup, and whether it is good; its progress permits nothing.
func backupEnded(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.TalosEtcdBackup)
	after, ok2 := e.ObjectNew.(*v1alpha1.TalosEtcdBackup)

	return ok && ok2 && (scheduled.Finished(before) != scheduled.Finished(after) ||
		scheduled.Good(before) != scheduled.Good(after))
}

// byMachine triggers control planes without a PKI, because they wait for the first address.
func (r *Reconciler) byMachine(ctx context.Context, o client.Object) []reconcile.Request {
	list := &v1alpha1.TalosControlPlaneList{}

	err := r.Client.List(ctx, list, client.InNamespace(o.GetNamespace()),
		client.MatchingFields{machineRefIndex: o.GetName()}, kube.Shared)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing TalosControlPlanes failed; the resync will find them")

		return nil
	}

	var out []reconcile.Request

	for i := range list.Items {
		if cp := &list.Items[i]; cp.Status.SecretBundle == nil {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(cp)})
		}
	}

	return out
}

func indexMachineRefs(o client.Object) []string {
	cp, ok := o.(*v1alpha1.TalosControlPlane)
	if !ok {
		return nil
	}

	var out []string

	for _, m := range cp.Spec.Machines {
		if m.MachineRef != nil {
			out = append(out, m.MachineRef.Name)
		}
	}

	return out
}
