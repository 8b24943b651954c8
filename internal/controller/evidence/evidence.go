// Package evidence asks control-plane nodes, live, what they are and what their etcd says: what internal/safety decides
// from.
package evidence

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/safety"
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

// collectTimeout ends the questions to all nodes. A node whose etcd hangs takes five seconds to tell so; what one has
// not told after this time is missing, and missing evidence means no.
const collectTimeout = 8 * time.Second

// Collect asks every machine at once. A node that does not answer is evidence too: that nothing is known of it.
func (s Source) Collect(ctx context.Context, machines []v1alpha1.TalosMachine) []safety.Node {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()

	nodes := make([]safety.Node, len(machines))

	var wg sync.WaitGroup

	for i := range machines {
		wg.Go(func() { nodes[i] = s.ask(ctx, &machines[i]) })
	}

	wg.Wait()

	return nodes
}

// Address of a machine's Talos API; empty while none is known.
func Address(m *v1alpha1.TalosMachine) string { return cmp.Or(m.Status.Address, m.Spec.Address) }

// Addresses of machines, as far as they are known.
func Addresses(machines []v1alpha1.TalosMachine) []string {
	var out []string

	for i := range machines {
		if a := Address(&machines[i]); a != "" {
			out = append(out, a)
		}
	}

	return out
}

// Ref names the connection to a machine.
func (s Source) Ref(m *v1alpha1.TalosMachine) talos.NodeRef {
	return talos.NodeRef{Key: m.Namespace + "/" + m.Name, Address: Address(m), Credentials: s.Credentials}
}

// ask collects the evidence of one node.
func (s Source) ask(ctx context.Context, m *v1alpha1.TalosMachine) safety.Node {
	n := safety.Node{
		Name: m.Name, Address: Address(m), LastMember: memberID(cmp.Or(m.Status.EtcdMemberID, m.Status.LastEtcdMemberID)),
		EverConfigured: m.Status.ConfigHash != "" || s.State.Runtime.Machines[m.Name].ConfiguredAt != nil,
	}

	if n.Address == "" {
		return n
	}

	// Nearly always the node answers over the connection that there is, and there is no need to find out what it is.
	if node := s.Nodes.Connected(s.Ref(m)); node != nil && s.askOver(ctx, node, m, &n) {
		return n
	}

	probe, err := s.Nodes.Probe(ctx, n.Address, &s.Credentials)
	if err != nil {
		return n
	}

	switch probe.State {
	case talos.StateMaintenance:
		// Of a machine that does not show the certificate that it has to, nobody knows which one it is.
		if probe.Check(m.Spec.MaintenanceFingerprint) == nil {
			n.Answer = safety.AnswerMaintenance
		}
	case talos.StateMember:
		s.askMember(ctx, m, &n)
	case talos.StateUnreachable, talos.StateForeign:
	}

	return n
}

// answerTimeout ends the question whether a node answers over the connection that there is.
const answerTimeout = 2 * time.Second

// askMember collects the evidence of a node that has just answered as a member, over another connection.
func (s Source) askMember(ctx context.Context, m *v1alpha1.TalosMachine, n *safety.Node) {
	node, err := s.Nodes.Node(ctx, s.Ref(m))
	if err != nil {
		return
	}

	// The question makes the connection, if there is none.
	if _, err := node.EtcdService(ctx); err == nil {
		s.askOver(ctx, node, m, n)
	}
}

// askOver collects the evidence over one connection: another one may lead to another machine, and what that says is no
// evidence about this one. It is false where nobody answers, or another connection was made meanwhile.
func (s Source) askOver(ctx context.Context, node *talos.Node, m *v1alpha1.TalosMachine, n *safety.Node) bool {
	connection := node.Connection()

	soon, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()

	service, err := node.Service(soon, "etcd")
	if err != nil {
		return false
	}

	uuid, err := node.UUIDOver(ctx, connection)
	if err != nil || !s.isItself(m, uuid) {
		return true
	}

	got := *n
	got.Answer = safety.AnswerMember
	askEtcd(ctx, node, service, &got)

	// A bootstrap is meant for this boot of this machine alone.
	if got.EtcdWaiting {
		if got.BootID, err = node.BootID(ctx); err != nil {
			got.EtcdWaiting = false
		}
	}

	if node.Connection() != connection {
		return false
	}

	*n = got

	return true
}

// isItself tells whether the machine that answers is the one that answered before.
func (s Source) isItself(m *v1alpha1.TalosMachine, uuid string) bool {
	known := s.State.Runtime.UUID(m.Name)

	return known == "" || uuid == known || uuid == "" || uuid == m.Annotations[v1alpha1.AcceptMachineAnnotation]
}

// askEtcd adds what the node says of etcd, whose service is in the given state. What cannot be read stays unknown.
func askEtcd(ctx context.Context, node *talos.Node, service talos.Service, n *safety.Node) {
	n.EtcdWaiting, n.EtcdSince = service.State == talos.EtcdPreparing, service.Since.UnixNano()

	// Where etcd does not run its calls never answer: they would only run into their deadlines.
	if service.State == talos.EtcdRunning {
		askMembers(ctx, node, n)
	}

	// An etcd that answers has data: nearly always nobody has to look.
	if n.Serves() || n.NoLeader {
		n.EtcdData = safety.DataPresent

		return
	}

	present, err := node.EtcdDataPresent(ctx)
	if err != nil {
		return
	}

	n.EtcdData = safety.DataAbsent
	if present {
		n.EtcdData = safety.DataPresent
	}
}

// askMembers asks the node's etcd. Without a leader it gives no member list, and other calls to it never end, so that
// nothing more is asked.
func askMembers(ctx context.Context, node *talos.Node, n *safety.Node) {
	st, err := node.EtcdStatus(ctx)
	if err != nil {
		n.EtcdHangs = errors.Is(err, talos.ErrNotServing)

		return
	}

	if st.Leader == 0 {
		setStatus(n, st)

		n.NoLeader = true

		return
	}

	members, err := node.EtcdMembers(ctx)

	switch {
	case errors.Is(err, talos.ErrNoLeader): // lost meanwhile
		st.Leader = 0
		setStatus(n, st)

		n.NoLeader = true

		return
	case err != nil:
		return
	}

	alarms, err := node.EtcdMemberAlarms(ctx)
	if err != nil && !errors.Is(err, talos.ErrNotServing) {
		return
	}

	setStatus(n, st)

	for _, a := range alarms {
		n.Alarms = append(n.Alarms, a.Alarm)

		if a.MemberID == st.MemberID {
			n.OwnAlarms = append(n.OwnAlarms, a.Alarm)
		}
	}

	for _, m := range members {
		n.Members = append(n.Members, safety.Member{ID: m.ID, Name: m.Name, PeerAddresses: m.PeerHosts, Learner: m.Learner})
	}
}

// setStatus notes what the node's member says of itself.
func setStatus(n *safety.Node, st talos.EtcdStatus) {
	n.MemberID, n.Leader, n.Learner, n.RaftIndex = st.MemberID, st.Leader, st.Learner, st.RaftIndex
	n.RaftApplied, n.OwnAlarms = st.RaftAppliedIndex, slices.Clone(st.Errors)
	n.Alarms = slices.Clone(st.Errors)
}

func memberID(text string) uint64 {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0
	}

	return id
}
