package machineconfig_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TestPatchedNetwork: a patch about something else does not turn the checks of a network off, and one that adds what is
// missing passes.
func TestPatchedNetwork(t *testing.T) {
	t.Parallel()

	const (
		sysctl  = "machine: {sysctls: {vm.swappiness: '1'}}"
		link    = "apiVersion: v1alpha1\nkind: LinkConfig\nname: "
		ignored = "interfaces: [{name: eth1, ignore: true}]"
		routed  = "interfaces: [{name: eth0, addresses: [10.0.0.5/24], routes: [{gateway: 10.9.0.1}]}]"
		vlan    = "interfaces: [{name: eth0, dhcp: true, vlans: [{id: 5, addresses: [10.0.0.5/24], routes: [{gateway: 10.9.0.1}]}]}]"
	)

	reached, unreachable := "network.interfaces[0].routes[0].gateway", "network.interfaces"

	for name, tt := range map[string]struct {
		generation, network, patch string
		field, problem             string
	}{
		"ignored, and something else":    {"documents", ignored, sysctl, unreachable, "would not be reachable"},
		"ignored, and only a loopback":   {"documents", ignored, link + "lo\naddresses: [{address: 10.0.0.1/32}]", unreachable, "would not be reachable"},
		"ignored, and only a dummy":      {"documents", ignored, "apiVersion: v1alpha1\nkind: DummyLinkConfig\nname: d\naddresses: [{address: 10.0.0.1/32}]", unreachable, "would not be reachable"},
		"ignored, and an MTU":            {"documents", ignored, link + "eth0\nmtu: 9000", unreachable, "would not be reachable"},
		"ignored, and an address":        {"documents", ignored, link + "eth0\naddresses: [{address: 10.0.0.1/24}]", "", ""},
		"ignored, and DHCP":              {"documents", ignored, "apiVersion: v1alpha1\nkind: DHCPv4Config\nname: eth0", "", ""},
		"ignored, and DHCP for IPv6":     {"documents", ignored, "apiVersion: v1alpha1\nkind: DHCPv6Config\nname: eth0", "", ""},
		"ignored, and an older address":  {"documents", ignored, "machine: {network: {interfaces: [{interface: eth0, addresses: [10.0.0.1/24]}]}}", "", ""},
		"ignored, and older DHCP":        {"documents", ignored, "machine: {network: {interfaces: [{interface: eth0, vlans: [{vlanId: 5, dhcp: true}]}]}}", "", ""},
		"ignored, and an older loopback": {"documents", ignored, "machine: {network: {interfaces: [{interface: lo, addresses: [10.0.0.1/32]}]}}", unreachable, "would not be reachable"},
		"ignored, and something older":   {"documents", ignored, "machine: {network: {interfaces: [{interface: eth0, ignore: true, dhcp: true}]}}", unreachable, "would not be reachable"},
		"ignored, and a kind of later":   {"documents", ignored, "apiVersion: v1alpha1\nkind: MagicLinkConfig\nname: m0", "", ""},
		"DHCP on a dummy":                {"documents", "interfaces: [{name: d, dummy: true, dhcp: true}]", sysctl, unreachable, "would not be reachable"},
		"DHCP for IPv6 on a dummy":       {"documents", "interfaces: [{name: d, dummy: true, dhcp: true, dhcpOptions: {ipv4: false, ipv6: true}}]", sysctl, unreachable, "would not be reachable"},
		"an empty route":                 {"", routed, "machine: {network: {interfaces: [{interface: eth1, vlans: [{vlanId: 5, dhcp: true, routes: [null]}]}]}}", unreachable, "empty entry"},
		"a gateway of another interface": {
			"", "interfaces: [{name: eth0, addresses: [10.0.0.5/24], routes: [{gateway: 10.9.0.1}]}, {name: eth1, addresses: [10.9.0.5/24]}]",
			sysctl, reached, "is in no network",
		},
		"its only address is taken":       {"documents", "interfaces: [{name: eth0, addresses: [10.0.0.5/24]}]", link + "eth0\n$patch: delete", unreachable, "would not be reachable"},
		"before 1.12, and something else": {"legacy", ignored, sysctl, "", ""},

		"a gateway, and something else":  {"", routed, sysctl, reached, "is in no network"},
		"of a VLAN, and something else":  {"", vlan, sysctl, "network.interfaces[0].vlans[0].routes[0].gateway", "is in no network"},
		"a gateway, and another network": {"documents", routed, link + "eth0\naddresses: [{address: 10.8.0.5/24}]", reached, "is in no network"},
		"a gateway, and its network":     {"documents", routed, link + "eth0\naddresses: [{address: 10.9.0.5/24}]", "", ""},
		"a gateway, and a route to it":   {"documents", routed, link + "eth0\nroutes: [{destination: 10.9.0.1/32}]", "", ""},
		"a gateway, and a way around it": {"documents", routed, link + "eth0\nroutes: [{destination: 10.9.0.0/24, gateway: 10.0.0.1}]", reached, "is in no network"},
		"a gateway, and DHCP":            {"documents", routed, "apiVersion: v1alpha1\nkind: DHCPv4Config\nname: eth0", "", ""},
		"a gateway, and DHCP for IPv6":   {"documents", routed, "apiVersion: v1alpha1\nkind: DHCPv6Config\nname: eth0", reached, "is in no network"},
		"of a VLAN, and DHCP that it has": {
			"documents", vlan, "apiVersion: v1alpha1\nkind: DHCPv4Config\nname: eth0\nrouteMetric: 5",
			"network.interfaces[0].vlans[0].routes[0].gateway", "is in no network",
		},
		"a gateway, and its older network": {"legacy", routed, "machine: {network: {interfaces: [{interface: eth0, addresses: [10.9.0.5/24]}]}}", "", ""},
		"a gateway, and an older route": {
			"legacy", routed,
			"machine: {network: {interfaces: [{interface: eth0, routes: [{network: 10.9.0.0/24}]}]}}", "", "",
		},
		"a gateway, and older DHCP": {"legacy", routed, "machine: {network: {interfaces: [{interface: eth1, dhcp: true}]}}", "", ""},
	} {
		for generation, version := range versions() {
			if tt.generation != "" && tt.generation != generation {
				continue
			}

			in := plainInput(t, machineconfig.ControlPlane)
			in.TalosVersion, in.Machine, in.Patches.Machine = version, networkOf(t, tt.network), []string{tt.patch}

			if tt.field != "" {
				refused(t, name+" ("+generation+")", in, tt.field, tt.problem)
			} else if _, err := machineconfig.Render(in); err != nil {
				t.Errorf("%s (%s): %v", name, generation, err)
			}
		}
	}
}

// TestLiveNetwork: what the live config of a machine has already is not refused, because the machine responds with it:
// its address comes from the platform. To refuse it would keep other changes from the machine.
func TestLiveNetwork(t *testing.T) {
	t.Parallel()

	const sysctl = "machine: {sysctls: {vm.swappiness: '%s'}}"

	link := func(extra string) []byte {
		return []byte("apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n" + extra)
	}
	legacy := []byte("machine: {network: {interfaces: [{interface: eth0, routes: [{network: 0.0.0.0/0, gateway: 10.9.0.1}]}]}}")

	for name, tt := range map[string]struct {
		network string
		live    []byte
		field   string
	}{
		"the same":              {"interfaces: [{name: eth0, mtu: 1400}]", link("mtu: 9000\n"), ""},
		"no link before":        {"interfaces: [{name: eth0, mtu: 1400}]", []byte("machine: {}\n"), "network.interfaces"},
		"an address before":     {"interfaces: [{name: eth0, mtu: 1400}]", link("addresses: [{address: 10.0.0.1/24}]\n"), "network.interfaces"},
		"not a config":          {"interfaces: [{name: eth0, mtu: 1400}]", []byte("{"), "network.interfaces"},
		"the gateway":           {"interfaces: [{name: eth0, addresses: [10.0.0.5/24], routes: [{gateway: 10.9.0.1}]}]", link("routes: [{gateway: 10.9.0.1}]\n"), ""},
		"the gateway of before": {"interfaces: [{name: eth0, addresses: [10.0.0.5/24], routes: [{gateway: 10.9.0.1}]}]", legacy, ""},
		"another gateway": {
			"interfaces: [{name: eth0, addresses: [10.0.0.5/24], routes: [{gateway: 10.9.0.2}]}]", link("routes: [{gateway: 10.9.0.1}]\n"),
			"network.interfaces[0].routes[0].gateway",
		},
	} {
		in := plainInput(t, machineconfig.ControlPlane)
		in.Machine, in.Live, in.Patches.Machine = networkOf(t, tt.network), tt.live, []string{sysctl}

		if tt.field != "" {
			refused(t, name, in, tt.field, "")
		} else if _, err := machineconfig.Render(in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
