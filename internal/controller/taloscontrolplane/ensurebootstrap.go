package taloscontrolplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// ensureBootstrap bootstraps etcd on exactly one node, exactly once.
func (r *Reconciler) ensureBootstrap(ctx context.Context, s *scope) (ctrl.Result, error) {
	if err := r.forgetNamed(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	d, err := r.decideBootstrap(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.bootstrap = &d

	switch d.Action {
	case safety.BootstrapDone:
		if err := r.recordEstablished(ctx, s); err != nil {
			return ctrl.Result{}, err
		}

		return ctrl.Result{}, kube.TakeAnnotation(ctx, r.Client, s.cp, s.base, v1alpha1.AllowBootstrapAnnotation)
	case safety.BootstrapRefuse:
		// The error is not terminal: the decision depends on the nodes, which may change without an event of the object.
		return ctrl.Result{}, r.meanwhile(ctx, s, failure.Waiting(d.Reason, d.Message, r.Resync))
	case safety.BootstrapWait:
		s.explainWait(&d)

		return ctrl.Result{}, r.meanwhile(ctx, s, failure.Waiting(d.Reason, d.Message, r.poll(s)))
	case safety.BootstrapNode:
	}

	// Between the bootstrap call and the first etcd data, a node looks as if it had not been called. Only after some time
	// is it certain that the call, or its effect, was lost.
	if r.askedLately(s, d.Machine) {
		return ctrl.Result{}, failure.Waiting(d.Reason, "waiting for etcd on "+d.Machine, r.poll(s))
	}

	if r.isHeld(ctx, s, d.Machine) {
		return ctrl.Result{}, failure.Waiting(v1alpha1.ReasonPaused,
			"etcd is not bootstrapped while "+d.Machine+" is paused", r.poll(s))
	}

	if wait := r.awaitImage(ctx, s, d.Machine); wait != nil {
		return ctrl.Result{}, r.meanwhile(ctx, s, wait)
	}

	if err := r.recordIntent(ctx, s, d.Machine); err != nil {
		return ctrl.Result{}, err
	}

	// The permission applied to this choice only, and not to the next loss of data.
	if err := kube.TakeAnnotation(ctx, r.Client, s.cp, s.base, v1alpha1.AllowBootstrapAnnotation); err != nil {
		return ctrl.Result{}, err
	}

	return ctrl.Result{}, r.callBootstrap(ctx, s, d)
}

// askedLately reports whether the bootstrap of a machine was recorded so recently that it is not repeated yet.
func (r *Reconciler) askedLately(s *scope, machine string) bool {
	rt := &s.held.State.Runtime
	b := rt.Bootstrap

	return b != nil && b.Machine == machine && !b.Earlier && rt.OwnerUID == string(s.cp.UID) &&
		r.Clock.Since(b.IntentAt) < repeatBootstrap
}

// explainWait adds what else is known about the reason why a bootstrap waits.
func (s *scope) explainWait(d *safety.BootstrapDecision) {
	pulls := s.stuckPulls()

	switch {
	case s.lostForGood(d):
		// The message says what a new etcd waits for; EtcdHealthy and Available report that the old one is lost.
	case s.quorumLost():
		d.Reason, d.Message = v1alpha1.ReasonQuorumLost, s.quorum.Message
	case pulls == "":
	case d.Reason == v1alpha1.ReasonBootstrapping, d.Reason == v1alpha1.ReasonWaitingForMachines:
		d.Reason, d.Message = v1alpha1.ReasonEtcdImagePull, pulls
	default: // the bootstrap does not wait for the pull
		d.Message += "; " + pulls
	}
}

// recordIntent records which node is about to be bootstrapped, before it is. The write fails if the state was written
// since it was read, for example by another replica of the operator.
func (r *Reconciler) recordIntent(ctx context.Context, s *scope, machine string) error {
	rt := &s.held.State.Runtime
	rt.OwnerUID = string(s.cp.UID)
	rt.DecommissionedAt = nil
	rt.Bootstrap = &clusterstate.Bootstrap{
		Machine: machine, Address: rt.Machines[machine].Address, IntentAt: r.now(),
	}

	if err := r.States.Update(ctx, s.held); err != nil {
		return fmt.Errorf("recording the bootstrap of %s: %w", machine, err)
	}

	restoreStatus(s)

	return nil
}

// waiting returns the machine, and its boot, that the evidence for its bootstrap refers to.
func (s *scope) waiting(machine string) talos.Self {
	self := talos.Self{UUID: s.held.State.Runtime.UUID(machine)}

	for _, n := range s.nodes {
		if n.Name == machine {
			self.BootID = n.BootID
		}
	}

	return self
}

func (r *Reconciler) callBootstrap(ctx context.Context, s *scope, d safety.BootstrapDecision) error {
	for _, m := range s.machines {
		if m.Name != d.Machine {
			continue
		}

		node, err := r.Nodes.Node(ctx, r.source(s).Ref(&m))
		if err != nil {
			return err
		}

		err = node.ToItself(ctx, s.waiting(m.Name), func() error { return node.Bootstrap(ctx) })
		if err != nil && !errors.Is(err, talos.ErrAlreadyExists) {
			return err
		}

		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeNormal, v1alpha1.ReasonBootstrapping, "Bootstrap",
			"Asked %s to bootstrap etcd", m.Name)
	}

	return failure.Waiting(d.Reason, "waiting for etcd on "+d.Machine, pollBootstrap)
}

// recordEstablished records that etcd was observed running. From then on, an empty etcd is a loss and not a new
// cluster.
func (r *Reconciler) recordEstablished(ctx context.Context, s *scope) error {
	rt := &s.held.State.Runtime
	if rt.Bootstrap != nil && rt.Bootstrap.EstablishedAt != nil && !s.earlierLife() {
		return nil
	}

	if !s.etcd.Healthy {
		// A single first member proves that etcd started, but the cluster is not established: its node may still lose its
		// disk before another member joins.
		return nil
	}

	now := r.now()
	if rt.Bootstrap == nil {
		rt.Bootstrap = &clusterstate.Bootstrap{Machine: s.etcd.Voting[0], IntentAt: now}
	}

	rt.Bootstrap.EstablishedAt, rt.Bootstrap.Earlier = &now, false
	rt.OwnerUID = string(s.cp.UID)
	rt.DecommissionedAt = nil

	// Other observations are saved together with this and need no write of their own.
	s.held.State.ObservedKubeVersion = cmp.Or(s.held.State.ObservedKubeVersion, s.cp.Status.ObservedKubeVersion)

	for _, n := range s.nodes {
		if n.Name == rt.Bootstrap.Machine {
			rt.Bootstrap.MemberID = n.MemberID
		}
	}

	if err := r.States.Update(ctx, s.held); err != nil {
		return fmt.Errorf("recording that etcd is established: %w", err)
	}

	restoreStatus(s)

	return nil
}
