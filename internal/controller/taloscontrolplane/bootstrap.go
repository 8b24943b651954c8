package taloscontrolplane

import (
	"context"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
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

func (r *Reconciler) now() time.Time { return r.Clock.Now().UTC().Truncate(time.Second) }
