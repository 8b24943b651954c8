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

// Neighbours returns the machines that have to reach a machine with a firewall, in an order that only the sources
// determine.
func Neighbours(s Sources) netconfig.Neighbours {
	out := netconfig.Neighbours{Machine: netconfig.Machine{Name: s.Machine.Name}}

	if !s.HasFirewall() {
		return out
	}

	known := map[string]int{}

	add := func(name string, controlPlane bool, n *v1alpha1.MachineNetwork, reached, reported []string) {
		at, ok := known[name]
		if !ok {
			at = len(out.Others)
			known[name] = at
			out.Others = append(out.Others, netconfig.Machine{Name: name, ControlPlane: controlPlane})
		}

		m := &out.Others[at]
		m.Reached = union(m.Reached, parsed(reached))

		own, vips := addressesOf(n)
		m.Addresses = union(m.Addresses, append(own, parsed(reported)...))
		out.VIPs = union(out.VIPs, vips)
	}

	for _, e := range s.ControlPlane.Spec.Machines {
		add(e.Name, true, e.Network, []string{e.Address}, nil)
	}

	if s.Worker != nil {
		for _, e := range s.Worker.Spec.Machines {
			add(e.Name, false, e.Network, []string{e.Address}, nil)
		}
	}

	for i := range s.Machines {
		m := &s.Machines[i]
		add(m.Name, m.Spec.Role == v1alpha1.RoleControlPlane, m.Spec.Network,
			[]string{m.Spec.Address, m.Status.Address}, m.Status.Addresses)
	}

	return out
}

func union(to, more []netip.Addr) []netip.Addr {
	for _, a := range more {
		if !slices.Contains(to, a) {
			to = append(to, a)
		}
	}

	return to
}

func parsed(texts []string) []netip.Addr {
	var out []netip.Addr

	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, addr.Unmap())
		}
	}

	return out
}

// addressesOf returns the addresses that a network gives to its machine, and the virtual ones.
func addressesOf(n *v1alpha1.MachineNetwork) (own, vips []netip.Addr) {
	if n == nil {
		return nil, nil
	}

	add := func(texts []string, vip *v1alpha1.VirtualIP) {
		for _, text := range texts {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				own = append(own, prefix.Addr())
			}
		}

		if vip != nil {
			vips = append(vips, parsed([]string{vip.Address})...)
		}
	}

	for _, i := range n.Interfaces {
		add(i.Addresses, i.VIP)

		for _, vlan := range i.VLANs {
			add(vlan.Addresses, vlan.VIP)
		}
	}

	return own, vips
}
