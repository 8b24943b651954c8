package cosi

import (
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// SetVirtualIPs says which of the virtual IPs of its config the node has.
func (s *Store) SetVirtualIPs(held ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !slices.Equal(s.held, held) {
		s.held = slices.Clone(held)
		s.showAddresses()
	}
}

// addresses are those of the config, and the virtual ones that the node has.
func (s *Store) addresses() []network.AddressSpecSpec {
	var out []network.AddressSpecSpec

	add := func(link string, prefix netip.Prefix, layer network.ConfigLayer) {
		spec := network.AddressSpecSpec{
			Address: prefix, LinkName: link, Family: nethelpers.FamilyInet4, Scope: nethelpers.ScopeGlobal,
			Flags: nethelpers.AddressFlags(nethelpers.AddressPermanent), ConfigLayer: layer,
		}
		if prefix.Addr().Is6() {
			spec.Family = nethelpers.FamilyInet6
		}

		out = append(out, spec)
	}

	for _, l := range s.links {
		for _, prefix := range l.addresses {
			add(l.name, prefix, network.ConfigMachineConfiguration)
		}

		for _, vip := range l.vips {
			if slices.Contains(s.held, vip) {
				add(l.name, netip.PrefixFrom(vip, vip.BitLen()), network.ConfigOperator)
			}
		}
	}

	return out
}

// showAddresses shows the addresses of the config beside those that are recorded; the caller holds s.mu.
func (s *Store) showAddresses() {
	var specs, statuses, operators []resource.Resource

	all := s.addresses()

	// An address that the config puts on a link is no longer where DHCP has put it.
	if moved := slices.ContainsFunc(all, s.isOwn); moved != s.moved {
		s.moved = moved
		must(s.showRecorded())
	}

	for _, a := range all {
		id := network.AddressID(a.LinkName, a.Address)
		specs = append(specs, withSpec(network.NewAddressSpec(network.NamespaceName, id), a))
		statuses = append(statuses, withSpec(network.NewAddressStatus(network.NamespaceName, id), network.AddressStatusSpec{
			Address: a.Address, Local: a.Address.Addr(), LinkIndex: s.linkIndex(a.LinkName), LinkName: a.LinkName,
			Family: a.Family, Scope: a.Scope, Flags: a.Flags,
		}))
	}

	for _, l := range s.links {
		for _, vip := range l.vips {
			spec := network.OperatorSpecSpec{
				Operator: network.OperatorVIP, LinkName: l.name, RequireUp: true,
				VIP:         network.VIPOperatorSpec{IP: vip, GratuitousARP: true},
				ConfigLayer: network.ConfigMachineConfiguration,
			}
			operators = append(operators,
				withSpec(network.NewOperatorSpec(network.NamespaceName, network.OperatorID(spec)), spec))
		}
	}

	s.besides(network.AddressSpecType, specs...)
	s.besides(network.AddressStatusType, statuses...)
	s.besides(network.OperatorSpecType, operators...)
	s.showNodeAddresses(all)
}

// isOwn reports whether an address is the one that the node is reached at.
func (s *Store) isOwn(a network.AddressSpecSpec) bool {
	return a.Address.Addr() == s.identity.Address.Addr()
}

// replaced reports whether a recorded resource is of the node's own address, where the config has that elsewhere.
func (s *Store) replaced(r resource.Resource) bool {
	return s.moved && r.Metadata().Type() == network.AddressStatusType &&
		r.Metadata().ID() == network.AddressID(s.identity.Link, s.identity.Address)
}

// noKubernetes ends the names of lists that leave out the addresses of pods and services.
const noKubernetes = "-no-k8s"

// showNodeAddresses adds the addresses to those that a node has, on whichever link.
func (s *Store) showNodeAddresses(all []network.AddressSpecSpec) {
	for _, a := range all {
		if !slices.Contains(s.ever, a.Address) {
			s.ever = append(s.ever, a.Address)
		}
	}

	for _, id := range []resource.ID{
		network.NodeAddressCurrentID, network.NodeAddressRoutedID, network.NodeAddressAccumulativeID,
	} {
		for _, id := range []resource.ID{id, id + noKubernetes} {
			s.amendShown(network.NodeAddressType, id, func(r resource.Resource) {
				if node, ok := r.(*network.NodeAddress); ok {
					node.TypedSpec().Addresses = s.nodeAddresses(all, id)
				}
			})
		}
	}
}

// nodeAddresses are the addresses of a node, or all that it has had in this boot.
func (s *Store) nodeAddresses(all []network.AddressSpecSpec, id resource.ID) []netip.Prefix {
	out := []netip.Prefix{s.identity.Address}
	if slices.ContainsFunc(all, s.isOwn) {
		out = nil
	}

	if id == network.NodeAddressAccumulativeID || id == network.NodeAddressAccumulativeID+noKubernetes {
		return append(out, s.ever...)
	}

	for _, a := range all {
		if !a.Address.Addr().IsLinkLocalUnicast() && a.LinkName != "lo" {
			out = append(out, a.Address)
		}
	}

	return out
}
