package taloscontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

const (
	// pollGivenUp is how often abandoned machines are searched for: no event reports the return of one.
	pollGivenUp = 15 * time.Second
	// givenUpFor is how long an abandoned machine is searched for.
	givenUpFor = 90 * 24 * time.Hour
)

// watchGivenUp returns how soon to search again.
func (r *Reconciler) watchGivenUp(s *scope, resync time.Duration) time.Duration {
	if len(s.held.State.Runtime.GivenUp) == 0 {
		return resync
	}

	return min(resync, pollGivenUp)
}

// fence keeps abandoned machines that return out of the cluster: with a key of the cluster, their kubelets register
// their Nodes again, and their workloads are not managed. Their Nodes are removed and the machines are wiped, as would
// have happened at their replacement if they had responded. It never blocks the rest of the reconciliation.
func (r *Reconciler) fence(ctx context.Context, s *scope) (ctrl.Result, error) {
	if err := r.approveWipes(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	gone := s.held.State.Runtime.GivenUp

	if s.fencing = true; len(gone) == 0 {
		return ctrl.Result{}, nil
	}

	listed, err := r.listedAddresses(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	seen := r.meetGivenUp(ctx, s, listed)

	for _, key := range slices.Sorted(maps.Keys(gone)) {
		if err := r.fenceOne(ctx, s, key, seen[key]); err != nil {
			return ctrl.Result{}, err
		}
	}

	r.removeNodes(ctx, s)

	return ctrl.Result{}, r.updateState(ctx, s, "what became of abandoned machines")
}

// listedAddresses returns the addresses of the cluster's machines. An abandoned machine that is listed again is handled
// by its own object.
func (r *Reconciler) listedAddresses(ctx context.Context, s *scope) (map[string]bool, error) {
	list := &v1alpha1.TalosMachineList{}

	err := r.Client.List(ctx, list, client.InNamespace(s.cp.Namespace),
		client.MatchingLabels{v1alpha1.ControlPlaneLabel: s.cp.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the machines of %s: %w", s.cp.Name, err)
	}

	out := map[string]bool{}
	for i := range list.Items {
		out[evidence.Address(&list.Items[i])] = true
		out[list.Items[i].Spec.Address] = true
	}

	return out, nil
}

// meetGivenUp queries the addresses of all abandoned machines concurrently. It returns only machines that are
// identified as the abandoned ones.
func (r *Reconciler) meetGivenUp(ctx context.Context, s *scope, listed map[string]bool) map[string]met {
	var (
		mu  sync.Mutex
		wg  sync.WaitGroup
		out = map[string]met{}
	)

	for key, g := range s.held.State.Runtime.GivenUp {
		if _, is := s.held.State.Runtime.Returned(g.UUID); !is || g.Address == "" || listed[g.Address] {
			continue
		}

		wg.Go(func() {
			if who, is := r.isReturned(ctx, s, g); is {
				mu.Lock()
				defer mu.Unlock()

				out[key] = who
			}
		})
	}

	wg.Wait()

	return out
}

// met is a machine that responds at the address of an abandoned one.
type met struct {
	state talos.State
	self  talos.Self
	// hostname that the machine reports, and nodeName that its kubelet registers with; empty in maintenance mode.
	hostname, nodeName string
	// member is the ID of the etcd member that the machine reports; 0 if it reports none.
	member uint64
}

// isReturned reports whether the responding machine is the abandoned one, and its current state.
func (r *Reconciler) isReturned(ctx context.Context, s *scope, g clusterstate.GivenUp) (met, bool) {
	probe, err := r.Nodes.Probe(ctx, g.Address, &s.creds)
	who := met{state: probe.State}

	if err != nil {
		return who, false
	}

	switch probe.State {
	case talos.StateMember:
		node, nerr := r.Nodes.Node(ctx, r.givenUpRef(s, g))
		if nerr != nil {
			return who, false
		}

		facts, ferr := node.Facts(ctx)
		who.self, who.hostname, err = talos.Self{UUID: facts.UUID, BootID: facts.BootID}, facts.Hostname, ferr
		who.nodeName, who.member = facts.NodeName, evidence.MemberID(facts.EtcdMemberID)
	case talos.StateMaintenance:
		// The spec of the machine is gone, and with it the expected certificate: only its UUID is read, and nothing is sent.
		who.self.UUID, err = r.Nodes.MaintenanceUUID(ctx, g.Address, "")
	case talos.StateUnreachable, talos.StateForeign:
	}

	return who, err == nil && who.self.UUID == g.UUID
}

func (r *Reconciler) givenUpRef(s *scope, g clusterstate.GivenUp) talos.NodeRef {
	return talos.NodeRef{
		Key: s.cp.Namespace + "/" + s.cp.Name + "/given-up/" + g.UUID, Address: g.Address, Credentials: s.creds,
	}
}

// fenceOne takes one step for one machine; its state is StateUnreachable if the machine was not met.
func (r *Reconciler) fenceOne(ctx context.Context, s *scope, key string, who met) error {
	g := s.held.State.Runtime.GivenUp[key]
	back := fmt.Sprintf("%s at %s was abandoned and is back", g.Name, g.Address)

	switch who.state {
	case talos.StateMaintenance:
		r.endGivenUp(s, key, g, "%s at %s was abandoned, and is now wiped", g.Name, g.Address)

		return nil
	case talos.StateMember:
	case talos.StateUnreachable, talos.StateForeign:
		if r.Clock.Since(g.At) > givenUpFor {
			r.endGivenUp(s, key, g, "%s at %s was abandoned, and is no longer tracked", g.Name, g.Address)
		}

		return nil
	}

	f := r.fencing(s, g, who)

	step, doubt := safety.Fence(f)
	if step == safety.FenceAskCluster {
		workload.ObserveNode(ctx, func(ctx context.Context) (*workload.Cluster, error) {
			return r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
		}, &f)

		step, doubt = safety.Fence(f)
	}

	switch step {
	case safety.FenceIgnore, safety.FenceAwaitRestore, safety.FenceAskCluster:
	case safety.FenceHold:
		s.fenced = append(s.fenced, back+"; it is kept out of the cluster and not changed: wipe it, or power it off")
	case safety.FenceAwaitMember:
		s.fenced = append(s.fenced, back+s.awaitsMember(g, who))
	case safety.FenceAwaitWipe:
		s.fenced = append(s.fenced,
			back+"; it is being wiped: the request was sent at "+g.ResetAt.UTC().Format(time.TimeOnly)+
				" UTC, and is repeated until it is wiped")
	case safety.FenceAskPerson:
		s.fenced = append(s.fenced, fmt.Sprintf("%s, and %s: it is not changed; to wipe it, annotate this object with "+
			"%s=%s", back, f.Explain(doubt), v1alpha1.WipeMachinesAnnotation, g.Name))
	case safety.FenceWipe:
		return r.wipe(ctx, s, key, who, back)
	}

	return nil
}

// awaitsMember describes why a machine is not wiped that may have a member in etcd.
func (s *scope) awaitsMember(g clusterstate.GivenUp, who met) string {
	listed := func(n safety.Node) bool {
		return slices.ContainsFunc(n.Members, func(m safety.Member) bool { return m.ID == who.member })
	}
	if !g.ControlPlane || !s.etcd.Quorum || !slices.ContainsFunc(s.nodes, listed) {
		return "; it is wiped once the control plane confirms that it has no member in etcd"
	}

	return fmt.Sprintf(" as etcd member %s, which is on the member list, so it is not changed: if it is a node of this "+
		"cluster with a second address, take %s off it; if it is not, remove its member from etcd",
		safety.FormatMemberID(who.member), g.Address)
}

// fencing returns the evidence about a machine that no object lists, and that was met at the address where it was
// abandoned.
func (r *Reconciler) fencing(s *scope, g clusterstate.GivenUp, who met) safety.Fencing {
	_, known := s.held.State.Runtime.Returned(g.UUID)
	f := safety.Fencing{
		Abandoned: safety.Identity{
			Name: g.Name, Hostname: g.Hostname, NodeName: g.NodeName, Address: g.Address, UUID: g.UUID,
		},
		Found: safety.Identity{
			Hostname: who.hostname, NodeName: who.nodeName, Address: g.Address, UUID: who.self.UUID,
		},
		Ambiguous: !known, Hold: g.Hold, MemberGone: s.memberGone(g, who), Approved: g.WipeApproved,
	}

	if g.ResetAt != nil {
		ago := int64(r.Clock.Since(*g.ResetAt).Seconds())
		f.Told = &ago
	}

	return f
}

// approveWipes records which machines a user wants to be wiped in spite of a doubt.
func (r *Reconciler) approveWipes(ctx context.Context, s *scope) error {
	value, ok := s.cp.Annotations[v1alpha1.WipeMachinesAnnotation]
	if !ok {
		return nil
	}

	var approved, refused []string

	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		found := false

		for key, g := range s.held.State.Runtime.GivenUp {
			if g.Name == name {
				g.WipeApproved, found = true, true
				s.held.State.Runtime.GivenUp[key] = g
			}
		}

		if found {
			approved = append(approved, name)
		} else {
			refused = append(refused, name)
		}
	}

	if len(approved) > 0 {
		if err := r.updateState(ctx, s, "that "+strings.Join(approved, ", ")+" may be wiped"); err != nil {
			return err
		}
	}

	if len(refused) > 0 {
		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeWarning, v1alpha1.ReasonMachineReturned, "Wipe",
			"Will not wipe %s: not an abandoned machine", strings.Join(refused, ", "))
	}

	return kube.TakeAnnotation(ctx, r.Client, s.cp, s.base, v1alpha1.WipeMachinesAnnotation)
}

// memberGone reports whether every serving control-plane node confirms that the machine has no member. The machine
// itself may not know yet that its member was removed, so its report counts only if it names a member on the list: it
// may be the machine that serves at the address of another one.
func (s *scope) memberGone(g clusterstate.GivenUp, who met) bool {
	if !g.ControlPlane {
		return true
	}

	nodes := append(slices.Clone(s.nodes), safety.Node{
		Name: g.UUID, Address: g.Address, LastMember: evidence.MemberID(g.MemberID), MemberID: who.member,
	})

	return safety.Gone(nodes, g.UUID)
}

// stillGone reports whether the machine is certain to have no member directly before it is wiped: one that has its
// config and no data joins by itself, at any moment.
func (r *Reconciler) stillGone(ctx context.Context, s *scope, g clusterstate.GivenUp, who met) bool {
	if g.ControlPlane {
		s.nodes = r.source(s).Refresh(ctx, s.machines, r.source(s).Collect(ctx, s.machines))
	}

	return s.memberGone(g, who)
}

// wipe wipes the machine that was met, after verifying its identity. The wipe is recorded first, and repeating it is
// harmless. Only a failed write of the state ends the reconciliation: a machine that refuses is asked again later, and
// does not block others.
func (r *Reconciler) wipe(ctx context.Context, s *scope, key string, who met, back string) error {
	switch owner, err := r.ownerPermits(ctx, s); {
	case err != nil:
		return err
	case owner.Action != safety.Proceed:
		s.fenced = append(s.fenced, back+"; it is not wiped: "+owner.Message)

		return nil
	}

	g := s.held.State.Runtime.GivenUp[key]
	now := r.now()
	g.ResetAt = &now
	s.held.State.Runtime.GivenUp[key] = g

	if err := r.updateState(ctx, s, "that "+g.Name+" is wiped"); err != nil {
		return err
	}

	gone := true

	node, err := r.Nodes.Node(ctx, r.givenUpRef(s, g))
	if err == nil {
		err = node.ToItself(ctx, who.self, func() error {
			if gone = r.stillGone(talos.Acting(ctx), s, g, who); !gone {
				return nil
			}

			return node.Reset(ctx, talos.ResetOptions{Reboot: true})
		})
	}

	if !gone {
		g.ResetAt = nil
		s.held.State.Runtime.GivenUp[key] = g
		s.fenced = append(s.fenced, back+s.awaitsMember(g, who))

		return r.updateState(ctx, s, "that "+g.Name+" is not wiped yet")
	}

	if err != nil {
		s.fenced = append(s.fenced, back+"; wiping it failed and is retried: "+failure.Message(err))
		ctrl.LoggerFrom(ctx).Info("Wiping an abandoned machine failed; retrying", "machine", g.Name,
			"error", err.Error())

		return nil
	}

	s.fenced = append(s.fenced, back+"; it is being wiped")
	r.Recorder.Eventf(s.cp, kube.RelatedMachine(s.cp, g.Name), corev1.EventTypeWarning, v1alpha1.ReasonMachineReturned,
		"Reset", "%s at %s was abandoned and is back with its old data; resetting it", g.Name, g.Address)

	return nil
}

// endGivenUp drops the record of an abandoned machine.
func (r *Reconciler) endGivenUp(s *scope, key string, g clusterstate.GivenUp, format string, args ...any) {
	delete(s.held.State.Runtime.GivenUp, key)
	r.Nodes.Drop(r.givenUpRef(s, g).Key)
	r.Recorder.Eventf(s.cp, kube.RelatedMachine(s.cp, g.Name), corev1.EventTypeNormal, v1alpha1.ReasonMachineReturned,
		"Forget", format, args...)
}

// removeNodes removes the Nodes that abandoned machines have registered again, wherever those are now, if they are not
// ready or a user wants them removed. Failures are retried by the next reconciliation; askAPI reports an unreachable
// API.
func (r *Reconciler) removeNodes(ctx context.Context, s *scope) {
	var gone []clusterstate.GivenUp

	for _, g := range s.held.State.Runtime.GivenUp {
		if _, is := s.held.State.Runtime.Returned(g.UUID); is && cmp.Or(g.NodeName, g.Hostname) != "" {
			gone = append(gone, g)
		}
	}

	if len(gone) == 0 || !s.etcd.Quorum {
		return
	}

	cluster, err := r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
	if err != nil {
		return
	}

	for _, g := range gone {
		ref := workload.NodeRef{Name: cmp.Or(g.NodeName, g.Hostname), UUID: g.UUID}

		ready, err := cluster.Ready(ctx, ref)
		if err == nil && (!ready || g.WipeApproved) {
			err = cluster.DeleteNode(ctx, ref)
		}

		if err != nil {
			ctrl.LoggerFrom(ctx).Info("Removing the Node of an abandoned machine failed; retrying",
				"node", ref.Name, "error", err.Error())
		}
	}
}
