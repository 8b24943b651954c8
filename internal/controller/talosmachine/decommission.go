package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Intervals of a decommission.
const (
	pollDrain = 2 * time.Second
	pollLeave = time.Second
	retryHeld = 30 * time.Second
	// pollEvidence is how soon the control plane is queried again.
	pollEvidence = 2 * time.Second
)

// decommissions reports whether the machine was removed from its list, and the cluster continues without it.
func (s *scope) decommissions() bool {
	return s.machine.Spec.OnDelete == v1alpha1.OnDeleteDecommission && !s.parentDeleting() &&
		s.controlPlane != nil && s.held != nil
}

// renamed reports whether the node is listed under another name and continues to run.
func (s *scope) renamed() bool {
	return s.machine.Spec.OnDelete == v1alpha1.OnDeleteRelease && !s.parentDeleting() && s.held != nil
}

// abandons reports whether a user has said that the machine is left as it is.
func (s *scope) abandons() bool { return kube.AnnotationTrue(s.machine, v1alpha1.SkipResetAnnotation) }

// decommission removes a node from its cluster step by step: the node is drained, removed from etcd, wiped, and
// forgotten. Each step observes the current state and may be repeated; only the start of the current step is recorded.
func (r *Reconciler) decommission(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.address == "" || !s.everConfigured() {
		return ctrl.Result{}, r.depart(ctx, s)
	}

	probe, err := r.Nodes.Probe(ctx, s.address, &s.creds)
	s.probed, s.answer = true, probe.State

	switch probe.State {
	case talos.StateMember:
		return r.decommissionMember(ctx, s)
	case talos.StateMaintenance, talos.StateForeign:
		if lost, err := r.allLost(ctx, s); err != nil {
			return ctrl.Result{}, err
		} else if lost {
			return r.configure(ctx, s)
		}

		if probe.State == talos.StateMaintenance {
			if err := r.checkWiped(ctx, s); err != nil && !s.abandons() {
				return ctrl.Result{}, err
			} else if err != nil {
				s.stranger = true // nothing proves that it was wiped
			}
		}

		return ctrl.Result{}, r.depart(ctx, s)
	case talos.StateUnreachable:
	}

	if s.abandons() {
		return ctrl.Result{}, r.depart(ctx, s)
	}

	if i := s.machine.Status.Intent; i != nil && i.Step == v1alpha1.StepReset {
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonResetting,
			fmt.Sprintf("waiting for %s to come back in maintenance mode", s.machine.Name), pollReset)
	}

	return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonNodeUnreachable, fmt.Sprintf("machine %s at %s is "+
		"unreachable (%s); power it on, or annotate the TalosMachine with %s=true to abandon it", s.machine.Name, s.address,
		failure.Message(err), v1alpha1.SkipResetAnnotation), retryHeld)
}

func (r *Reconciler) decommissionMember(ctx context.Context, s *scope) (ctrl.Result, error) {
	if err := r.readFacts(ctx, s); err != nil {
		if s.stranger && s.abandons() {
			return ctrl.Result{}, r.depart(ctx, s)
		}

		return ctrl.Result{}, err
	}

	if err := r.resetting(s); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.drain(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	// Whether it has a member is asked in each reconciliation, also after the reset was recorded: where the call was not
	// made, a machine that had only just got its config may have joined since.
	if s.machine.Spec.Role == v1alpha1.RoleControlPlane {
		if err := r.leaveEtcd(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}

	return r.reset(ctx, s)
}

// leaveEtcd removes the node's member from etcd if the safety package permits it, and returns nil once every remaining
// node confirms that it is gone.
func (r *Reconciler) leaveEtcd(ctx context.Context, s *scope) error {
	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return err
	}

	nodes := r.evidence(s).Collect(ctx, machines)
	if memberless(nodes, s.machine.Name) {
		return nil
	}

	busy := ""
	if d := s.held.State.Runtime.Disruption; d != nil {
		busy = d.Machine
	}

	if busy != s.machine.Name {
		return failure.Waiting(v1alpha1.ReasonDisruptionInProgress,
			"waiting for the control plane to take "+s.machine.Name+" out", retryHeld)
	}

	verdict, err := r.permitNow(ctx, s, nodes, busy, safety.ActRemove)
	if err != nil {
		return err
	}

	if verdict.Action != safety.Proceed {
		return failure.Waiting(verdict.Reason, verdict.Message, pollDrain)
	}

	member := safety.MemberOf(nodes, s.machine.Name)

	err = r.intend(ctx, s, v1alpha1.MachineIntent{Step: v1alpha1.StepLeave, MemberID: safety.FormatMemberID(member)})
	if err != nil {
		return err
	}

	// A member that does not work cannot process a request to leave, no matter how often it is sent: the others have
	// quorum without it.
	if !safety.Whole(nodes, s.machine.Name) {
		return r.removeMember(ctx, s, machines, nodes)
	}

	return r.leave(ctx, s)
}

// memberless reports whether it is certain that a machine has no member of etcd.
func memberless(nodes []safety.Node, machine string) bool {
	return safety.MemberOf(nodes, machine) == 0 && safety.Gone(nodes, machine)
}

// joined fails if the machine is no longer certain to have no member of etcd. A machine that has its config joins by
// itself, at any moment: also between the evidence for its reset and the reset. Instead of the reset it is recorded
// then that the machine leaves etcd.
func (r *Reconciler) joined(ctx context.Context, s *scope) error {
	if s.machine.Spec.Role != v1alpha1.RoleControlPlane || !s.decommissions() && !s.returned() {
		return nil
	}

	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return err
	}

	source := r.evidence(s)

	nodes := source.Collect(ctx, machines)
	if memberless(nodes, s.machine.Name) && memberless(source.Refresh(ctx, machines, nodes), s.machine.Name) {
		return nil
	}

	// It has begun to leave, and is drained.
	s.machine.Status.Intent = nil
	if s.decommissions() {
		s.machine.Status.Intent = &v1alpha1.MachineIntent{Step: v1alpha1.StepLeave, Since: stamp(r.Clock.Now())}
	}

	return failure.Waiting(v1alpha1.ReasonLeavingEtcd,
		"waiting for evidence that "+s.machine.Name+" is not joining etcd, before it is wiped", pollLeave)
}

// leave makes the node remove its own member from etcd. It verifies the identity of the node: another member at the
// same address would leave in its place and delete its data.
func (r *Reconciler) leave(ctx context.Context, s *scope) error {
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	err = node.ToItself(ctx, s.self(), func() error {
		if err := node.ForfeitLeadership(ctx); err != nil {
			return fmt.Errorf("moving the leadership of etcd from %s: %w", s.machine.Name, err)
		}

		if err := node.LeaveEtcd(ctx); err != nil {
			return fmt.Errorf("taking %s out of etcd: %w", s.machine.Name, err)
		}

		return nil
	})
	if err != nil {
		return err
	}

	id := s.machine.Status.Intent.MemberID
	r.event(s, v1alpha1.ReasonLeavingEtcd, "Leave", "Took member %s out of etcd", id)

	return failure.Waiting(v1alpha1.ReasonLeavingEtcd, "waiting for every survivor to confirm that member "+id+" is gone",
		pollLeave)
}

// removeMember lets another node remove the machine's member from etcd.
func (r *Reconciler) removeMember(ctx context.Context, s *scope, machines []v1alpha1.TalosMachine, nodes []safety.Node,
) error {
	id := safety.MemberOf(nodes, s.machine.Name)
	if id == 0 {
		return failure.Waiting(v1alpha1.ReasonWaitingForEvidence, "the survivors do not agree on which member of etcd is "+
			"that of "+s.machine.Name, pollDrain)
	}

	survivor, err := r.survivor(ctx, s, machines, nodes)
	if err != nil {
		return err
	}

	if err := survivor.RemoveMember(ctx, id); err != nil {
		return fmt.Errorf("removing member %s of %s: %w", safety.FormatMemberID(id), s.machine.Name, err)
	}

	r.event(s, v1alpha1.ReasonLeavingEtcd, "Remove", "Removed the dead member %s from etcd", safety.FormatMemberID(id))

	return failure.Waiting(v1alpha1.ReasonLeavingEtcd, "waiting for every survivor to confirm that member "+
		safety.FormatMemberID(id)+" is gone", pollLeave)
}

func (r *Reconciler) evidence(s *scope) evidence.Source {
	return evidence.Source{Nodes: r.Nodes, Credentials: s.creds, State: s.held.State}
}

// depart ends a decommission after the machine was wiped, or abandoned by a user. It removes the Node object and the
// machine's entry in the state, so that the machine no longer counts as one that may have etcd data. The member of a
// dead machine must be removed before.
func (r *Reconciler) depart(ctx context.Context, s *scope) error {
	if s.machine.Spec.Role == v1alpha1.RoleControlPlane {
		if err := r.awaitMemberGone(ctx, s); err != nil {
			return err
		}
	}

	if s.nodeRef().Name != "" {
		cluster, err := r.cluster(ctx, s)
		if err != nil {
			return err
		}

		if err := cluster.DeleteNode(ctx, s.nodeRef()); err != nil {
			return err
		}
	}

	r.event(s, v1alpha1.ReasonScalingDown, "Depart", "%s is out of the cluster", s.machine.Name)

	return r.forgetMachine(ctx, s)
}

// awaitMemberGone lets the remaining nodes remove the member of a machine that was wiped or abandoned.
func (r *Reconciler) awaitMemberGone(ctx context.Context, s *scope) error {
	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return err
	}

	nodes := r.evidence(s).Collect(ctx, machines)

	id := safety.MemberOf(nodes, s.machine.Name)
	if memberless(nodes, s.machine.Name) {
		return nil
	}

	verdict := safety.Permit(nodes, s.machine.Name, safety.Disruption{
		Act: safety.ActReplace, Machine: s.machine.Name, Member: id,
		Gone: s.abandons(),
	})
	if verdict.Action != safety.Proceed {
		return failure.Waiting(verdict.Reason, verdict.Message, retryHeld)
	}

	return r.removeMember(ctx, s, machines, nodes)
}

// survivor returns a node whose etcd responds.
func (r *Reconciler) survivor(ctx context.Context, s *scope, machines []v1alpha1.TalosMachine, nodes []safety.Node,
) (*talos.Node, error) {
	for i := range nodes {
		if nodes[i].Serves() && nodes[i].Leader != 0 && nodes[i].Name != s.machine.Name &&
			!pause.Holds(ctx, r.Client, &machines[i]) {
			return r.Nodes.Node(ctx, r.evidence(s).Ref(&machines[i]))
		}
	}

	return nil, failure.Waiting(v1alpha1.ReasonWaitingForEvidence,
		"no control-plane node but "+s.machine.Name+" has a responding etcd member and is not paused", retryHeld)
}

// controlPlaneMachines returns all machines of the cluster's control plane, including this one.
func (r *Reconciler) controlPlaneMachines(ctx context.Context, s *scope) ([]v1alpha1.TalosMachine, error) {
	machines, err := machineset.ControlPlane(ctx, r.Client, s.controlPlaneKey())
	if err != nil {
		return nil, err
	}

	// The node may already be listed under another name; both objects describe the same node.
	return slices.DeleteFunc(machines, func(m v1alpha1.TalosMachine) bool {
		return m.Name != s.machine.Name && s.address != "" && evidence.Address(&m) == s.address
	}), nil
}

// cluster returns the Kubernetes API of the cluster, preferably at a control-plane node other than this one.
func (r *Reconciler) cluster(ctx context.Context, s *scope) (*workload.Cluster, error) {
	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return nil, err
	}

	var addresses, own []string

	for i := range machines {
		switch a := evidence.Address(&machines[i]); {
		case a == "":
		case machines[i].Name == s.machine.Name:
			own = append(own, a)
		default:
			addresses = append(addresses, a)
		}
	}

	return r.Workloads.Cluster(ctx, s.held.State.Bundle, append(addresses, own...))
}
