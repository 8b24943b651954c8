package cosi

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// SetHostname says how the node calls itself.
func (s *Store) SetHostname(hostname string) {
	status := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	status.TypedSpec().Hostname = hostname

	spec := network.NewHostnameSpec(network.NamespaceName, network.HostnameID)
	spec.TypedSpec().Hostname = hostname
	spec.TypedSpec().ConfigLayer = network.ConfigMachineConfiguration

	s.Set(status, spec)
}

// SetNetworkStatus says how much of the network is up.
func (s *Store) SetNetworkStatus(spec network.StatusSpec) {
	s.Set(withSpec(network.NewStatus(network.NamespaceName, network.StatusID), spec))
}

// Peer is another node in KubeSpan.
type Peer struct {
	ID, Nodename string
	Address      netip.Addr
	// Others are further addresses that the node may have. One after the other is tried while there is no tunnel.
	Others []netip.Addr
	// Up: the last handshake was lately.
	Up        bool
	Handshake time.Time
}

// SetPeers shows the other nodes that KubeSpan connects the node to; none if it is off. Each time, those without a
// tunnel get their next endpoint, and with it an unknown state, as each half minute in Talos.
func (s *Store) SetPeers(peers ...Peer) {
	s.mu.Lock()
	shown := s.owned(kubespan.PeerStatusType)
	s.attempts++
	attempt := s.attempts
	s.mu.Unlock()

	// Nearly no node has KubeSpan, and a type that a node shows itself takes memory.
	if len(peers) == 0 && !shown {
		return
	}

	show(s, kubespan.PeerStatusType, slices.All(peers), func(_ int, p Peer) resource.Resource {
		spec := kubespan.PeerStatusSpec{Label: p.Nodename, State: kubespan.PeerStateUnknown}
		at := p.Address

		if p.Up {
			spec.State, spec.LastHandshakeTime = kubespan.PeerStateUp, p.Handshake
		} else {
			all := append([]netip.Addr{p.Address}, p.Others...)
			at = all[attempt%len(all)]
		}

		spec.Endpoint = netip.AddrPortFrom(at, constants.KubeSpanDefaultPort)

		return withSpec(kubespan.NewPeerStatus(kubespan.NamespaceName, p.ID), spec)
	})
}

// ShowCachedPlatform shows beside what the platform says of the network what it said in the boot before: a node that
// loaded its config from its disk found that there, too.
func (s *Store) ShowCachedPlatform() {
	const loader = "network.PlatformConfigLoadController"

	s.mu.Lock()
	defer s.mu.Unlock()

	ctx := context.Background()

	active, err := s.state.Get(ctx, pointer{network.PlatformConfigType, network.PlatformConfigActiveID}.metadata())
	must(err)

	cached := network.NewPlatformConfig(network.NamespaceName, network.PlatformConfigCachedID)
	if from, ok := active.(*network.PlatformConfig); ok {
		*cached.TypedSpec() = from.TypedSpec().DeepCopy()
	}

	must(s.state.Create(ctx, cached, state.WithCreateOwner(loader)))
}
