// Package evidence queries control-plane nodes live for their identity and the state of their etcd: the evidence from
// which internal/safety decides.
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

// Source determines which nodes are queried and how.
type Source struct {
	// Nodes opens connections.
	Nodes *talos.Pool
	// Credentials of the cluster.
	Credentials talos.Credentials
	// State of the cluster: which machines were ever configured.
	State *clusterstate.State
}

// collectTimeout limits the queries of all nodes. A node whose etcd hangs takes five seconds to report that. Evidence
// that has not arrived after this time is missing, and missing evidence means no.
const collectTimeout = 8 * time.Second

// Collect queries every machine concurrently. An unreachable node is evidence too: its state is unknown.
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

// Refresh queries those machines again that have responded in earlier evidence, and keeps the rest of it. Where a node
// does not respond, Collect waits for it, and what the others said is seconds old by then.
func (s Source) Refresh(ctx context.Context, machines []v1alpha1.TalosMachine, nodes []safety.Node) []safety.Node {
	var respond []int

	for i := range nodes {
		if nodes[i].Answer != safety.AnswerUnknown {
			respond = append(respond, i)
		}
	}

	again := make([]v1alpha1.TalosMachine, len(respond))
	for i, j := range respond {
		again[i] = machines[j]
	}

	out := slices.Clone(nodes)
	for i, n := range s.Collect(ctx, again) {
		out[respond[i]] = n
	}

	return out
}

// Address returns the address of a machine's Talos API; empty while it is unknown.
func Address(m *v1alpha1.TalosMachine) string { return cmp.Or(m.Status.Address, m.Spec.Address) }

// Addresses returns the known addresses of machines.
func Addresses(machines []v1alpha1.TalosMachine) []string {
	var out []string

	for i := range machines {
		if a := Address(&machines[i]); a != "" {
			out = append(out, a)
		}
	}

	return out
}

// Ref returns the key of the connection to a machine.
func (s Source) Ref(m *v1alpha1.TalosMachine) talos.NodeRef {
	return talos.NodeRef{Key: m.Namespace + "/" + m.Name, Address: Address(m), Credentials: s.Credentials}
}

// ask collects the evidence of one node.
func (s Source) ask(ctx context.Context, m *v1alpha1.TalosMachine) safety.Node {
	n := safety.Node{
		Name: m.Name, Address: Address(m), LastMember: MemberID(cmp.Or(m.Status.EtcdMemberID, m.Status.LastEtcdMemberID)),
		EverConfigured: m.Status.ConfigHash != "" || s.State.Runtime.Machines[m.Name].ConfiguredAt != nil,
	}

	if n.Address == "" {
		return n
	}

	// Usually the node responds over the existing connection, and its state need not be probed.
	if node := s.Nodes.Connected(s.Ref(m)); node != nil && s.askOver(ctx, node, m, &n) {
		return n
	}

	probe, err := s.Nodes.Probe(ctx, n.Address, &s.Credentials)
	if err != nil {
		return n
	}

	switch probe.State {
	case talos.StateMaintenance:
		// If a machine does not present the expected certificate, or has another UUID, nothing is known of this one: it may
		// run at another address.
		if probe.Check(m.Spec.MaintenanceFingerprint) == nil && s.isWiped(ctx, m, probe.Fingerprint) {
			n.Answer = safety.AnswerMaintenance
		}
	case talos.StateMember:
		s.askMember(ctx, m, &n)
	case talos.StateUnreachable, talos.StateForeign:
	}

	return n
}

// answerTimeout limits the query whether a node responds over the existing connection.
const answerTimeout = 2 * time.Second

// askMember collects the evidence of a node that has just responded as a member over another connection.
func (s Source) askMember(ctx context.Context, m *v1alpha1.TalosMachine, n *safety.Node) {
	node, err := s.Nodes.Node(ctx, s.Ref(m))
	if err != nil {
		return
	}

	// This query establishes the connection if there is none.
	if _, err := node.EtcdService(ctx); err == nil {
		s.askOver(ctx, node, m, n)
	}
}

// askOver collects the evidence over a single connection: another connection may lead to another machine, whose
// responses are no evidence about this one. It returns false if the node does not respond, or if another connection was
// established in the meantime.
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

	// A bootstrap applies only to this boot of this machine.
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

// isItself reports whether the responding machine is the one that responded before.
func (s Source) isItself(m *v1alpha1.TalosMachine, uuid string) bool {
	known, accepted := s.State.Runtime.UUID(m.Name), m.Annotations[v1alpha1.AcceptMachineAnnotation]

	return known == "" || uuid == known || accepted != "" && accepted == cmp.Or(uuid, v1alpha1.AcceptNoUUID)
}

// isWiped reports whether the machine in maintenance mode at the address is the one that responded before.
func (s Source) isWiped(ctx context.Context, m *v1alpha1.TalosMachine, fingerprint string) bool {
	if s.State.Runtime.UUID(m.Name) == "" {
		return true
	}

	uuid, err := s.Nodes.MaintenanceUUID(ctx, Address(m), fingerprint)

	return err == nil && s.isItself(m, uuid)
}

// askEtcd adds what the node reports about etcd, whose service is in the given state. What cannot be read stays
// unknown.
func askEtcd(ctx context.Context, node *talos.Node, service talos.Service, n *safety.Node) {
	n.EtcdWaiting, n.EtcdSince = service.State == talos.EtcdPreparing, service.Since.UnixNano()

	// While etcd does not run, its calls get no response: they would only run into their deadlines.
	if service.State == talos.EtcdRunning {
		askMembers(ctx, node, n)
	}

	// An etcd that responds has data, so the data directory usually need not be read.
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

// askMembers queries the node's etcd. Without a leader it returns no member list, and other calls to it never return,
// so nothing else is queried.
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
	case errors.Is(err, talos.ErrNoLeader): // the leader was lost in the meantime
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

// setStatus records what the node's member reports about itself.
func setStatus(n *safety.Node, st talos.EtcdStatus) {
	n.MemberID, n.Leader, n.Learner, n.RaftIndex = st.MemberID, st.Leader, st.Learner, st.RaftIndex
	n.RaftApplied, n.OwnAlarms = st.RaftAppliedIndex, slices.Clone(st.Errors)
	n.Alarms = slices.Clone(st.Errors)
	n.DBSize, n.DBSizeInUse = st.DBSize, st.DBSizeInUse
}

// MemberID parses the hexadecimal ID of an etcd member; 0 if there is none.
func MemberID(text string) uint64 {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0
	}

	return id
}
