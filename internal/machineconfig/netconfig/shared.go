package netconfig

import (
	"cmp"
	"net/netip"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

// MergeShared returns what the machines of a group have in common with what one of them has instead: each list replaces
// that of the group, and hosts replace those with the same address. They are sorted if the group has some: the order
// must not depend on who has what. group may be nil.
func MergeShared(group *v1alpha1.SharedNetwork, machine v1alpha1.SharedNetwork) v1alpha1.SharedNetwork {
	if group == nil {
		return machine
	}

	out := v1alpha1.SharedNetwork{
		Nameservers:                either(group.Nameservers, machine.Nameservers),
		SearchDomains:              either(group.SearchDomains, machine.SearchDomains),
		TimeServers:                either(group.TimeServers, machine.TimeServers),
		DisableDefaultSearchDomain: cmp.Or(machine.DisableDefaultSearchDomain, group.DisableDefaultSearchDomain),
		Hosts:                      machine.Hosts,
	}

	if len(group.Hosts) > 0 {
		out.Hosts = optional.MergeSorted(group.Hosts, machine.Hosts, addressOf)
	}

	return out
}

// addressOf returns the address of a host in one spelling.
func addressOf(h v1alpha1.StaticHost) string {
	if addr, err := netip.ParseAddr(h.Address); err == nil {
		return addr.String()
	}

	return h.Address // refused elsewhere
}

func either(group, machine []string) []string {
	if len(machine) > 0 {
		return machine
	}

	return group
}
