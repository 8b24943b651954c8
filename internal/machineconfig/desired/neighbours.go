package desired

import (
	"net/netip"
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// HasFirewall tells whether the firewall of a machine has to be compared with the addresses of the others.
func (s Sources) HasFirewall() bool {
	return s.Machine.Spec.IngressFirewall != nil || s.group().IngressFirewall != nil
}

// neighbours returns the machines that have to reach a machine with a firewall.
func neighbours(s Sources) netconfig.Neighbours {
	out := netconfig.Neighbours{Machine: netconfig.Machine{Name: s.Machine.Name}}

	if !s.HasFirewall() {
		return out
	}

	known := map[string]int{}

	add := func(name string, controlPlane bool, addresses ...netip.Addr) {
		at, ok := known[name]
		if !ok {
			at = len(out.Others)
			known[name] = at
			out.Others = append(out.Others, netconfig.Machine{Name: name, ControlPlane: controlPlane})
		}

		for _, a := range addresses {
			if !slices.Contains(out.Others[at].Addresses, a) {
				out.Others[at].Addresses = append(out.Others[at].Addresses, a)
			}
		}
	}

	for _, e := range s.ControlPlane.Spec.Machines {
		add(e.Name, true, addressesOf(e.Network, e.Address)...)
	}

	if s.Worker != nil {
		for _, e := range s.Worker.Spec.Machines {
			add(e.Name, false, addressesOf(e.Network, e.Address)...)
		}
	}

	for i := range s.Machines {
		m := &s.Machines[i]
		reached := append([]string{m.Spec.Address, m.Status.Address}, m.Status.Addresses...)
		add(m.Name, m.Spec.Role == v1alpha1.RoleControlPlane, addressesOf(m.Spec.Network, reached...)...)
	}

	return out
}

// addressesOf returns the addresses of a machine: where the operator reaches it, and those of its network.
func addressesOf(n *v1alpha1.MachineNetwork, reached ...string) []netip.Addr {
	var out []netip.Addr

	for _, text := range reached {
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, addr.Unmap())
		}
	}

	if n == nil {
		return out
	}

	add := func(texts []string) {
		for _, text := range texts {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				out = append(out, prefix.Addr())
			}
		}
	}

	for _, i := range n.Interfaces {
		add(i.Addresses)

		for _, vlan := range i.VLANs {
			add(vlan.Addresses)
		}
	}

	return out
}
