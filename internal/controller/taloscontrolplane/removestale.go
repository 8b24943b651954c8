package taloscontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// removeStale removes one orphaned etcd member that was observed twice, a minute apart.
func (r *Reconciler) removeStale(ctx context.Context, s *scope) (ctrl.Result, error) {
	// Usually every member belongs to a machine, and no other machines need to be known.
	if found, _ := safety.Stale(s.nodes, nil, 0); len(found) == 0 {
		r.stale.forget(s.key())

		return ctrl.Result{}, nil
	}

	remembered, err := r.remembered(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	nodes := append(slices.Clone(s.nodes), remembered...)
	id, seen := r.stale.look(s.key(), nodes, r.Clock.Now())

	switch {
	case !seen:
		if names := safety.Suspects(nodes, remembered); len(names) > 0 {
			s.etcd.Message += "; of the machines that are no longer listed it may be that of " + strings.Join(names, ", ") +
				": " + safety.AdviseUnlisted("the object", names)
		}

		return ctrl.Result{}, nil
	case id == 0:
		return ctrl.Result{}, failure.Waiting(s.etcd.Reason, s.etcd.Message+"; orphaned members and Nodes are removed "+
			"when a second check a minute later confirms it", pollEvidence)
	}

	verdict := safety.Permit(nodes, "", safety.Disruption{Act: safety.ActReplace, Member: id})
	if verdict.Action != safety.Proceed {
		return ctrl.Result{}, failure.Waiting(verdict.Reason, verdict.Message, pollEvidence)
	}

	if at := r.runsAt(ctx, s, id); at != "" {
		s.etcd.Message += fmt.Sprintf("; the member %s is not removed: the machine at %s responds as a node of this "+
			"cluster: list it in spec.machines, or wipe it (talosctl reset)", safety.FormatMemberID(id), at)
		s.poll = earliest(s.poll, r.Clock.Now().Add(time.Minute)) // nothing reports that it is gone

		return ctrl.Result{}, nil
	}

	if owner, err := r.ownerPermits(ctx, s); err != nil || owner.Action != safety.Proceed {
		return ctrl.Result{}, cmp.Or(err, failure.Waiting(owner.Reason, owner.Message, pollEvidence))
	}

	return r.removeMember(ctx, s, id)
}

// runsAt returns the address at which a node of this cluster responds that may run an orphaned member: a machine that
// is only not listed, because it was listed by another object, or after the backup from which the management cluster
// was restored. It is empty if none responds.
func (r *Reconciler) runsAt(ctx context.Context, s *scope, id uint64) string {
	for i := range s.nodes {
		for _, m := range s.nodes[i].Members {
			if m.ID != id {
				continue
			}

			for _, address := range m.PeerAddresses {
				if probe, err := r.Nodes.Probe(ctx, address, &s.creds); err == nil && probe.State == talos.StateMember {
					return address
				}
			}
		}
	}

	return ""
}

// removeMember lets a node remove an orphaned member.
func (r *Reconciler) removeMember(ctx context.Context, s *scope, id uint64) (ctrl.Result, error) {
	for i := range s.nodes {
		if !s.nodes[i].Serves() || pause.Holds(ctx, r.Client, &s.machines[i]) {
			continue
		}

		node, err := r.Nodes.Node(ctx, r.source(s).Ref(&s.machines[i]))
		if err != nil {
			return ctrl.Result{}, err
		}

		if err := node.RemoveMember(ctx, id); err != nil {
			return ctrl.Result{}, fmt.Errorf("removing member %s: %w", safety.FormatMemberID(id), err)
		}

		member := &corev1.ObjectReference{Kind: "Member", Name: safety.FormatMemberID(id)}
		r.Recorder.Eventf(s.cp, member, corev1.EventTypeWarning, v1alpha1.ReasonEtcdUnhealthy, "RemoveMember",
			"Removed the orphaned member %s from etcd: it belongs to no machine", member.Name)

		break
	}

	return ctrl.Result{}, failure.Waiting(s.etcd.Reason, s.etcd.Message, pollBootstrap)
}

// look records the orphaned members and returns the one that may be removed, 0 if there is none, and whether any was
// observed.
func (s *sightings) look(key types.NamespacedName, nodes []safety.Node, now time.Time) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	next, id := safety.Stale(nodes, s.seen[key], now.Unix())
	if len(next) == 0 {
		delete(s.seen, key)

		return 0, false
	}

	if s.seen == nil {
		s.seen = map[types.NamespacedName]safety.Sightings{}
	}

	s.seen[key] = next

	return id, true
}
