package upgradehistory

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// +kubebuilder:rbac:groups=talos-operator.io,resources=talosupgrades;kubernetesupgrades,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosupgrades/status;kubernetesupgrades/status,verbs=patch
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes;talosmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosworkers,verbs=get;list;watch
// +kubebuilder:rbac:groups=talos-operator.io,resources=taloscontrolplanes/finalizers,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the controller. Statuses of control planes and machines change often, so only what a
// record tells wakes it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	gone := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	})

	return ctrl.NewControllerManagedBy(mgr).
		Named("upgradehistory").
		For(&v1alpha1.TalosControlPlane{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
			predicate.AnnotationChangedPredicate{}, predicate.Funcs{UpdateFunc: planChanged}))).
		Owns(&v1alpha1.TalosUpgrade{}, gone).
		Owns(&v1alpha1.KubernetesUpgrade{}, gone).
		Watches(&v1alpha1.TalosMachine{}, handler.EnqueueRequestsFromMapFunc(byMachine),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: progressed})).
		Watches(&v1alpha1.TalosWorker{}, handler.EnqueueRequestsFromMapFunc(byWorker),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: stopChanged})).
		Watches(&vitistackv1alpha1.KubernetesCluster{}, pause.ControlPlanes(r.Client),
			builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("upgradehistory", failure.EndQuietly(r))))
}

// planChanged passes the changes of a control plane that a record may tell.
func planChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.TalosControlPlane)
	after, ok2 := e.ObjectNew.(*v1alpha1.TalosControlPlane)

	return ok && ok2 && (!equality.Semantic.DeepEqual(before.Status.Upgrade, after.Status.Upgrade) ||
		waitsFor(before.Status.Plan) != waitsFor(after.Status.Plan) || hookFailed(before) != hookFailed(after))
}

// hookFailed is the failed hook that a record tells of; empty if there is none.
func hookFailed(cp *v1alpha1.TalosControlPlane) string {
	c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionUpToDate)
	if c == nil || c.Reason != v1alpha1.ReasonUpgradeHookFailed {
		return ""
	}

	return c.Message
}

// stopChanged passes the changes of a worker group after which its failed machines stop a run, or no longer do, or
// which change what it waits for.
func stopChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.TalosWorker)
	after, ok2 := e.ObjectNew.(*v1alpha1.TalosWorker)

	return ok && ok2 && (before.Generation != after.Generation || stops(before.Status.Plan) != stops(after.Status.Plan) ||
		(before.Status.Plan == nil) != (after.Status.Plan == nil))
}

func stops(p *v1alpha1.PlanStatus) string {
	if p == nil || p.Phase != v1alpha1.PlanStopped && p.Phase != v1alpha1.PlanWaiting &&
		p.Phase != v1alpha1.PlanAwaitingApproval {
		return ""
	}

	return string(p.Phase) + p.Message
}

func waitsFor(p *v1alpha1.PlanStatus) string {
	if p == nil {
		return ""
	}

	return string(p.Phase) + p.Message
}

// progressed passes the changes of a machine that a record may tell.
func progressed(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.TalosMachine)
	after, ok2 := e.ObjectNew.(*v1alpha1.TalosMachine)

	return ok && ok2 && (toldOf(before) != toldOf(after) ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero())
}

// told is what a record tells of a machine.
type told struct {
	configured                      bool
	talos, kubelet, working         string
	components                      v1alpha1.ComponentVersions
	kind, phase, image, id, message string
	// held is what holds its drain until a user intervenes.
	held   string
	staged bool
}

func toldOf(m *v1alpha1.TalosMachine) told {
	st := &m.Status
	out := told{
		configured: meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionConfigured),
		talos:      st.TalosVersion, kubelet: st.KubeletVersion, working: st.WorkingSystem,
	}

	if v := st.ComponentVersions; v != nil {
		out.components = *v
	}

	if c := st.Change; c != nil {
		out.kind, out.phase, out.image, out.id = string(c.Kind), string(c.Phase), c.Image, c.ID
		out.message, out.staged = c.Message, c.Staged
	}

	// Draining ends a hold. Other reasons say nothing about it.
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); c != nil {
		switch c.Reason {
		case v1alpha1.ReasonDrainHeld:
			out.held = c.Message
		case v1alpha1.ReasonDraining:
			out.held = c.Reason
		}
	}

	return out
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

// byMachine triggers the control plane of a machine.
func byMachine(_ context.Context, o client.Object) []reconcile.Request {
	m, ok := o.(*v1alpha1.TalosMachine)
	if !ok {
		return nil
	}

	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: m.Namespace, Name: m.Spec.ControlPlaneRef.Name,
	}}}
}
