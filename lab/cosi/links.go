package cosi

import (
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// LinkFault is what is wrong with a link.
type LinkFault int

// Faults of links.
const (
	// LinkDown: it has no carrier.
	LinkDown LinkFault = iota + 1
	// LinkMissing: the machine does not have it.
	LinkMissing
)

// NetworkFaults are what is wrong with the network of a node, as its resources show it. The node goes on to work.
type NetworkFaults struct {
	// Links by name.
	Links map[string]LinkFault
	// NoResolvers: the node has no DNS servers. SilentResolvers: those that it has do not answer.
	NoResolvers, SilentResolvers bool
}

// SetNetworkFaults shows what is wrong with the network from now on.
func (s *Store) SetNetworkFaults(faults NetworkFaults) {
	s.mu.Lock()
	s.faults = faults
	must(s.showRecorded())
	s.mu.Unlock()

	s.derive()
}

// lacks reports whether a recorded resource is that of a link that is missing.
func (s *Store) lacks(r resource.Resource) bool {
	return r.Metadata().Type() == network.LinkStatusType && s.faults.Links[r.Metadata().ID()] == LinkMissing
}

// suffer shows in a recorded resource what is wrong. It reports whether anything is.
func (s *Store) suffer(r resource.Resource) (resource.Resource, bool) {
	typ := r.Metadata().Type()

	switch {
	case typ == network.LinkStatusType && s.faults.Links[r.Metadata().ID()] == LinkDown,
		typ == network.ResolverStatusType && s.faults.NoResolvers,
		typ == network.DNSUpstreamType && s.faults.SilentResolvers:
	default:
		return r, false
	}

	r = r.DeepCopy()

	switch r := r.(type) {
	case *network.LinkStatus:
		r.TypedSpec().OperationalState, r.TypedSpec().LinkState = nethelpers.OperStateDown, false
	case *network.ResolverStatus:
		r.TypedSpec().DNSServers = nil
	case *network.DNSUpstream:
		r.TypedSpec().Value.Conn = network.NewDNSConn(silentProxy{healthyProxy(r.TypedSpec().Value.Conn.Addr())})
	}

	return r, true
}

// silentProxy is a DNS server that does not answer.
type silentProxy struct{ healthyProxy }

// Fails implements network.Proxy.
func (silentProxy) Fails() uint32 { return 1 }

// link is one that a config has the node bring up. Logical ones are created, where hardware has to be there.
type link struct {
	name    string
	logical bool
}

func linksOf(live coreconfig.Config) []link {
	var out []link

	for _, l := range live.NetworkCommonLinkConfigs() {
		_, physical := l.(config.NetworkPhysicalLinkConfig)
		out = append(out, link{l.Name(), !physical})
	}

	for _, d := range live.Machine().Network().Devices() {
		if d.Interface() == "" || d.Ignore() {
			continue
		}

		logical := d.Bond() != nil || d.Bridge() != nil || d.Dummy() || d.WireguardConfig() != nil
		out = append(out, link{d.Interface(), logical})

		for _, vlan := range d.Vlans() {
			out = append(out, link{nethelpers.VLANLinkName(d.Interface(), vlan.ID()), true})
		}
	}

	return out
}

// deriveLinks shows which links the config has the node bring up, and those of them that it has created.
func (s *Store) deriveLinks(live coreconfig.Config) {
	links := linksOf(live)

	s.mu.Lock()
	owned := s.owned(network.LinkSpecType)
	s.mu.Unlock()

	// Most configs leave the network to DHCP, and a type that a node shows itself takes memory.
	if len(links) == 0 && !owned {
		return
	}

	show(s, network.LinkSpecType, slices.All(links), func(_ int, l link) resource.Resource {
		return withSpec(network.NewLinkSpec(network.NamespaceName, l.name), network.LinkSpecSpec{
			Name: l.name, Up: true, Logical: l.logical, ConfigLayer: network.ConfigMachineConfiguration,
		})
	})
	s.createLinks(links)
}

// createLinks shows the links that are there because the config says so, beside those of the hardware.
func (s *Store) createLinks(links []link) {
	s.mu.Lock()
	defer s.mu.Unlock()

	next := map[string]bool{}

	for _, l := range links {
		if _, recorded := s.shown[pointer{network.LinkStatusType, l.name}]; !l.logical || recorded ||
			s.faults.Links[l.name] == LinkMissing {
			continue
		}

		spec := network.LinkStatusSpec{
			Type: nethelpers.LinkEther, OperationalState: nethelpers.OperStateUp, LinkState: true, MTU: 1500,
		}
		if s.faults.Links[l.name] == LinkDown {
			spec.OperationalState, spec.LinkState = nethelpers.OperStateDown, false
		}

		next[l.name] = true
		must(s.put(withSpec(network.NewLinkStatus(network.NamespaceName, l.name), spec)))
	}

	for name := range s.created {
		if !next[name] {
			must(s.destroy(pointer{network.LinkStatusType, name}.metadata()))
		}
	}

	s.created = next
}

// deriveDiscovery shows whether the node looks for the others of its cluster, without the key.
func (s *Store) deriveDiscovery(live coreconfig.Config) {
	discovery := live.Cluster().Discovery()

	s.Set(withSpec(cluster.NewConfig(configres.NamespaceName, cluster.ConfigID), cluster.ConfigSpec{
		DiscoveryEnabled:          discovery.Enabled(),
		RegistryKubernetesEnabled: discovery.Registries().Kubernetes().Enabled(),
		RegistryServiceEnabled:    discovery.Registries().Service().Enabled(),
		ServiceClusterID:          live.Cluster().ID(),
	}))
}
