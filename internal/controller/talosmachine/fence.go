package talosmachine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// givesUp reports whether the machine leaves the cluster without being wiped, so that it may return with its data. The
// node of another cluster at its address may be another machine.
func (s *scope) givesUp() bool {
	return s.decommissions() && s.everConfigured() && (s.stranger ||
		s.probed && (s.answer == talos.StateUnreachable || s.answer == talos.StateForeign))
}

// givenUp returns the record about the abandoned machine.
func (r *Reconciler) givenUp(s *scope, state *clusterstate.State) clusterstate.GivenUp {
	rt, st := state.Runtime.Machines[s.machine.Name], &s.machine.Status

	options := s.controlPlane.Spec.Remediation
	if s.worker != nil {
		options = s.worker.Spec.Remediation
	}

	return clusterstate.GivenUp{
		Name: s.machine.Name, Hostname: st.Hostname, NodeName: st.NodeName, Address: cmp.Or(rt.Address, st.Address),
		UUID: cmp.Or(rt.UUID, st.UUID), MemberID: cmp.Or(st.EtcdMemberID, st.LastEtcdMemberID),
		ControlPlane: s.machine.Spec.Role == v1alpha1.RoleControlPlane,
		Hold:         options != nil && options.OnReturn == v1alpha1.ReturnHold,
		At:           r.Clock.Now().UTC().Truncate(time.Second),
	}
}

// returned reports whether the responding node was abandoned earlier and has not been wiped since then.
func (s *scope) returned() bool {
	_, is := s.mark()

	return is
}

// mark returns the record about the responding node, if it was abandoned.
func (s *scope) mark() (clusterstate.GivenUp, bool) {
	if s.held == nil || s.facts == nil {
		return clusterstate.GivenUp{}, false
	}

	key, is := s.held.State.Runtime.Returned(s.facts.UUID)

	return s.held.State.Runtime.GivenUp[key], is
}

// fence wipes a machine that was abandoned, has returned, and is listed again: its etcd member was removed, so it would
// never work in its current state. It is configured anew afterwards.
func (r *Reconciler) fence(ctx context.Context, s *scope) (ctrl.Result, error) {
	g, is := s.mark()
	if !is || s.answer != talos.StateMember {
		return ctrl.Result{}, nil
	}

	if s.machine.Annotations[v1alpha1.AcceptMachineAnnotation] == s.facts.UUID {
		return ctrl.Result{}, r.takeBack(ctx, s)
	}

	f, err := r.fencing(ctx, s, g)
	if err != nil {
		return ctrl.Result{}, err
	}

	step, doubt := safety.Fence(f)
	if step == safety.FenceAskCluster {
		workload.ObserveNode(ctx, func(ctx context.Context) (*workload.Cluster, error) { return r.cluster(ctx, s) }, &f)

		step, doubt = safety.Fence(f)
	}

	back := s.machine.Name + " was abandoned and is back"

	switch step {
	case safety.FenceIgnore, safety.FenceHold, safety.FenceAskCluster:
	case safety.FenceAwaitRestore:
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonRestoring, back+"; it is wiped once the restore is complete",
			pollRestore)
	case safety.FenceAwaitMember:
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonMachineReturned, back+
			"; waiting for the control plane to confirm that it has no member in etcd, before it is wiped", pollEvidence)
	case safety.FenceAskPerson:
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonMachineReturned, fmt.Sprintf("%s, and %s: it is not "+
			"changed; to wipe it, annotate the TalosControlPlane with %s=%s; to keep it, annotate the TalosMachine with "+
			"%s=%s", back, f.Explain(doubt), v1alpha1.WipeMachinesAnnotation, g.Name, v1alpha1.AcceptMachineAnnotation,
			s.facts.UUID), pollEvidence)
	case safety.FenceAwaitWipe, safety.FenceWipe:
		// The reset records its own progress.
		return r.reset(ctx, s)
	}

	return ctrl.Result{}, nil
}

// fencing returns the evidence about an abandoned machine that is listed again.
func (r *Reconciler) fencing(ctx context.Context, s *scope, g clusterstate.GivenUp) (safety.Fencing, error) {
	f := safety.Fencing{
		Abandoned: safety.Identity{
			Name: g.Name, Hostname: g.Hostname, NodeName: g.NodeName, Address: g.Address, UUID: g.UUID,
		},
		Found: safety.Identity{
			Name: s.machine.Name, Hostname: s.facts.Hostname, NodeName: s.facts.NodeName, Address: s.address,
			UUID: s.facts.UUID,
		},
		Restoring: s.held.State.Runtime.Restore != nil, MemberGone: true, Approved: g.WipeApproved,
		Worked: s.machine.Status.WorkingHash != "",
	}

	if s.machine.Spec.Role == v1alpha1.RoleControlPlane {
		machines, err := r.controlPlaneMachines(ctx, s)
		if err != nil {
			return f, err
		}

		f.MemberGone = safety.Gone(r.evidence(s).Collect(ctx, machines), s.machine.Name)
	}

	return f, nil
}

// takeBack makes an abandoned machine part of the cluster again, at the request of a user.
func (r *Reconciler) takeBack(ctx context.Context, s *scope) error {
	err := r.States.Record(ctx, s.controlPlaneKey(), func(state *clusterstate.State) {
		if key, is := state.Runtime.Returned(s.facts.UUID); is {
			delete(state.Runtime.GivenUp, key)
		}
	})
	if err != nil {
		return fmt.Errorf("recording that %s is accepted back: %w", s.machine.Name, err)
	}

	r.event(s, v1alpha1.ReasonMachineReturned, "TakeBack", "%s was abandoned and is accepted back as it is",
		s.machine.Name)

	return nil
}
