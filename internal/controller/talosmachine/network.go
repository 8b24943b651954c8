package talosmachine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// networkTrust is how long a network without a fault is not asked for again. It is a little less than the time between
// reconciliations of an idle machine, so that each of them asks.
const networkTrust = 9*time.Minute + 30*time.Second

// Limits of the status fields.
const (
	mostResolvers, mostLinks, mostPeers, mostMissing = 16, 64, 32, 16
	longestName, longestAddress, longestState        = 253, 64, 32
)

// stateMissing is that of a link that the configuration names and the machine does not have.
const stateMissing = "missing"

// networks records, per machine, what its network was last found to be like. A restart loses it, which costs one more
// query.
type networks struct {
	mu   sync.Mutex
	last map[string]networkSight
}

// networkSight is one look at the network of a node.
type networkSight struct {
	// boot and config identify what was looked at.
	boot, config string
	at           time.Time
	fault        fault
}

// recall returns the last fault, unless it is time to look again.
func (n *networks) recall(key, boot, config string, now time.Time) (fault, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	last, ok := n.last[key]

	trust := networkTrust
	if last.fault.message != "" {
		trust = pollFaults
	}

	return last.fault, ok && last.boot == boot && last.config == config && now.Sub(last.at) < trust
}

func (n *networks) remember(key string, s networkSight) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.last == nil {
		n.last = map[string]networkSight{}
	}

	n.last[key] = s
}

func (n *networks) forget(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	delete(n.last, key)
}

// networkFault finds what of the machine's network does not work, according to the node. No stream reports that: it is
// read now and then.
func (r *Reconciler) networkFault(ctx context.Context, s *scope) (fault, error) {
	key, now := s.key().String(), r.Clock.Now()

	if f, fresh := r.networks.recall(key, s.facts.BootID, s.told, now); fresh {
		return f, nil
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return fault{}, err
	}

	seen := sight{machine: s.machine.Name}
	if seen.Network, err = node.NetworkHealth(ctx); err != nil {
		return fault{}, err
	}

	if seen.Discovers {
		if err := r.seeOthers(ctx, s, node, &seen); err != nil {
			return fault{}, err
		}
	}

	f := seen.judge()
	s.network = seen.status()
	r.networks.remember(key, networkSight{boot: s.facts.BootID, config: s.told, at: now, fault: f})

	return f, nil
}

// seeOthers compares what the node knows of the others of its cluster with their objects.
func (r *Reconciler) seeOthers(ctx context.Context, s *scope, node *talos.Node, seen *sight) error {
	var err error
	if seen.members, err = node.ClusterMembers(ctx); err != nil {
		return err
	}

	list := &v1alpha1.TalosMachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(s.machine.Namespace),
		client.MatchingLabels{v1alpha1.ControlPlaneLabel: s.controlPlane.Name}, kube.Shared); err != nil {
		return fmt.Errorf("listing the TalosMachines of %s: %w", s.controlPlane.Name, err)
	}

	var present []v1alpha1.TalosMachine

	for i := range list.Items {
		m := &list.Items[i]

		switch {
		case m.Name == s.machine.Name:
		case isPresent(m):
			present = append(present, *m)
		case m.Status.Hostname != "":
			seen.absent = append(seen.absent, m.Status.Hostname)
		}
	}

	seen.missing = talos.UnknownMachines(present, seen.members)

	return nil
}

// isPresent reports whether the others of its cluster should know a machine. One that is away is reported by itself,
// and not by all the others.
func isPresent(m *v1alpha1.TalosMachine) bool {
	return !deleting(m) && m.Status.Stage == change.StageRunning && m.Status.WorkingHash != "" &&
		meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable)
}

// sight is what a node reports about its network, and what is known of the others of its cluster.
type sight struct {
	talos.Network

	machine string
	members []talos.ClusterMember
	// missing are machines that the node should know and does not; absent are the hostnames of those that are away.
	missing, absent []string
}

// linkState is the state of a link that the configuration names.
func (n *sight) linkState(name string) (state string, down bool) {
	link, ok := n.FindLink(name)
	if !ok {
		return stateMissing, false
	}

	return link.State, link.Down()
}

// judge says what does not work. All of it may only need more time, after a boot or a change.
func (n *sight) judge() fault {
	var (
		problems []string
		reason   string
	)

	for _, one := range []struct {
		reason string
		find   func() string
	}{
		{v1alpha1.ReasonLinkMissing, func() string { return n.linkProblem(false) }},
		{v1alpha1.ReasonLinkDown, func() string { return n.linkProblem(true) }},
		{v1alpha1.ReasonNetworkNotReady, n.readyProblem},
		{v1alpha1.ReasonResolversMissing, n.resolverProblem},
		{v1alpha1.ReasonResolversFailing, n.answerProblem},
		{v1alpha1.ReasonKubeSpanPeersDown, n.peerProblem},
		{v1alpha1.ReasonDiscoveryIncomplete, n.memberProblem},
	} {
		if problem := one.find(); problem != "" {
			problems = append(problems, problem)
			reason = cmp.Or(reason, one.reason)
		}
	}

	if len(problems) == 0 {
		return fault{}
	}

	return fault{
		reason: reason, early: true,
		message: cut("the network of machine "+n.machine+" is degraded: "+strings.Join(problems, "; "), longestFault),
	}
}

func (n *sight) linkProblem(down bool) string {
	var names []string

	for _, name := range n.ConfiguredLinks {
		if state, isDown := n.linkState(name); down && isDown || !down && state == stateMissing {
			names = append(names, cut(name, longestName))
		}
	}

	switch {
	case len(names) == 0:
		return ""
	case down:
		return "links of the configuration are down and carry no traffic: " + change.List(names) + " (check the cable and " +
			"the port of the switch)"
	}

	return "links of the configuration do not exist: " + change.List(names) + " (correct the name or the selector, or " +
		"check the hardware)"
}

func (n *sight) readyProblem() string {
	lacks := n.Ready.Lacks()
	if len(lacks) == 0 {
		return ""
	}

	return "Talos still waits for: " + change.List(lacks) + " (check DHCP, addresses and routes)"
}

func (n *sight) resolverProblem() string {
	if len(n.Resolvers) > 0 {
		return ""
	}

	return "no DNS servers are known, so names do not resolve (set network.nameservers, or have DHCP provide them)"
}

func (n *sight) answerProblem() string {
	if len(n.FailingResolvers) == 0 {
		return ""
	}

	return "DNS servers do not respond: " + change.List(n.FailingResolvers) + " (check that the machine reaches them, " +
		"or correct network.nameservers)"
}

func (n *sight) peerProblem() string {
	var down []string

	for _, p := range n.Peers {
		if p.State == talos.PeerDown && !slices.Contains(n.absent, p.Name) {
			down = append(down, cut(p.Name, longestName)+" at "+cmp.Or(p.Endpoint, "no known endpoint"))
		}
	}

	if len(down) == 0 {
		return ""
	}

	return "KubeSpan has no tunnel to: " + change.List(down) + " (open UDP port 51820 between the machines, or set " +
		"network.kubeSpanEndpoints)"
}

func (n *sight) memberProblem() string {
	if len(n.missing) == 0 {
		return ""
	}

	return fmt.Sprintf("discovery reports %d of %d machines, not: %s (check that all of them reach the discovery service)",
		len(n.members), len(n.members)+len(n.missing), change.List(n.missing))
}

// status is what the status shows of it.
func (n *sight) status() *v1alpha1.MachineNetworkStatus {
	out := &v1alpha1.MachineNetworkStatus{
		HostnameSource: cut(n.HostnameLayer, longestState), NotReady: n.Ready.Lacks(), KubeSpan: n.kubeSpan(),
		Undiscovered: n.missing[:min(len(n.missing), mostMissing)],
	}

	for _, resolver := range n.Resolvers[:min(len(n.Resolvers), mostResolvers)] {
		out.Resolvers = append(out.Resolvers, cut(resolver, longestAddress))
	}

	links := slices.Compact(slices.Clone(n.ConfiguredLinks))
	links = slices.DeleteFunc(links, func(name string) bool { return name == "" })

	for _, name := range links[:min(len(links), mostLinks)] {
		state, _ := n.linkState(name)
		out.Links = append(out.Links, v1alpha1.MachineLink{Name: cut(name, longestName), State: cut(state, longestState)})
	}

	return out
}

func (n *sight) kubeSpan() *v1alpha1.KubeSpanStatus {
	if len(n.Peers) == 0 {
		return nil
	}

	out := &v1alpha1.KubeSpanStatus{}

	for _, p := range n.Peers {
		switch p.State {
		case talos.PeerUp:
			out.Up++
		case talos.PeerDown:
			out.Down++
		default:
			out.Unknown++
		}
	}

	peers := slices.DeleteFunc(slices.Clone(n.Peers), func(p talos.Peer) bool { return p.Name == "" })
	slices.SortStableFunc(peers, func(a, b talos.Peer) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
	})

	for _, p := range peers[:min(len(peers), mostPeers)] {
		out.Peers = append(out.Peers, v1alpha1.KubeSpanPeer{
			Name: cut(p.Name, longestName), State: cut(p.State, longestState), Endpoint: cut(p.Endpoint, longestAddress),
		})
	}

	return out
}

// rank orders peers: those without a tunnel come first.
func rank(p talos.Peer) int {
	return slices.Index([]string{talos.PeerDown, talos.PeerUnknown, talos.PeerUp}, p.State)
}
