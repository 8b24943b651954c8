package talosmachine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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

// networkSight is what one reading of the network of a node has found.
type networkSight struct {
	// boot and config identify what was read.
	boot, config string
	at           time.Time
	// changing: a change was under way. A node shows its configuration before it has brought its network in line with it.
	changing bool
	problems []problem
	status   *v1alpha1.MachineNetworkStatus
}

// problem is one thing that does not work.
type problem struct{ reason, message string }

// recall returns the last sight, and false if it is time to look again. What was seen while a change was under way does
// not count once that has ended.
func (n *networks) recall(key, boot, config string, changing bool, now time.Time) (networkSight, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	last, ok := n.last[key]

	trust := networkTrust
	if len(last.problems) > 0 {
		trust = pollFaults
	}

	return last, ok && last.boot == boot && last.config == config && (changing || !last.changing) &&
		now.Sub(last.at) < trust
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
// read now and then. What was read is shown each time: a status that was to have it may not have been written.
func (r *Reconciler) networkFault(ctx context.Context, s *scope) (fault, error) {
	key, now, changing := s.key().String(), r.Clock.Now(), s.machine.Status.Change != nil

	last, fresh := r.networks.recall(key, s.facts.BootID, s.told, changing, now)
	if !fresh {
		seen, err := r.seeNetwork(ctx, s, now)
		if err != nil {
			return fault{}, err
		}

		last = networkSight{
			boot: s.facts.BootID, config: s.told, at: now, changing: changing, problems: seen.judge(), status: seen.status(),
		}
		r.networks.remember(key, last)
	}

	s.network = last.status.DeepCopy()

	return r.ripe(s, last.problems), nil
}

// ripe is the fault that problems of the network are: of those that have lasted, with the reason of the gravest. One
// whose reason the condition has needs no more time, for a restart of the operator loses since when it has lasted.
func (r *Reconciler) ripe(s *scope, problems []problem) fault {
	var (
		f        fault
		messages []string
	)

	key, now := faultKey(s.key().String(), v1alpha1.ConditionNetworkDegraded), r.Clock.Now()
	told := meta.FindStatusCondition(s.machine.Status.Conditions, v1alpha1.ConditionNetworkDegraded)

	for _, reason := range networkReasons {
		i := slices.IndexFunc(problems, func(p problem) bool { return p.reason == reason })
		if i < 0 {
			r.faults.forget(faultKey(key, reason))

			continue
		}

		since := r.faults.since(faultKey(key, reason), now)
		if now.Sub(since) < faultPatience && (told == nil || told.Reason != reason) {
			f.waits = true

			continue
		}

		f.reason = cmp.Or(f.reason, reason)
		messages = append(messages, problems[i].message)
	}

	if len(messages) > 0 {
		f.message = cut("the network of machine "+s.machine.Name+" is degraded: "+strings.Join(messages, "; "), longestFault)
	}

	return f
}

// seeNetwork reads what the node reports, and what is known of the others of its cluster.
func (r *Reconciler) seeNetwork(ctx context.Context, s *scope, now time.Time) (*sight, error) {
	node, err := r.node(ctx, s)
	if err != nil {
		return nil, err
	}

	seen := &sight{now: now}
	if seen.Network, err = node.NetworkHealth(ctx); err != nil {
		return nil, err
	}

	if !seen.Discovers && len(seen.Peers) == 0 {
		return seen, nil
	}

	list := &v1alpha1.TalosMachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(s.machine.Namespace),
		client.MatchingLabels{v1alpha1.ControlPlaneLabel: s.controlPlane.Name}, kube.Shared); err != nil {
		return nil, fmt.Errorf("listing the TalosMachines of %s: %w", s.controlPlane.Name, err)
	}

	for i := range list.Items {
		if m := &list.Items[i]; m.Name != s.machine.Name && isPresent(m) {
			seen.present = append(seen.present, *m)
		}
	}

	if seen.Discovers {
		seen.members, err = node.ClusterMembers(ctx)
	}

	// A node that does not report its members may know all of them.
	if seen.members != nil {
		seen.missing = talos.UnknownMachines(seen.present, seen.members)
	}

	return seen, err
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

	now     time.Time
	members []talos.ClusterMember
	// present are the others that the node should know and reach. Discovery and KubeSpan remember those that are gone for
	// up to half an hour. Missing are those of them that the node does not know, by name.
	present []v1alpha1.TalosMachine
	missing []string
}

// linkState is the state of a link that the configuration names; empty if the node does not report its links.
func (n *sight) linkState(name string) (state string, down bool) {
	link, ok := n.FindLink(name)

	switch {
	case n.Links == nil:
		return "", false
	case !ok:
		return stateMissing, false
	}

	return link.State, link.Down()
}

// networkReasons are the reasons of NetworkDegraded, the gravest first: a fault is often the cause of those after it.
var networkReasons = []string{
	v1alpha1.ReasonLinkMissing, v1alpha1.ReasonLinkDown, v1alpha1.ReasonNetworkNotReady, v1alpha1.ReasonResolversMissing,
	v1alpha1.ReasonResolversFailing, v1alpha1.ReasonKubeSpanPeersDown, v1alpha1.ReasonDiscoveryIncomplete,
}

// judge says what does not work. All of it may only need more time, after a boot or a change. What the node does not
// report is not judged.
func (n *sight) judge() []problem {
	var out []problem

	for _, p := range []problem{
		{v1alpha1.ReasonLinkMissing, n.linkProblem(false)},
		{v1alpha1.ReasonLinkDown, n.linkProblem(true)},
		{v1alpha1.ReasonNetworkNotReady, n.readyProblem()},
		{v1alpha1.ReasonResolversMissing, n.resolverProblem()},
		{v1alpha1.ReasonResolversFailing, n.answerProblem()},
		{v1alpha1.ReasonKubeSpanPeersDown, n.peerProblem()},
		{v1alpha1.ReasonDiscoveryIncomplete, n.memberProblem()},
	} {
		if p.message != "" {
			out = append(out, p)
		}
	}

	return out
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
	if n.Resolvers == nil || len(n.Resolvers) > 0 {
		return ""
	}

	return "no DNS servers are known, so names do not resolve (set network.nameservers, or machineNetwork.nameservers " +
		"of the group, or provide them by DHCP)"
}

func (n *sight) answerProblem() string {
	if len(n.FailingResolvers) == 0 {
		return ""
	}

	return "DNS servers do not respond: " + change.List(n.FailingResolvers) + " (check that the machine reaches them, " +
		"or correct network.nameservers or machineNetwork.nameservers)"
}

func (n *sight) peerProblem() string {
	var down []string

	for _, p := range n.peers() {
		if p.State == talos.PeerDown && n.isPresent(p.Name) {
			down = append(down, cut(p.Name, longestName))
		}
	}

	if len(down) == 0 {
		return ""
	}

	return "KubeSpan has no tunnel to: " + change.List(down) + " (open UDP port 51820 between the machines, or set " +
		"network.kubeSpanEndpoints)"
}

// isPresent reports whether a name is that of a machine that the node should reach.
func (n *sight) isPresent(name string) bool {
	return slices.ContainsFunc(n.present, func(m v1alpha1.TalosMachine) bool {
		return talos.SameHost(m.Status.Hostname, name)
	})
}

// peers are the peers of KubeSpan with their standings, those without a tunnel first. The identity that a machine had
// before it was wiped is one of them for a while: of peers with one name, the one that is best connected counts. Only
// the endpoint of a tunnel is shown: Talos tries one after the other until there is one.
func (n *sight) peers() []v1alpha1.KubeSpanPeer {
	best := map[string]v1alpha1.KubeSpanPeer{}

	for _, p := range n.Peers {
		if p.Name == "" {
			continue
		}

		peer := v1alpha1.KubeSpanPeer{Name: cut(p.Name, longestName), State: p.Standing(n.now)}
		if peer.State == talos.PeerUp {
			peer.Endpoint = cut(p.Endpoint, longestAddress)
		}

		if old, ok := best[peer.Name]; !ok || rank(old) < rank(peer) {
			best[peer.Name] = peer
		}
	}

	return slices.SortedFunc(maps.Values(best), func(a, b v1alpha1.KubeSpanPeer) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
	})
}

// rank orders peers: those without a tunnel come first.
func rank(p v1alpha1.KubeSpanPeer) int {
	return slices.Index([]string{talos.PeerDown, talos.PeerUnknown, talos.PeerUp}, p.State)
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

	// The API server refuses a status with two links of one name, and long names may begin alike.
	shown := map[string]bool{"": true}

	for _, name := range n.ConfiguredLinks {
		short := cut(name, longestName)
		if shown[short] || len(out.Links) == mostLinks {
			continue
		}

		shown[short] = true
		state, _ := n.linkState(name)
		out.Links = append(out.Links, v1alpha1.MachineLink{Name: short, State: cut(state, longestState)})
	}

	return out
}

func (n *sight) kubeSpan() *v1alpha1.KubeSpanStatus {
	peers := n.peers()
	if len(peers) == 0 {
		return nil
	}

	out := &v1alpha1.KubeSpanStatus{Peers: peers[:min(len(peers), mostPeers)]}

	for _, p := range peers {
		switch p.State {
		case talos.PeerUp:
			out.Up++
		case talos.PeerDown:
			out.Down++
		default:
			out.Unknown++
		}
	}

	return out
}
