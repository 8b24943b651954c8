package talosmachine

import (
	"cmp"
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/plan"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// givesUp: the machine leaves the cluster and was not wiped, so it may come back to life with what it has.
func (s *scope) givesUp() bool {
	return s.decommissions() && s.everConfigured() && (s.stranger || s.probed && s.answer == talos.StateUnreachable)
}

// givenUp is what is remembered of it.
func (r *Reconciler) givenUp(s *scope, state *clusterstate.State) clusterstate.GivenUp {
	rt, st := state.Runtime.Machines[s.machine.Name], &s.machine.Status

	options := s.controlPlane.Spec.Remediation
	if s.worker != nil {
		options = s.worker.Spec.Remediation
	}

	return clusterstate.GivenUp{
		Name: s.machine.Name, Hostname: st.Hostname, Address: cmp.Or(rt.Address, st.Address),
		UUID: cmp.Or(rt.UUID, st.UUID), MemberID: cmp.Or(st.EtcdMemberID, st.LastEtcdMemberID),
		ControlPlane: s.machine.Spec.Role == v1alpha1.RoleControlPlane,
		Hold:         options != nil && options.OnReturn == v1alpha1.ReturnHold,
		At:           r.Clock.Now().UTC().Truncate(time.Second),
	}
}

// returned tells whether the node that answers was given up earlier, and has not been wiped since.
func (s *scope) returned() bool {
	if s.held == nil || s.facts == nil || s.facts.UUID == "" {
		return false
	}

	_, ok := s.held.State.Runtime.GivenUp[s.facts.UUID]

	return ok
}

// fence wipes a machine that was given up, has come back to life, and is listed again: its etcd member was removed, so
// that it would never work as it is. It begins anew afterwards.
func (r *Reconciler) fence(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.returned() || s.answer != talos.StateMember {
		return ctrl.Result{}, nil
	}

	if s.held.State.Runtime.Restore != nil {
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonRestoring, s.machine.Name+" was given up and is back; "+
			"it is wiped once the restore is complete", pollRestore)
	}

	if s.machine.Spec.Role == v1alpha1.RoleControlPlane {
		machines, err := r.controlPlaneMachines(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}

		if !plan.Gone(r.evidence(s).Collect(ctx, machines), s.machine.Name) {
			return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonMachineReturned, s.machine.Name+" was given up and is back; "+
				"waiting for the control plane to confirm that it has no member in etcd, before it is wiped", pollEvidence)
		}
	}

	return r.reset(ctx, s)
}
