package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// sightings records orphaned members between two reconciliations. A restart loses them, and they have to be observed
// twice again, which only causes a delay.
type sightings struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]safety.Sightings
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

func (s *sightings) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.seen, key)
}

// remembered returns machines that were configured once and are not listed now, perhaps because a move transferred only
// some of the objects. Their members still belong to them. Workers are omitted because they have no members.
func (r *Reconciler) remembered(ctx context.Context, s *scope) ([]safety.Node, error) {
	var (
		out  []safety.Node
		list v1alpha1.TalosMachineList
	)

	err := r.Client.List(ctx, &list, client.InNamespace(s.cp.Namespace), client.MatchingLabels{
		v1alpha1.ControlPlaneLabel: s.cp.Name, v1alpha1.RoleLabel: string(v1alpha1.RoleWorker),
	}, kube.Shared)
	if err != nil {
		return nil, fmt.Errorf("listing the workers of %s: %w", s.cp.Name, err)
	}

	for name, m := range s.held.State.Runtime.Machines {
		// For records from before roles were recorded, the role is known only while the object exists.
		worker := m.Role == string(v1alpha1.RoleWorker) ||
			slices.ContainsFunc(list.Items, func(w v1alpha1.TalosMachine) bool { return w.Name == name })

		if !worker && s.machine(name) == nil {
			out = append(out, safety.Node{Name: name, Address: m.Address, EverConfigured: true})
		}
	}

	return out, nil
}

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
