// Package evidence asks control-plane nodes, live, what they are and what their etcd says: what internal/plan decides
// from.
package evidence

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/plan"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// Source is whom to ask and how.
type Source struct {
	// Nodes opens connections.
	Nodes *talos.Pool
	// Credentials of the cluster.
	Credentials talos.Credentials
	// State of the cluster: which machines ever got a config.
	State *clusterstate.State
}

// Collect asks every machine at once. A node that does not answer is evidence too: that nothing is known of it.
func (s Source) Collect(ctx context.Context, machines []v1alpha1.TalosMachine) []plan.Node {
	nodes := make([]plan.Node, len(machines))

	var wg sync.WaitGroup

	for i := range machines {
		wg.Go(func() { nodes[i] = s.ask(ctx, &machines[i]) })
	}

	wg.Wait()

	return nodes
}

// Address of a machine's Talos API; empty while none is known.
func Address(m *v1alpha1.TalosMachine) string { return cmp.Or(m.Status.Address, m.Spec.Address) }

// Ref names the connection to a machine.
func (s Source) Ref(m *v1alpha1.TalosMachine) talos.NodeRef {
	return talos.NodeRef{Key: m.Namespace + "/" + m.Name, Address: Address(m), Credentials: s.Credentials}
}

// ask collects the evidence of one node.
func (s Source) ask(ctx context.Context, m *v1alpha1.TalosMachine) plan.Node {
	n := plan.Node{
		Name: m.Name, Address: Address(m), LastMember: memberID(m.Status.EtcdMemberID),
		EverConfigured: m.Status.ConfigHash != "" || s.State.Runtime.Machines[m.Name].ConfiguredAt != nil,
	}

	if n.Address == "" {
		return n
	}

	probe, err := s.Nodes.Meet(ctx, s.Ref(m))
	if err != nil {
		return n
	}

	switch probe.State {
	case talos.StateMaintenance:
		n.Answer = plan.AnswerMaintenance
	case talos.StateMember:
		if !s.isItself(ctx, m) {
			return n
		}

		n.Answer = plan.AnswerMember
		s.askEtcd(ctx, m, &n)
	case talos.StateUnreachable, talos.StateForeign:
	}

	return n
}

// isItself tells whether the machine that answers is the one that answered before: what another one says at its address
// is no evidence about it.
func (s Source) isItself(ctx context.Context, m *v1alpha1.TalosMachine) bool {
	known := s.State.Runtime.UUID(m.Name)
	if known == "" {
		return true
	}

	node, err := s.Nodes.Node(ctx, s.Ref(m))
	if err != nil {
		return false
	}

	uuid, err := node.UUID(ctx)

	return err == nil && (uuid == known || uuid == "" || uuid == m.Annotations[v1alpha1.AcceptMachineAnnotation])
}

// askEtcd adds what the node says of etcd. What cannot be read stays unknown.
func (s Source) askEtcd(ctx context.Context, m *v1alpha1.TalosMachine, n *plan.Node) {
	node, err := s.Nodes.Node(ctx, s.Ref(m))
	if err != nil {
		return
	}

	service, err := node.EtcdService(ctx)
	if err != nil {
		return
	}

	n.EtcdWaiting = service == talos.EtcdPreparing

	// Where etcd does not run its calls never answer: they would only run into their deadlines.
	if service == talos.EtcdRunning {
		askMembers(ctx, node, n)
	}

	// An etcd that answers has data: nearly always nobody has to look.
	if n.Serves() {
		n.EtcdData = plan.DataPresent

		return
	}

	present, err := node.EtcdDataPresent(ctx)
	if err != nil {
		return
	}

	n.EtcdData = plan.DataAbsent
	if present {
		n.EtcdData = plan.DataPresent
	}
}

func askMembers(ctx context.Context, node *talos.Node, n *plan.Node) {
	st, err := node.EtcdStatus(ctx)
	if err != nil {
		return
	}

	members, err := node.EtcdMembers(ctx)
	if err != nil {
		return
	}

	alarms, err := node.EtcdMemberAlarms(ctx)
	if err != nil && !errors.Is(err, talos.ErrNotServing) {
		return
	}

	n.MemberID, n.Leader, n.Learner, n.RaftIndex = st.MemberID, st.Leader, st.Learner, st.RaftIndex
	n.RaftApplied, n.OwnAlarms = st.RaftAppliedIndex, slices.Clone(st.Errors)

	for _, a := range alarms {
		n.Alarms = append(n.Alarms, a.Alarm)

		if a.MemberID == st.MemberID {
			n.OwnAlarms = append(n.OwnAlarms, a.Alarm)
		}
	}

	n.Alarms = append(n.Alarms, st.Errors...)

	for _, m := range members {
		n.Members = append(n.Members, plan.Member{ID: m.ID, Name: m.Name, PeerAddresses: m.PeerHosts, Learner: m.Learner})
	}
}

func memberID(text string) uint64 {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0
	}

	return id
}
