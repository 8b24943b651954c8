package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// pollDelete is how often a deletion is reconciled; deleted child objects trigger it as well.
const pollDelete = 5 * time.Second

// delete deletes the control plane. With Preserve, the objects of the machines are deleted and the nodes keep running.
// With Reset, the workers are removed first, then one control-plane node after the other. The state Secret is kept in
// any case.
func (r *Reconciler) delete(ctx context.Context, s *scope) (ctrl.Result, error) {
	machines, err := machineset.List(ctx, r.Client, s.cp)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.machines = machines
	reset := s.cp.Spec.DeletionPolicy == v1alpha1.DeletionReset

	if reset {
		if err := r.checkOwner(ctx, s); err != nil {
			return ctrl.Result{}, err
		}

		if err := r.awaitWorkers(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}

	// Nothing is released before it is certain that the PKI is kept: until then, the policy can still be changed.
	if !reset {
		if err := r.keepState(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}

	if err := r.leaveOrphan(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if len(machines) > 0 {
		return ctrl.Result{}, r.deleteMachines(ctx, s, reset)
	}

	if reset {
		if err := r.decommission(ctx, s); err != nil {
			return ctrl.Result{}, err
		}

		// Machines that a user released without a reset continue to run.
		if err := r.keepState(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}

	return ctrl.Result{}, r.release(ctx, s)
}

// awaitWorkers keeps the control plane until the workers are gone: without it, they could not be drained and wiped.
func (r *Reconciler) awaitWorkers(ctx context.Context, s *scope) error {
	list := &v1alpha1.TalosWorkerList{}
	if err := r.Client.List(ctx, list, client.InNamespace(s.cp.Namespace)); err != nil {
		return fmt.Errorf("listing TalosWorkers of %s: %w", s.cp.Name, err)
	}

	var names []string

	for _, w := range list.Items {
		if w.Spec.ControlPlaneRef.Name == s.cp.Name {
			names = append(names, w.Name)
		}
	}

	if len(names) == 0 {
		return nil
	}

	slices.Sort(names)

	return failure.Waiting(v1alpha1.ReasonWaitingForWorkers, "waiting for the deletion of TalosWorker "+
		strings.Join(names, ", ")+": workers go before the control plane", pollDelete)
}

// deleteMachines deletes all machines at once or, with Reset, one after the other, starting with the last on the list.
func (r *Reconciler) deleteMachines(ctx context.Context, s *scope, oneByOne bool) error {
	machines := slices.Clone(s.machines)
	slices.Reverse(machines)

	for i := range machines {
		m := &machines[i]

		if err := machineset.Delete(ctx, r.Client, m, s.cp.Spec.DeletionPolicy); err != nil {
			return err
		}

		if oneByOne {
			return failure.Waiting(v1alpha1.ReasonResetting, "waiting for "+m.Name+machineset.DeletingMessage(m), pollDelete)
		}
	}

	return failure.Waiting(v1alpha1.ReasonDeleting, "waiting for the TalosMachines to go", pollDelete)
}

// decommission marks the state: its PKI may be used for a new bootstrap, because no node has data of the old etcd any
// more.
func (r *Reconciler) decommission(ctx context.Context, s *scope) error {
	held, err := r.States.Load(ctx, s.key())
	if err != nil {
		// The Secret is gone or unusable, so there is nothing to mark, and this step neither repairs nor removes it.
		return ignoreUnusable(err)
	}

	// Nodes that a user released without a reset keep their entry: they may still have data.
	if held.State.Runtime.DecommissionedAt != nil || len(held.State.Runtime.Machines) > 0 {
		return nil
	}

	now := r.now()
	held.State.Runtime.DecommissionedAt = &now
	held.State.Runtime.Bootstrap = nil

	return r.States.Update(ctx, held)
}

func ignoreUnusable(err error) error {
	if clusterstate.IsUnusable(err) {
		return nil
	}

	return err
}

func (r *Reconciler) release(ctx context.Context, s *scope) error {
	r.disown(ctx, s)

	if err := r.States.Release(ctx, s.key(), string(s.cp.UID)); err != nil {
		return err
	}

	s.released = true

	r.forget(s.key())
	metrics.ForgetControlPlane(s.cp.Namespace, s.cp.Name)

	return frame.RemoveFinalizer(ctx, r.Client, s.cp, s.base, v1alpha1.Finalizer)
}
