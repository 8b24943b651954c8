package netconfig

import (
	"cmp"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

// MergeShared returns what the machines of a group have in common with what one of them has instead: each list replaces
// that of the group, and hosts replace those with the same address. Hosts are sorted by address if both have some.
// group may be nil.
func MergeShared(group *v1alpha1.SharedNetwork, machine v1alpha1.SharedNetwork) v1alpha1.SharedNetwork {
	if group == nil {
		return machine
	}

	return v1alpha1.SharedNetwork{
		Nameservers:                either(group.Nameservers, machine.Nameservers),
		SearchDomains:              either(group.SearchDomains, machine.SearchDomains),
		TimeServers:                either(group.TimeServers, machine.TimeServers),
		DisableDefaultSearchDomain: cmp.Or(machine.DisableDefaultSearchDomain, group.DisableDefaultSearchDomain),
		Hosts: optional.MergeSorted(group.Hosts, machine.Hosts,
			func(h v1alpha1.StaticHost) string { return h.Address }),
	}
}

func either(group, machine []string) []string {
	if len(machine) > 0 {
		return machine
	}

	return group
}
