package taloscontrolplane

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
)

func (r *Reconciler) source(s *scope) evidence.Source {
	return evidence.Source{Nodes: r.Nodes, Credentials: s.creds, State: s.held.State}
}

// noteDeparting marks the nodes of machines that were removed from the list. An unreachable one that a user has
// declared wiped or destroyed is no longer evidence.
func (s *scope) noteDeparting() {
	for i := range s.nodes {
		n := &s.nodes[i]
		n.Departing = slices.Contains(s.extra, n.Name) || deleting(&s.machines[i])

		if n.Departing && n.Answer == safety.AnswerUnknown && s.held.State.Runtime.Machines[n.Name].Forgotten {
			n.EverConfigured, n.LastMember = false, 0
		}
	}
}

// isDepartingSilently reports whether the machine was removed from the list and is unreachable.
func (s *scope) isDepartingSilently(name string) bool {
	return slices.ContainsFunc(s.nodes, func(n safety.Node) bool {
		return n.Name == name && n.Departing && n.Answer == safety.AnswerUnknown
	})
}

// established reports whether etcd of this cluster was observed running, and its nodes were not wiped since then. A
// record of an earlier object with the same name counts if nodes still have its data.
func (s *scope) established() bool {
	rt := &s.held.State.Runtime
	if rt.Bootstrap == nil || rt.Bootstrap.EstablishedAt == nil || rt.DecommissionedAt != nil {
		return false
	}

	return !s.earlierLife() ||
		slices.ContainsFunc(s.nodes, func(n safety.Node) bool { return n.EtcdData == safety.DataPresent })
}

// earlierLife reports whether the recorded bootstrap belongs to an earlier object with the same name.
func (s *scope) earlierLife() bool {
	rt := &s.held.State.Runtime

	return rt.OwnerUID != string(s.cp.UID) || rt.Bootstrap != nil && rt.Bootstrap.Earlier
}

// quorumLost reports whether an established etcd has lost its quorum.
func (s *scope) quorumLost() bool { return s.established() && s.quorum.State == safety.QuorumLost }

// observeAnyway makes the observations that a reconciliation which ended early did not reach: the state of the nodes
// does not depend on whether the spec is valid, or whether a write succeeded. It returns the result of the
// reconciliation.
func (r *Reconciler) observeAnyway(
	ctx context.Context, s *scope, res ctrl.Result, err error,
) (ctrl.Result, error) {
	// A reconciliation that ended with a conflict is repeated immediately.
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

	return r.keepRecordAnyway(ctx, s, res, err)
}

// keepRecordAnyway reads the owner of a cluster also where every reconciliation ends early, for example because the
// spec is refused: controllers of machines go on, and would never hear of another owner. Nothing is asked while the
// cluster is deleted or restored.
func (r *Reconciler) keepRecordAnyway(
	ctx context.Context, s *scope, res ctrl.Result, err error,
) (ctrl.Result, error) {
	if err == nil && res.IsZero() || !s.cp.DeletionTimestamp.IsZero() || failure.Reason(err) == v1alpha1.ReasonRestoring ||
		!s.established() || s.quorum.State != safety.QuorumHeld ||
		s.held.State.Runtime.OwnedElsewhere(string(s.cp.UID)) != "" {
		return res, err
	}

	if _, kerr := r.keepRecord(ctx, s); kerr != nil {
		return ctrl.Result{}, kerr
	}

	return res, err
}
