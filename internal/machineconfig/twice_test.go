package machineconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TestLinkDescribedTwice: a config that describes a link by a document and by machine.network is a warning with the path
// and the link. What Talos refuses itself in both forms stays refused, with the patch that made it so.
func TestLinkDescribedTwice(t *testing.T) {
	t.Parallel()

	const devices = "machine: {network: {interfaces: ["

	for patch, want := range map[string]string{
		devices + "{interface: eth1, mtu: 1400}, {interface: eth0, mtu: 1400}]}}": "machine.network.interfaces[1] describes eth0, which the document LinkConfig/eth0",
		devices + "{interface: bond0, dhcp: true}]}}":                             "machine.network.interfaces[0] describes bond0, which the document BondConfig/bond0",
		devices + "{interface: eth9, vlans: [{vlanId: 5, dhcp: true}]}]}}":        "machine.network.interfaces[0] describes eth9.5, which the document VLANConfig/eth9.5",
		devices + "{interface: eth8, dhcp: true}]}}":                              "machine.network.interfaces[0] describes eth8, which the document Layer2VIPConfig/10.0.0.9",
		devices + "{interface: eth7, dhcp: true}]}}":                              "machine.network.interfaces[0] describes eth7, which the document DHCPv4Config/eth7",
		devices + "{interface: eth4, dhcp: true}]}}":                              "machine.network.interfaces[0] describes eth4, which the document HCloudVIPConfig/10.0.0.8",
		"machine: {network: {hostname: a}}":                                       "static hostname is already set",
		"machine: {network: {nameservers: [10.0.0.2]}}":                           "machine.network.nameservers is already set",
		"machine: {time: {servers: [10.0.0.2]}}":                                  "time servers cannot be specified in both",
		devices + "{interface: eth1, mtu: 1400}]}}":                               "",
		devices + "{deviceSelector: {busPath: '0:1'}, mtu: 1400}]}}":              "",
	} {
		in := plainInput(t, machineconfig.ControlPlane)
		in.Machine = networkOf(t, "{hostname: b, nameservers: [10.0.0.1], timeServers: [10.0.0.1], interfaces: ["+
			"{name: eth0, dhcp: true}, {name: bond0, bond: {mode: active-backup, interfaces: [eth5, eth6]}}]}")
		in.Patches.Cluster = []string{
			"apiVersion: v1alpha1\nkind: VLANConfig\nname: eth9.5\nvlanID: 5\nparent: eth9\n",
			"apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: 10.0.0.9\nlink: eth8\n",
			"apiVersion: v1alpha1\nkind: HCloudVIPConfig\nname: 10.0.0.8\nlink: eth4\napiToken: a\n",
			"apiVersion: v1alpha1\nkind: DHCPv4Config\nname: eth7\n",
		}
		in.Patches.Machine = []string{patch}

		out, err := machineconfig.Render(in)

		var invalid *machineconfig.InvalidError

		switch isRefused := errors.As(err, &invalid); {
		case isRefused && want != "" && !strings.Contains(want, "describes"):
			if invalid.Patch != "machine[0]" || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want the patch machine[0] and %s", patch, err, want)
			}
		case err != nil:
			t.Errorf("%s: %v", patch, err)
		case want == "" && len(out.Warnings) > 0, !strings.Contains(strings.Join(out.Warnings, "\n"), want):
			t.Errorf("%s: the warnings are %q, want %q", patch, out.Warnings, want)
		}
	}
}
