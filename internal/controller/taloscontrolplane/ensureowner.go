package taloscontrolplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// ensureOwner claims the cluster in its state before anything else is done with it. A state with another owner is a
// copy whose original may be in use on another management plane, or belongs to an object that was deleted without
// cleanup: as long as machines run, or may run, a user has to decide.
func (r *Reconciler) ensureOwner(ctx context.Context, s *scope) (ctrl.Result, error) {
	rt := &s.held.State.Runtime
	other := rt.OwnedElsewhere(string(s.cp.UID))
	confirmed := other != "" && s.cp.Annotations[v1alpha1.TakeOverAnnotation] == other

	if other != "" && !confirmed {
		if err := r.checkClaim(ctx, s, other); err != nil {
			return ctrl.Result{}, err
		}
	}

	rt.Claim(string(s.cp.UID))
	rt.Settle(r.now())

	// Nothing is written if nothing changed.
	if err := r.States.Update(ctx, s.held); err != nil {
		return ctrl.Result{}, fmt.Errorf("recording the owner of %s: %w", s.cp.Name, err)
	}

	if confirmed {
		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeNormal, v1alpha1.ReasonTakenOver, "TakeOver",
			"Took the cluster over from the TalosControlPlane with the UID %s", other)
	}

	return ctrl.Result{}, kube.TakeAnnotation(ctx, r.Client, s.cp, s.base, v1alpha1.TakeOverAnnotation)
}

// checkClaim refuses a claim that a user has not confirmed while a machine of the other owner runs. If the cluster
// itself named that owner, it is queried again, because the record may have changed.
func (r *Reconciler) checkClaim(ctx context.Context, s *scope, other string) error {
	running, err := r.runningMachine(ctx, s)
	if err != nil || running == "" {
		return err
	}

	rt := &s.held.State.Runtime
	if rt.OwnerUID != string(s.cp.UID) {
		return ownedElsewhere(fmt.Sprintf("Secret %s names another TalosControlPlane as the owner of the cluster, and %s",
			clusterstate.SecretName(s.cp.Name), running), other)
	}

	if s.machines, err = machineset.List(ctx, r.Client, s.cp); err != nil {
		return err
	}

	is, err := r.askOwner(ctx, s)
	if err != nil {
		return err
	}

	if is != ownerConfirmed {
		return ownedElsewhere(recordedRival, rt.RivalUID)
	}

	rt.RivalUID = ""

	return nil
}

// runningMachine describes one machine that runs under the PKI of the cluster, or may do so; empty if there is none.
// Machines that were ever configured have to respond; for the others, it is enough that they do not run.
func (r *Reconciler) runningMachine(ctx context.Context, s *scope) (string, error) {
	rt := &s.held.State.Runtime

	for _, name := range rt.Configured() {
		probe, _ := r.Nodes.Probe(ctx, rt.Machines[name].Address, &s.creds)

		switch probe.State {
		case talos.StateMember:
			return name + " runs", ctx.Err()
		case talos.StateUnreachable:
			return name + " is unreachable", ctx.Err()
		case talos.StateMaintenance, talos.StateForeign:
		}
	}

	for _, entry := range s.cp.Spec.Machines {
		address, err := r.entryAddress(ctx, s, entry)
		if err != nil {
			return "", err
		}

		if address == "" {
			continue
		}

		if probe, _ := r.Nodes.Probe(ctx, address, &s.creds); probe.State == talos.StateMember {
			return entry.Name + " runs", nil
		}
	}

	return "", ctx.Err()
}
