package taloscontrolplane

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/controller/evidence"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/safety"
)

func (r *Reconciler) source(s *scope) evidence.Source {
	return evidence.Source{Nodes: r.Nodes, Credentials: s.creds, State: s.held.State}
}

// observe asks every control-plane node.
func (r *Reconciler) observe(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.nodes = r.source(s).Collect(ctx, s.machines)
	s.observed = true
	s.noteDeparting()

	s.etcd, s.quorum = safety.AssessEtcd(s.nodes), safety.AssessQuorum(s.nodes)
	r.observePulls(ctx, s)

	return ctrl.Result{}, ctx.Err()
}

// noteDeparting marks the nodes of machines that left the list. A silent one of which a person has said that it is
// wiped or destroyed is no evidence any more.
func (s *scope) noteDeparting() {
	for i := range s.nodes {
		n := &s.nodes[i]
		n.Departing = slices.Contains(s.extra, n.Name) || deleting(&s.machines[i])

		if n.Departing && n.Answer == safety.AnswerUnknown && s.held.State.Runtime.Machines[n.Name].Forgotten {
			n.EverConfigured, n.LastMember = false, 0
		}
	}
}

// isDepartingSilently: the machine left the list, and does not answer.
func (s *scope) isDepartingSilently(name string) bool {
	return slices.ContainsFunc(s.nodes, func(n safety.Node) bool {
		return n.Name == name && n.Departing && n.Answer == safety.AnswerUnknown
	})
}

// established: etcd of this cluster has been seen at work, and its nodes were not wiped since. A record of an earlier
// object of the same name counts where nodes still have its data.
func (s *scope) established() bool {
	rt := &s.held.State.Runtime
	if rt.Bootstrap == nil || rt.Bootstrap.EstablishedAt == nil || rt.DecommissionedAt != nil {
		return false
	}

	return !s.earlierLife() ||
		slices.ContainsFunc(s.nodes, func(n safety.Node) bool { return n.EtcdData == safety.DataPresent })
}

// earlierLife: what is recorded of the bootstrap is that of an earlier object.
func (s *scope) earlierLife() bool {
	rt := &s.held.State.Runtime

	return rt.OwnerUID != string(s.cp.UID) || rt.Bootstrap != nil && rt.Bootstrap.Earlier
}

// quorumLost: an established etcd has lost its quorum.
func (s *scope) quorumLost() bool { return s.established() && s.quorum.State == safety.QuorumLost }

// observeAnyway observes what a pass has not got to that ended early: what the nodes say does not depend on whether the
// spec is valid, or on what could not be written. It returns what the pass ended with.
func (r *Reconciler) observeAnyway(
	ctx context.Context, s *scope, res ctrl.Result, err error,
) (ctrl.Result, error) {
	// Who lost a race looks again at once.
	if s.held == nil || s.released || ctx.Err() != nil || apierrors.IsConflict(err) {
		return res, err
	}

	if !s.observed {
		machines, lerr := machineset.List(ctx, r.Client, s.cp)
		if lerr != nil {
			return res, cmp.Or(err, lerr)
		}

		s.machines = machines

		if _, oerr := r.observe(ctx, s); oerr != nil {
			return res, cmp.Or(err, oerr)
		}
	}

	if s.bootstrap == nil {
		d, derr := r.decideBootstrap(ctx, s)
		if derr != nil {
			return res, cmp.Or(err, derr)
		}

		s.bootstrap = &d
	}

	if !s.asked && s.established() && (s.quorum.State == safety.QuorumHeld || s.quorum.State == safety.QuorumUnknown) {
		r.askVersion(ctx, s)
	}

	return res, err
}
