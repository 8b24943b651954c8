package taloscontrolplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// Intervals of a bring-up: node events trigger reconciliations too, but not every step of etcd causes one.
const (
	pollBootstrap = 150 * time.Millisecond
	pollEvidence  = 2 * time.Second
	// youth is how long nodes are expected to come up at any moment. Afterwards a bring-up polls less often, because each
	// poll queries every node.
	youth = 30 * time.Second
	// pollAPI is how often a control plane with an unreachable Kubernetes API is reconciled. The return of the API
	// triggers a reconciliation.
	pollAPI = 10 * time.Second
	// repeatBootstrap is the time after which a bootstrap without an effect is requested again.
	repeatBootstrap = 15 * time.Second
	// chooseAgain is the time after which another node may be chosen if a user allows that: by then, the first node has
	// data if it received the call.
	chooseAgain = time.Minute
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

// lostForGood reports whether no responding machine has data of the established etcd any more while evidence of others
// is missing. That evidence is needed before a user can be asked to restore a backup or to allow a new etcd.
func (s *scope) lostForGood(d *safety.BootstrapDecision) bool {
	return s.quorumLost() && s.quorum.Total && d.Reason == v1alpha1.ReasonWaitingForEvidence
}

// isHeld reports whether the node of a machine is paused. A machine without an object is not.
func (r *Reconciler) isHeld(ctx context.Context, s *scope, name string) bool {
	m := s.machine(name)

	return m != nil && pause.Holds(ctx, r.Client, m)
}

// poll returns a short interval while a control plane is young, because its nodes are coming up. The older it is, the
// more likely it needs a repair by a user first.
func (r *Reconciler) poll(s *scope) time.Duration {
	age := r.Clock.Since(s.cp.CreationTimestamp.Time)

	return min(max(age/(youth/pollBootstrap), pollBootstrap), pollEvidence)
}

func (r *Reconciler) bootstrapRecord(s *scope) safety.BootstrapRecord {
	rt := &s.held.State.Runtime
	rec := safety.BootstrapRecord{
		EarlierLife:  s.earlierLife() || rt.DecommissionedAt != nil,
		AllowNewEtcd: kube.AnnotationTrue(s.cp, v1alpha1.AllowBootstrapAnnotation),
	}

	if rt.Bootstrap != nil {
		rec.Machine, rec.Established = rt.Bootstrap.Machine, rt.Bootstrap.EstablishedAt != nil
		rec.Recent = rt.DecommissionedAt == nil && r.Clock.Since(rt.Bootstrap.IntentAt) < chooseAgain
	}

	return rec
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

// askAPI queries the API servers of the cluster.
func (r *Reconciler) askAPI(ctx context.Context, s *scope) (ctrl.Result, error) {
	version, err := r.Workloads.Version(ctx, s.held.State.Bundle, s.addresses())
	s.asked, s.version = true, version

	if err != nil {
		r.APIs.Await(s.key(), s.held.State.Bundle, s.addresses())

		after := pollAPI
		if !s.etcd.Healthy {
			after = r.pollEtcd(s)
		}

		return ctrl.Result{}, failure.Waiting(failure.Reason(err), failure.Message(err), after)
	}

	r.APIs.Forget(s.key())

	if !s.etcd.Healthy {
		return ctrl.Result{}, failure.Waiting(s.etcd.Reason, s.etcd.Message, r.pollEtcd(s))
	}

	return ctrl.Result{}, nil
}

// pollEtcd returns a short interval while members join.
func (r *Reconciler) pollEtcd(s *scope) time.Duration {
	if b := s.held.State.Runtime.Bootstrap; b == nil || b.EstablishedAt == nil {
		return r.poll(s)
	}

	return pollEvidence
}

// saveState writes the state that later reconciliations, or another management plane, start from. It writes nothing if
// nothing changed.
func (r *Reconciler) saveState(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.held.State.ObservedKubeVersion = s.version
	s.held.State.BundleConfig.TalosVersion = s.cp.Spec.TalosVersion
	s.held.State.BundleConfig.KubernetesVersion = s.cp.Spec.KubernetesVersion
	s.held.State.BundleConfig.CertSANs = s.cp.Spec.CertSANs

	if err := r.States.Update(ctx, s.held); err != nil {
		return ctrl.Result{}, err
	}

	return ctrl.Result{}, nil
}

func (r *Reconciler) now() time.Time { return r.Clock.Now().UTC().Truncate(time.Second) }
