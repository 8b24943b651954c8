// Package machine is the built-in provider for existing machines: it assigns the address that the spec lists. It is an
// ordinary provider: everything it does goes through Machine.status.
package machine

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// Reconciler reconciles Machines of the static provider.
type Reconciler struct {
	Client client.Client
}

// Reconcile writes the status of one Machine.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := &vitistackv1alpha1.Machine{}
	if err := r.Client.Get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	if m.Spec.Provider.Name != vitistackv1alpha1.ProviderStatic || !m.DeletionTimestamp.IsZero() || kube.IsPaused(m) {
		return ctrl.Result{}, nil
	}

	base := m.DeepCopy()
	fill(m)

	if err := kube.PatchStatus(ctx, r.Client, m, base); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("serving Machine %s: %w", m.Name, err))
	}

	return ctrl.Result{}, nil
}

// fill sets the status of a Machine. It is pure.
func fill(m *vitistackv1alpha1.Machine) {
	ready := metav1.Condition{
		Type: vitistackv1alpha1.MachineConditionReady, Status: metav1.ConditionTrue,
		Reason:  vitistackv1alpha1.ReasonAddressListed,
		Message: "the address is the one that the spec lists", ObservedGeneration: m.Generation,
	}

	if len(m.Spec.Provider.Addresses) == 0 {
		m.Status.Phase = vitistackv1alpha1.MachinePending
		m.Status.Addresses = nil
		ready.Status, ready.Reason = metav1.ConditionFalse, vitistackv1alpha1.ReasonNoAddress
		ready.Message = "spec.provider.addresses lists no address; list the address of the machine"
	} else {
		m.Status.Phase = vitistackv1alpha1.MachineRunning
		m.Status.Addresses = []vitistackv1alpha1.MachineAddress{
			{Type: vitistackv1alpha1.AddressInternalIP, Address: m.Spec.Provider.Addresses[0]},
		}
	}

	m.Status.ObservedGeneration = m.Generation
	kube.SetCondition(&m.Status.Conditions, ready)
}

// +kubebuilder:rbac:groups=vitistack.io,resources=machines,verbs=list;watch
// +kubebuilder:rbac:groups=vitistack.io,resources=machines/status,verbs=patch

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("machine").
		For(&vitistackv1alpha1.Machine{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WithOptions(opts).
		Complete(failure.Revisit(metrics.Observe("machine", failure.EndQuietly(r))))
}
