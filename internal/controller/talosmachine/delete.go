package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// Intervals of a deletion.
const (
	// pollReset is how often a node that is being wiped is queried. Its API changes during the wipe, so no stream lasts.
	pollReset = time.Second
	// recordTimeout limits the write of a record to the API server.
	recordTimeout = 10 * time.Second
	// repeatReset is the time after which a reset without an effect is requested again.
	repeatReset = time.Minute
)

// delete finishes a machine. Only a machine whose cluster or group is being deleted with the Reset policy is wiped:
// deleting a TalosMachine manually does not touch the node, and its owner creates the object again.
func (r *Reconciler) delete(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.decommissions() {
		return r.decommission(ctx, s)
	}

	if s.renamed() {
		r.event(s, v1alpha1.ReasonScalingDown, "Release", "%s goes on under another name", s.address)

		return ctrl.Result{}, r.forgetMachine(ctx, s)
	}

	if !r.mustReset(s) {
		return ctrl.Result{}, r.release(ctx, s)
	}

	probe, err := r.Nodes.Probe(ctx, s.address, &s.creds)
	s.probed, s.answer = true, probe.State

	switch probe.State {
	case talos.StateMaintenance:
		if err := r.checkWiped(ctx, s); err != nil {
			return ctrl.Result{}, err
		}

		r.event(s, v1alpha1.ReasonResetting, "Reset", "%s is wiped and back in maintenance mode", s.address)

		return ctrl.Result{}, r.forgetMachine(ctx, s)
	case talos.StateForeign:
		r.event(s, v1alpha1.ReasonForeignNode, "Release", "%s belongs to another cluster and is left alone", s.address)

		return ctrl.Result{}, r.forgetMachine(ctx, s)
	case talos.StateMember:
		return r.reset(ctx, s)
	case talos.StateUnreachable:
	}

	if i := s.machine.Status.Intent; i != nil && i.Step == v1alpha1.StepReset {
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonResetting,
			fmt.Sprintf("waiting for %s to come back in maintenance mode", s.machine.Name), pollReset)
	}

	return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonNodeUnreachable, fmt.Sprintf("machine %s at %s is "+
		"unreachable (%s); power it on, or annotate the TalosMachine with %s=true to leave it as it is", s.machine.Name,
		s.address,
		failure.Message(err), v1alpha1.SkipResetAnnotation), 10*time.Second)
}

func (r *Reconciler) mustReset(s *scope) bool {
	switch {
	case s.machine.Spec.DeletionPolicy != v1alpha1.DeletionReset,
		!s.parentDeleting(),
		s.abandons(),
		s.held == nil,
		s.address == "":
		return false
	}

	// A machine that was never configured by the operator has no data of the cluster.
	return s.everConfigured()
}

// reset wipes the node. The step is recorded first; repeating it on a node that is already resetting is harmless.
func (r *Reconciler) reset(ctx context.Context, s *scope) (ctrl.Result, error) {
	if err := r.readFacts(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.resetting(s); err != nil {
		return ctrl.Result{}, err
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	graceful, err := r.mayLeave(ctx, s, node)
	if err != nil {
		return ctrl.Result{}, err
	}

	if err := r.recordReset(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	err = node.ToItself(ctx, s.self(), func() error {
		if err := r.joined(talos.Acting(ctx), s); err != nil {
			return err
		}

		return node.Reset(ctx, talos.ResetOptions{Graceful: graceful, Reboot: true})
	})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("resetting %s: %w", s.machine.Name, err)
	}

	r.event(s, v1alpha1.ReasonResetting, "Reset", "Resetting %s (graceful: %t)", s.address, graceful)

	return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonResetting,
		fmt.Sprintf("waiting for %s to be wiped", s.machine.Name), pollReset)
}

// resetting fails while a reset that was requested on this boot of the machine may still be in progress.
func (r *Reconciler) resetting(s *scope) error {
	i := s.machine.Status.Intent
	if i == nil || i.Step != v1alpha1.StepReset || i.BootID != s.facts.BootID ||
		r.Clock.Since(i.Since.Time) >= repeatReset {
		return nil
	}

	return failure.Waiting(v1alpha1.ReasonResetting, "waiting for "+s.machine.Name+" to be wiped", pollReset)
}

// mayLeave reports whether a node can leave its cluster by itself before it is wiped.
func (r *Reconciler) mayLeave(ctx context.Context, s *scope, node *talos.Node) (bool, error) {
	switch {
	case s.returned():
		// An abandoned machine has no etcd member any more, and whatever runs on it is not part of the cluster.
		return false, nil
	case s.machine.Spec.Role != v1alpha1.RoleControlPlane:
		return true, nil
	case s.decommissions():
		// It is drained, and has left etcd: a stopped etcd would not answer.
		return false, nil
	}

	return canLeaveEtcd(ctx, node)
}

// canLeaveEtcd reports whether a control-plane node of a cluster that is being deleted can leave etcd gracefully: the
// last member cannot, nor can one whose etcd does not respond.
func canLeaveEtcd(ctx context.Context, node *talos.Node) (bool, error) {
	members, err := node.EtcdMembers(ctx)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return false, err
		}

		return false, nil
	}

	return len(members) > 1, nil
}

// recordReset records the reset that is about to be requested. If that fails, nothing is requested, and the status that
// is written at the end of the reconciliation must not say so: the next one would wait for the reset.
func (r *Reconciler) recordReset(ctx context.Context, s *scope) error {
	before := s.machine.Status.Intent
	s.machine.Status.Intent = &v1alpha1.MachineIntent{
		Step: v1alpha1.StepReset, BootID: s.facts.BootID, Since: stamp(r.Clock.Now()),
	}

	ctx, cancel := context.WithTimeout(talos.Acting(ctx), recordTimeout)
	defer cancel()

	if err := kube.PatchStatus(ctx, r.Client, s.machine, s.base); err != nil {
		s.machine.Status.Intent = before

		return fmt.Errorf("recording the reset of %s: %w", s.machine.Name, err)
	}

	s.base = s.machine.DeepCopy()

	return nil
}

// forgetMachine removes a machine that was wiped or abandoned from the state, so that it no longer counts as one that
// may have etcd data.
func (r *Reconciler) forgetMachine(ctx context.Context, s *scope) error {
	err := r.States.Record(ctx, s.controlPlaneKey(), func(state *clusterstate.State) {
		if s.givesUp() {
			state.Runtime.GiveUp(r.givenUp(s, state))
		}

		delete(state.Runtime.Machines, s.machine.Name)
	})
	if err != nil {
		return fmt.Errorf("recording the reset of %s: %w", s.machine.Name, err)
	}

	return r.release(ctx, s)
}

// release removes the finalizer of the object.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	r.Watcher.Remove(s.key().String())
	r.Nodes.Drop(s.key().String())

	// A worker may outlive its control plane and have its credentials issued again.
	if s.controlPlane == nil {
		if access := r.States.Forget(s.controlPlaneKey()); access != nil {
			r.Workloads.Forget(access.Fingerprint())
		}
	}

	s.released = true

	return frame.RemoveFinalizer(ctx, r.Client, s.machine, s.base, v1alpha1.Finalizer)
}
