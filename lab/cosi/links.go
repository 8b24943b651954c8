package cosi

import (
	"net"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
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
	s.showLinks()
	s.mu.Unlock()

	s.derive()
}

// lacks reports whether a recorded resource is that of a link that is missing, or of an address that is elsewhere.
func (s *Store) lacks(r resource.Resource) bool {
	return r.Metadata().Type() == network.LinkStatusType && s.faults.Links[r.Metadata().ID()] == LinkMissing ||
		s.replaced(r)
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

// deriveLinks shows which links the config has the node bring up, those of them that it has created, and what they and
// the hardware are like then.
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
		return withSpec(network.NewLinkSpec(network.NamespaceName, l.name), l.spec(links))
	})

	s.mu.Lock()
	defer s.mu.Unlock()

	s.links = links
	s.showLinks()
	s.showAddresses()
}

// spec is what the node is to make of a link.
func (l link) spec(all []link) network.LinkSpecSpec {
	spec := network.LinkSpecSpec{
		Name: l.name, Up: true, Logical: l.kind != "", MTU: l.mtu, Kind: l.kind, ParentName: l.parent, VLAN: l.vlan,
		BondMaster: l.bond, ConfigLayer: network.ConfigMachineConfiguration,
	}

	if spec.Logical {
		spec.Type = nethelpers.LinkEther
	}

	switch master, i := masterOf(all, l.name); master.kind {
	case network.LinkKindBond:
		spec.BondSlave = network.BondSlave{MasterName: master.name, SlaveIndex: i}
	case network.LinkKindBridge:
		spec.BridgeSlave = network.BridgeSlave{MasterName: master.name}
	}

	return spec
}

// masterOf is the bond or the bridge that a link belongs to, and its place there.
func masterOf(all []link, member string) (master link, place int) {
	for _, l := range all {
		if i := slices.Index(l.members, member); i >= 0 {
			return l, i
		}
	}

	return link{}, 0
}

// showLinks shows the links that are there beside the recorded one; the caller holds s.mu.
func (s *Store) showLinks() {
	var all []resource.Resource

	for _, name := range s.identity.MoreLinks {
		all = s.addLink(all, name, network.LinkStatusSpec{
			HardwareAddr: s.hardwareAddr(name), PermanentAddr: s.hardwareAddr(name), Driver: "virtio_net", SpeedMegabits: 10000,
		})
	}

	for _, l := range s.links {
		if l.kind != "" {
			all = s.addLink(all, l.name, network.LinkStatusSpec{
				Kind: l.kind, VLAN: l.vlan, BondMaster: l.bond, HardwareAddr: s.hardwareAddr(s.below(l)),
				LinkIndex: s.linkIndex(l.parent),
			})
		}
	}

	s.besides(network.LinkStatusType, all...)

	s.amendShown(network.LinkStatusType, s.identity.Link, func(r resource.Resource) {
		if status, ok := r.(*network.LinkStatus); ok {
			s.fit(s.identity.Link, status.TypedSpec())
		}
	})
}

// addLink adds a link that works, or whose fault shows.
func (s *Store) addLink(to []resource.Resource, name string, spec network.LinkStatusSpec) []resource.Resource {
	// One that has the name of a recorded link is that link.
	if _, recorded := s.shown[pointer{network.LinkStatusType, name}]; recorded || s.faults.Links[name] == LinkMissing {
		return to
	}

	spec.Type, spec.Index = nethelpers.LinkEther, s.linkIndex(name)
	spec.OperationalState, spec.LinkState = nethelpers.OperStateUp, true
	s.fit(name, &spec)

	if s.faults.Links[name] == LinkDown {
		spec.OperationalState, spec.LinkState = nethelpers.OperStateDown, false
	}

	return append(to, withSpec(network.NewLinkStatus(network.NamespaceName, name), spec))
}

// fit sets what follows from the config for a link: its MTU, and what it belongs to.
func (s *Store) fit(name string, spec *network.LinkStatusSpec) {
	master, _ := masterOf(s.links, name)
	spec.MTU, spec.MasterIndex, spec.SlaveKind = s.mtu(name), s.linkIndex(master.name), master.kind
}

// usualMTU is that of a link whose config names none.
const usualMTU = 1500

// mtu of a link. Members of a bond have that of the bond, and a VLAN that of its parent, unless it has its own.
func (s *Store) mtu(name string) uint32 {
	master, _ := masterOf(s.links, name)
	l := s.linkOf(name)

	switch {
	case master.mtu > 0:
		return master.mtu
	case l.mtu > 0:
		return l.mtu
	case l.parent != "":
		return s.mtu(l.parent)
	}

	return usualMTU
}

// below is the hardware that a link sends through; the link itself if it needs none.
func (s *Store) below(l link) string {
	if l.parent != "" {
		return s.below(s.linkOf(l.parent))
	}

	if len(l.members) > 0 {
		return l.members[0]
	}

	return l.name
}

func (s *Store) linkOf(name string) link {
	if i := slices.IndexFunc(s.links, func(l link) bool { return l.name == name }); i >= 0 {
		return s.links[i]
	}

	return link{name: name}
}

// firstIndex is that of the first link beside lo and the recorded one.
const firstIndex = 3

// linkIndex is the number that the kernel has for a link; zero for none. It stays the same in a boot.
func (s *Store) linkIndex(name string) uint32 {
	switch name {
	case "":
		return 0
	case s.identity.Link:
		return firstIndex - 1
	}

	i := slices.Index(s.indexes, name)
	if i < 0 {
		i = len(s.indexes)
		s.indexes = append(s.indexes, name)
	}

	return uint32(firstIndex + i)
}

// hardwareAddr of a link: those of further hardware differ from that of the first in the first byte.
func (s *Store) hardwareAddr(name string) nethelpers.HardwareAddr {
	mac, err := net.ParseMAC(s.identity.HardwareAddr)
	must(err)

	if name != s.identity.Link {
		mac[0] += byte(4 * (slices.Index(s.identity.MoreLinks, name) + 1)) // locally administered ones stay so
	}

	return nethelpers.HardwareAddr(mac)
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
