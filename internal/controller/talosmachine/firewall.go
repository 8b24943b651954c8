package talosmachine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// loadNeighbours lists the machines of the cluster for one that has a firewall: what it closes is compared with their
// addresses.
func (r *Reconciler) loadNeighbours(ctx context.Context, s *scope) error {
	if !s.sources().HasFirewall() {
		return nil
	}

	list := &v1alpha1.TalosMachineList{}

	err := r.Client.List(ctx, list, client.InNamespace(s.machine.Namespace),
		client.MatchingLabels{v1alpha1.ControlPlaneLabel: s.controlPlane.Name}, kube.Shared)
	if err != nil {
		return fmt.Errorf("listing the TalosMachines of %s: %w", s.controlPlane.Name, err)
	}

	s.neighbours = list.Items

	// The cache lists them in any order, which must not look like a change.
	slices.SortFunc(s.neighbours, func(a, b v1alpha1.TalosMachine) int { return strings.Compare(a.Name, b.Name) })

	return nil
}

// neighboursDigest identifies the machines and addresses that a firewall was compared with.
func (s *scope) neighboursDigest() [sha256.Size]byte {
	if len(s.neighbours) == 0 {
		return [sha256.Size]byte{}
	}

	return sha256.Sum256(fmt.Append(nil, desired.Neighbours(s.sources())))
}

// setFirewall reports to whom the live firewall closes ports. While the desired configuration is unknown, that is, too.
func setFirewall(s *scope, set condition.Set) {
	shut := s.answer == talos.StateMember && len(s.shutOut) > 0

	if s.answer == talos.StateMaintenance || s.compared && s.unsourced == nil {
		set.While(shut, v1alpha1.ConditionFirewallShutsOut, v1alpha1.ReasonNeighbourShutOut, cut(fmt.Sprintf(
			"the firewall that machine %s runs does not open %s; add the addresses to a rule of ingressFirewall for it",
			s.machine.Name, strings.Join(s.shutOut, "; ")), longestMessage))
	}
}

// byNeighbour triggers the machines with a firewall when a machine of their cluster comes, goes or moves.
func (r *Reconciler) byNeighbour(ctx context.Context, o client.Object) []reconcile.Request {
	log := ctrl.LoggerFrom(ctx)
	cluster := o.GetLabels()[v1alpha1.ControlPlaneLabel]
	opts := []client.ListOption{
		client.InNamespace(o.GetNamespace()), client.MatchingLabels{v1alpha1.ControlPlaneLabel: cluster}, kube.Shared,
	}

	groups := map[string]bool{}

	cp := &v1alpha1.TalosControlPlane{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: cluster}, cp); err != nil {
		log.V(1).Info("No firewall is compared with its neighbours", "error", err.Error())

		return nil
	}

	groups[""] = cp.Spec.IngressFirewall != nil

	workers := &v1alpha1.TalosWorkerList{}
	if err := r.Client.List(ctx, workers, client.InNamespace(o.GetNamespace()), kube.Shared); err != nil {
		log.Error(err, "Listing TalosWorkers failed; the resync will find them")

		return nil
	}

	for i := range workers.Items {
		groups[workers.Items[i].Name] = workers.Items[i].Spec.IngressFirewall != nil
	}

	machines := &v1alpha1.TalosMachineList{}
	if err := r.Client.List(ctx, machines, opts...); err != nil {
		log.Error(err, "Listing TalosMachines failed; the resync will find them")

		return nil
	}

	return controlPlaneFirst(slices.DeleteFunc(slices.Clone(machines.Items), func(m v1alpha1.TalosMachine) bool {
		group := ""
		if m.Spec.WorkerRef != nil {
			group = m.Spec.WorkerRef.Name
		}

		return m.Spec.IngressFirewall == nil && !groups[group]
	}))
}

// moved passes machines that come, go, or have other addresses than before. The first list after a start is left out:
// it triggers each machine by itself.
func moved() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return !e.IsInInitialList },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*v1alpha1.TalosMachine)
			after, also := e.ObjectNew.(*v1alpha1.TalosMachine)

			return ok && also && (before.Spec.Address != after.Spec.Address ||
				before.Status.Address != after.Status.Address ||
				!slices.Equal(before.Status.Addresses, after.Status.Addresses))
		},
	}
}
