package machineconfig_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
	kyaml "sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// generations are a contract before documents about the network, and one with them.
var generations = map[string]string{"legacy": "v1.11.5", "documents": "v1.13.9"}

// versions returns each supported minor of Talos with its generation: all of one generation get the same.
func versions() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, c := range contracts {
			generation := "documents"
			if c.talos < "v1.12" {
				generation = "legacy"
			}

			if !yield(generation, c.talos) {
				return
			}
		}
	}
}

// networkOf reads a network as a user writes it, in the file of that name.
func networkOf(t *testing.T, text string) v1alpha1.MachineNetwork {
	t.Helper()

	var n v1alpha1.MachineNetwork
	if err := kyaml.UnmarshalStrict([]byte(text), &n); err != nil {
		t.Fatal(err)
	}

	return n
}

// networkPart returns what of a config is about the network of the machine.
func networkPart(t *testing.T, config []byte) []byte {
	t.Helper()

	var out bytes.Buffer

	for part := range strings.SplitSeq(string(config), "---\n") {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(part), &doc); err != nil {
			t.Fatal(err)
		}

		switch machine, main := doc["machine"].(map[string]any); {
		case main:
			legacy := map[string]any{}

			for _, key := range []string{"network", "time"} {
				// Talos 1.12 has an empty network beside the documents.
				if value, ok := machine[key].(map[string]any); ok && len(value) > 0 {
					legacy[key] = value
				}
			}

			raw, err := yaml.Marshal(map[string]any{"machine": legacy})
			if err != nil {
				t.Fatal(err)
			}

			out.Write(raw)
		default:
			out.WriteString("---\n" + part)
		}
	}

	return out.Bytes()
}

// testValue is a key of WireGuard, and whatever else a Secret may hold for a network.
const testValue = "OJ34O6J1z4ZZB+t16c+vYrzIrKddxyU3Z2eLhwYzqE8="

// valuesOf are values for all Secrets of a network.
func valuesOf(n v1alpha1.MachineNetwork) keyref.Values {
	out := keyref.Values{}
	for _, s := range netconfig.Secrets(&n) {
		out[s.Field] = testValue
	}

	return out
}

// TestNetwork: each network as both generations of Talos read it, accepted by the machinery's own validation. The first
// four are those of Talos' guide to advanced networking.
func TestNetwork(t *testing.T) {
	t.Parallel()

	samples, err := filepath.Glob("testdata/network/*.yaml")
	if err != nil || len(samples) < 10 {
		t.Fatalf("%d samples: %v", len(samples), err)
	}

	for _, sample := range samples {
		name := strings.TrimSuffix(filepath.Base(sample), ".yaml")

		text, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}

		for generation, version := range versions() {
			if strings.HasPrefix(name, "documents-") && generation == "legacy" ||
				strings.HasPrefix(name, "legacy-") && generation == "documents" ||
				name == "documents-routing" && version < "v1.13" {
				continue
			}

			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()

				in := plainInput(t, machineconfig.ControlPlane)
				in.TalosVersion, in.Machine = version, networkOf(t, string(text))
				in.Values = valuesOf(in.Machine)

				golden(t, "network-"+name+"-"+generation+".yaml", networkPart(t, render(t, in).Bytes))
			})
		}
	}
}

// TestNetworkRefusals: what cannot work, or what a generation of Talos cannot express, is refused with the path of the
// field and what would be right.
func TestNetworkRefusals(t *testing.T) {
	t.Parallel()

	const (
		reached = "interfaces: [{name: eth0, dhcp: true}, "
		private = "privateKeyFrom: {name: wg, key: k}, "
	)

	tunnel := func(content string) string { return "{name: wg0, wireguard: {" + content + "}}" }

	for name, tt := range map[string]struct {
		generation, network, field, problem string
	}{
		"two ways to select":     {"", "interfaces: [{name: eth0, macAddress: '00:1a:2b:3c:4d:5e'}]", "network.interfaces[0]", "exactly one"},
		"no way to select":       {"", "interfaces: [{dhcp: true}]", "network.interfaces[0]", "exactly one"},
		"empty selector":         {"", "interfaces: [{selector: {}}]", "network.interfaces[0].selector", "at least one"},
		"no MAC":                 {"", "interfaces: [{macAddress: '00:1a'}]", "network.interfaces[0].macAddress", "00:1a:2b:3c:4d:5e"},
		"same interface":         {"", reached + "{name: eth0}]", "network.interfaces[1]", "same interface as network.interfaces[0]"},
		"long name":              {"", "interfaces: [{name: a-name-of-16-byte}]", "network.interfaces[0].name", "15"},
		"slash":                  {"", "interfaces: [{name: ../eth0}]", "network.interfaces[0].name", "no name of an interface"},
		"no CIDR":                {"", "interfaces: [{name: eth0, addresses: [10.0.0.1]}]", "network.interfaces[0].addresses[0]", "10.0.0.11/24"},
		"unspecified":            {"", "interfaces: [{name: eth0, addresses: [0.0.0.0/0]}]", "network.interfaces[0].addresses[0]", "not an address"},
		"address twice":          {"", reached + "{name: a, addresses: [10.0.0.1/24]}, {name: b, addresses: [10.0.0.1/16]}]", "network.interfaces[2].addresses[0]", "network.interfaces[1].addresses[0]"},
		"MTU":                    {"", "interfaces: [{name: eth0, mtu: 67}]", "network.interfaces[0].mtu", "68"},
		"empty route":            {"", reached + "{name: a, routes: [{metric: 1}]}]", "network.interfaces[1].routes[0]", "a gateway"},
		"host bits":              {"", reached + "{name: a, routes: [{network: 10.1.2.3/8}]}]", "network.interfaces[1].routes[0].network", "10.0.0.0/8"},
		"families":               {"", reached + "{name: a, dhcp: true, routes: [{network: 'fd00::/8', gateway: 10.0.0.1}]}]", "network.interfaces[1].routes[0].gateway", "family"},
		"source":                 {"", reached + "{name: a, dhcp: true, routes: [{network: 10.0.0.0/8, source: 'fd00::1'}]}]", "network.interfaces[1].routes[0].source", "family"},
		"gateway out of reach":   {"", "interfaces: [{name: eth0, addresses: [10.0.0.1/24], routes: [{gateway: 10.0.1.1}]}]", "network.interfaces[0].routes[0].gateway", "no network of the interface"},
		"gateway":                {"", "interfaces: [{name: eth0, routes: [{gateway: here}]}]", "network.interfaces[0].routes[0].gateway", "not an IP address"},
		"no family":              {"", "interfaces: [{name: eth0, dhcp: true, dhcpOptions: {ipv4: false}}]", "network.interfaces[0].dhcpOptions", "remove dhcp"},
		"DUID of nothing":        {"", "interfaces: [{name: eth0, dhcp: true, dhcpOptions: {duid: '00:01'}}]", "network.interfaces[0].dhcpOptions.duid", "clientIdentifier: duid"},
		"no DUID":                {"", "interfaces: [{name: eth0, dhcp: true, dhcpOptions: {clientIdentifier: duid}}]", "network.interfaces[0].dhcpOptions.duid", "clientIdentifier: duid"},
		"VLAN twice":             {"", reached + "{name: a, vlans: [{id: 5}, {id: 5}]}]", "network.interfaces[1].vlans[1].id", "Duplicate"},
		"VLAN of 4095":           {"", reached + "{name: a, vlans: [{id: 4095}]}]", "network.interfaces[1].vlans[0].id", "4094"},
		"VLAN larger than its":   {"", reached + "{name: a, mtu: 1500, vlans: [{id: 5, mtu: 9000}]}]", "network.interfaces[1].vlans[0].mtu", "1500"},
		"own virtual IP":         {"", "interfaces: [{name: eth0, addresses: [10.0.0.1/24], vip: {address: 10.0.0.1}}]", "network.interfaces[0].vip.address", "own address"},
		"nameserver":             {"", "nameservers: [dns.example.org]", "network.nameservers[0]", "not an IP address"},
		"host":                   {"", "hosts: [{address: example, hostnames: [a]}]", "network.hosts[0].address", "not an IP address"},
		"host twice":             {"", "hosts: [{address: \"fd00::9\", hostnames: [a]}, {address: \"fd00:0::9\", hostnames: [b]}]", "network.hosts[1].address", "Duplicate"},
		"bond of nothing":        {"", reached + "{name: b, bond: {mode: broadcast}}]", "network.interfaces[1].bond", "set interfaces or selectors"},
		"member twice":           {"", reached + "{name: b, bond: {mode: broadcast, interfaces: [a, a]}}]", "network.interfaces[1].bond.interfaces[1]", "too"},
		"member with address":    {"", reached + "{name: a, addresses: [10.0.0.1/24]}, {name: b, bond: {mode: broadcast, interfaces: [a]}}]", "network.interfaces[1]", "is a member of"},
		"bridge of itself":       {"", reached + "{name: b, bridge: {interfaces: [b]}}]", "network.interfaces[1].bridge.interfaces[0]", "itself"},
		"delay without miimon":   {"", reached + "{name: b, bond: {mode: broadcast, interfaces: [a], upDelay: 5}}]", "network.interfaces[1].bond.upDelay", "needs miimon"},
		"delay":                  {"", reached + "{name: b, bond: {mode: broadcast, interfaces: [a], miimon: 100, downDelay: 150}}]", "network.interfaces[1].bond.downDelay", "multiple"},
		"two monitors":           {"", reached + "{name: b, bond: {mode: broadcast, interfaces: [a], miimon: 100, arpInterval: 100}}]", "network.interfaces[1].bond.arpInterval", "miimon"},
		"option of another mode": {"", reached + "{name: b, bond: {mode: broadcast, interfaces: [a], lacpRate: fast}}]", "network.interfaces[1].bond.lacpRate", "mode broadcast"},
		"foreign primary":        {"legacy", reached + "{name: b, bond: {mode: active-backup, interfaces: [a], primary: c}}]", "network.interfaces[1].bond.primary", "not one of its"},
		"alike selectors":        {"", reached + "{name: b, bond: {mode: broadcast, selectors: [{driver: x}, {driver: x}]}}]", "network.interfaces[1].bond.selectors[1]", "another interface"},
		"target":                 {"documents", reached + "{name: b, bond: {mode: broadcast, interfaces: [a], arpIPTargets: ['fd00::1']}}]", "network.interfaces[1].bond.arpIPTargets[0]", "IPv4"},
		"target of IPv6":         {"documents", reached + "{name: b, bond: {mode: broadcast, interfaces: [a], nsIP6Targets: [10.0.0.1]}}]", "network.interfaces[1].bond.nsIP6Targets[0]", "IPv6"},

		"tunnel without key":   {"", reached + tunnel("privateKeyFrom: {name: wg}") + "]", "network.interfaces[1].wireguard.privateKeyFrom", "a key in it"},
		"tunnel with DHCP":     {"", "interfaces: [{name: wg0, dhcp: true, wireguard: {privateKeyFrom: {name: wg, key: k}}}]", "network.interfaces[0].wireguard", "remove dhcp"},
		"no public key":        {"", reached + tunnel(private+"peers: [{publicKey: abc}]") + "]", "network.interfaces[1].wireguard.peers[0].publicKey", "wg pubkey"},
		"peer twice":           {"", reached + tunnel(private+"peers: [{publicKey: "+testValue+"}, {publicKey: "+testValue+"}]") + "]", "network.interfaces[1].wireguard.peers[1].publicKey", "Duplicate"},
		"name of a peer":       {"", reached + tunnel(private+"peers: [{publicKey: "+testValue+", endpoint: 'vpn.example.org:51820'}]") + "]", "network.interfaces[1].wireguard.peers[0].endpoint", "resolves no names"},
		"rare keepalive":       {"", reached + tunnel(private+"peers: [{publicKey: "+testValue+", persistentKeepaliveInterval: 19h}]") + "]", "network.interfaces[1].wireguard.peers[0].persistentKeepaliveInterval", "65535"},
		"host bits of a peer":  {"", reached + tunnel(private+"peers: [{publicKey: "+testValue+", allowedIPs: [10.1.2.3/8]}]") + "]", "network.interfaces[1].wireguard.peers[0].allowedIPs[0]", "10.0.0.0/8"},
		"network of two peers": {"", reached + tunnel(private+"peers: [{publicKey: "+testValue+", allowedIPs: [10.0.0.0/8, 10.0.0.0/8]}]") + "]", "network.interfaces[1].wireguard.peers[0].allowedIPs[1]", "peers[0].allowedIPs[0]"},
		"unread key":           {"", reached + tunnel("privateKeyFrom: {name: unread, key: k}") + "]", "network.interfaces[1].wireguard.privateKeyFrom", "was not read"},

		"reserved priority":    {"documents", "routingRules: [{priority: 32500, table: 100}]", "network.routingRules[0].priority", "KubeSpan"},
		"priority of KubeSpan": {"documents", "routingRules: [{priority: 32501, table: 100}]", "network.routingRules[0].priority", "KubeSpan"},
		"high priority":        {"documents", "routingRules: [{priority: 32766, table: 100}]", "network.routingRules[0].priority", "32765"},
		"priority twice":       {"documents", "routingRules: [{priority: 1, table: 100}, {priority: 1, table: 101}]", "network.routingRules[1].priority", "Duplicate"},
		"no table":             {"documents", "routingRules: [{priority: 1, source: 10.0.0.0/8}]", "network.routingRules[0].table", "needs a table"},
		"table of nothing":     {"documents", "routingRules: [{priority: 1, source: 10.0.0.0/8, table: 5, action: prohibit}]", "network.routingRules[0].table", "have none"},
		"families of a rule":   {"documents", "routingRules: [{priority: 1, source: 10.0.0.0/8, destination: 'fd00::/8', table: 5}]", "network.routingRules[0].destination", "family"},
		"host bits of a rule":  {"documents", "routingRules: [{priority: 1, source: 10.0.0.1/8, table: 5}]", "network.routingRules[0].source", "10.0.0.0/8"},
		"mask without mark":    {"documents", "routingRules: [{priority: 1, firewallMask: 5, table: 5}]", "network.routingRules[0].firewallMark", "needs it"},
		"drop everything":      {"documents", "routingRules: [{priority: 1, action: blackhole}]", "network.routingRules[0]", "drops all packets"},
		"everything black":     {"documents", "blackholeRoutes: [{network: 0.0.0.0/0}]", "network.blackholeRoutes[0].network", "would drop everything"},
		"black twice":          {"documents", "blackholeRoutes: [{network: 10.0.0.0/8}, {network: 10.0.0.0/8}]", "network.blackholeRoutes[1].network", "Duplicate"},
		"black bits":           {"documents", "blackholeRoutes: [{network: 10.0.0.1/8}]", "network.blackholeRoutes[0].network", "10.0.0.0/8"},
		"old rules":            {"legacy", "routingRules: [{priority: 1, table: 100}]", "network.routingRules[0]", "1.12"},
		"old black holes":      {"legacy", "blackholeRoutes: [{network: 10.0.0.0/8}]", "network.blackholeRoutes[0]", "1.12"},
		"old table":            {"legacy", "interfaces: [{name: a, dhcp: true, routes: [{network: 10.0.0.0/8, table: 5}]}]", "network.interfaces[0].routes[0].table", "1.12"},
		"Equinix Metal":        {"documents", "interfaces: [{name: a, dhcp: true, vip: {address: 10.0.0.9, equinixMetal: {apiTokenFrom: {name: a, key: b}}}}]", "network.interfaces[0].vip.equinixMetal", "no document"},
		"two clouds":           {"", "interfaces: [{name: a, dhcp: true, vip: {address: 10.0.0.9, hcloud: {apiTokenFrom: {name: a, key: b}}, equinixMetal: {apiTokenFrom: {name: a, key: b}}}}]", "network.interfaces[0].vip", "not by both"},
		"unread token":         {"", "interfaces: [{name: a, dhcp: true, vip: {address: 10.0.0.9, hcloud: {apiTokenFrom: {name: unread, key: b}}}}]", "network.interfaces[0].vip.hcloud.apiTokenFrom", "was not read"},

		"only a tunnel":         {"documents", "interfaces: [{name: wg0, addresses: [10.0.0.1/24], wireguard: {privateKeyFrom: {name: wg, key: k}}}]", "network.interfaces", "would not be reachable"},
		"preshared key":         {"legacy", reached + tunnel(private+"peers: [{publicKey: "+testValue+", presharedKeyFrom: {name: wg, key: k}}]") + "]", "network.interfaces[1].wireguard.peers[0].presharedKeyFrom", "1.12"},
		"not reachable":         {"documents", "interfaces: [{name: lo, addresses: [10.0.0.1/32]}]", "network.interfaces", "would not be reachable"},
		"everything is ignored": {"documents", "interfaces: [{name: eth1, ignore: true}]", "network.interfaces", "would not be reachable"},
		"primary":               {"documents", reached + "{name: b, bond: {mode: active-backup, interfaces: [a], primary: a}}]", "network.interfaces[1].bond.primary", "1.12"},
		"DUID":                  {"documents", "interfaces: [{name: eth0, dhcp: true, dhcpOptions: {clientIdentifier: duid, duid: zz}}]", "network.interfaces[0].dhcpOptions.duid", "hexadecimal"},
		"mode":                  {"documents", reached + "{name: b, bond: {mode: fast, interfaces: [a]}}]", "network.interfaces[1].bond.mode", "unknown"},
		"ignored host name":     {"legacy", "interfaces: [{name: eth0, dhcp: true, dhcpOptions: {ignoreHostname: true}}]", "network.interfaces[0].dhcpOptions.ignoreHostname", "1.12"},
		"client identifier":     {"legacy", "interfaces: [{name: eth0, dhcp: true, dhcpOptions: {clientIdentifier: none}}]", "network.interfaces[0].dhcpOptions.clientIdentifier", "1.12"},
		"old priority":          {"legacy", "interfaces: [{name: a, addresses: [10.0.0.1/24], addressRoutePriority: 5}]", "network.interfaces[0].addressRoutePriority", "1.12"},
		"old priority of VLAN":  {"legacy", "interfaces: [{name: a, vlans: [{id: 5, addresses: [10.0.0.1/24], addressRoutePriority: 5}]}]", "network.interfaces[0].vlans[0].addressRoutePriority", "1.12"},
		"old hardware address":  {"legacy", "interfaces: [{name: a, dummy: true, hardwareAddress: '02:1a:2b:3c:4d:5e'}]", "network.interfaces[0].hardwareAddress", "1.12"},
		"priority of nothing":   {"", "interfaces: [{name: a, dhcp: true, addressRoutePriority: 5}]", "network.interfaces[0].addressRoutePriority", "needs addresses"},
		"address of a link":     {"", "interfaces: [{name: a, dhcp: true, hardwareAddress: '02:1a:2b:3c:4d:5e'}]", "network.interfaces[0].hardwareAddress", "is for bonds"},
		"short address":         {"", "interfaces: [{name: a, dummy: true, hardwareAddress: '02:1a:2b:3c:4d'}]", "network.interfaces[0].hardwareAddress", "is no hardware address"},
		"multicast address":     {"", "interfaces: [{name: a, dummy: true, hardwareAddress: '03:1a:2b:3c:4d:5e'}]", "network.interfaces[0].hardwareAddress", "multicast"},
		"no address":            {"", "interfaces: [{name: a, dummy: true, hardwareAddress: '00:00:00:00:00:00'}]", "network.interfaces[0].hardwareAddress", "can have"},
		"802.1ad":               {"legacy", "interfaces: [{name: eth0, vlans: [{id: 5, protocol: 802.1ad}]}]", "network.interfaces[0].vlans[0].protocol", "1.12"},
		"ARP targets":           {"legacy", "interfaces: [{name: b, bond: {mode: broadcast, interfaces: [a], arpInterval: 5, arpIPTargets: [10.0.0.1]}}]", "network.interfaces[0].bond.arpIPTargets", "1.12"},
		"NS targets":            {"legacy", "interfaces: [{name: b, bond: {mode: broadcast, interfaces: [a], nsIP6Targets: ['fd00::1']}}]", "network.interfaces[0].bond.nsIP6Targets", "1.12"},
		"LACP active":           {"legacy", "interfaces: [{name: b, bond: {mode: 802.3ad, interfaces: [a], adLACPActive: 'on'}}]", "network.interfaces[0].bond.adLACPActive", "1.12"},
		"missed":                {"legacy", "interfaces: [{name: b, bond: {mode: broadcast, interfaces: [a], missedMax: 2}}]", "network.interfaces[0].bond.missedMax", "1.12"},
	} {
		for generation, version := range versions() {
			if tt.generation != "" && tt.generation != generation {
				continue
			}

			in := plainInput(t, machineconfig.ControlPlane)
			in.TalosVersion, in.Machine = version, networkOf(t, tt.network)

			if in.Values = valuesOf(in.Machine); strings.Contains(tt.network, "unread") {
				in.Values = nil
			}

			refused(t, name+" ("+generation+")", in, tt.field, tt.problem)
		}
	}

	for field, text := range map[string]string{
		"network.routingRules[0]":    "routingRules: [{priority: 1, table: 100}]",
		"network.blackholeRoutes[0]": "blackholeRoutes: [{network: 10.0.0.0/8}]",
	} {
		in := plainInput(t, machineconfig.ControlPlane)
		in.TalosVersion, in.KubernetesVersion, in.Machine = "v1.12.4", "v1.35.1", networkOf(t, text)
		refused(t, field, in, field, "needs Talos 1.13")
	}

	in := plainInput(t, machineconfig.Worker)
	in.Machine = networkOf(t, "interfaces: [{name: eth0, dhcp: true, vip: {address: 10.0.0.9}}]")
	refused(t, "virtual IP of a worker", in, "network.interfaces[0].vip", "a worker cannot")
}

func refused(t *testing.T, name string, in machineconfig.Input, field, problem string) {
	t.Helper()

	_, err := machineconfig.Render(in)

	var input *machineconfig.InputError
	if !errors.As(err, &input) {
		t.Errorf("%s: got %v, want an InputError", name, err)

		return
	}

	if input.Field != field || !strings.Contains(input.Problem, problem) {
		t.Errorf("%s: got %s, want %s: … %s …", name, err, field, problem)
	}
}

// TestNetworkIsReadBack: what is rendered for each version of Talos passes its own validation, and is what is rendered
// again once it was read.
func TestNetworkIsReadBack(t *testing.T) {
	t.Parallel()

	samples, err := filepath.Glob("testdata/network/*.yaml")
	if err != nil || len(samples) < 10 {
		t.Fatalf("%d samples: %v", len(samples), err)
	}

	for _, sample := range samples {
		text, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}

		for i, versions := range contracts {
			name := filepath.Base(sample)
			if strings.HasPrefix(name, "documents-") && i < 2 || strings.HasPrefix(name, "legacy-") && i > 1 ||
				strings.HasSuffix(name, "-routing.yaml") && i < 3 {
				continue
			}

			in := plainInput(t, machineconfig.ControlPlane)
			in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
			in.Machine = networkOf(t, string(text))
			in.Values = valuesOf(in.Machine)

			rendered := render(t, in).Bytes
			judge(t, rendered)

			cfg, err := configloader.NewFromBytes(rendered)
			if err != nil {
				t.Fatal(err)
			}

			again, err := cfg.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
			if err != nil {
				t.Fatal(err)
			}

			diff, err := machineconfig.Diff(rendered, again)
			if err != nil || !diff.Equal() {
				t.Errorf("%s for %s is read back with other %v: %v", sample, versions.talos, diff.Paths(), err)
			}
		}
	}
}

// TestNetworkSecretsAreHidden: the values of a network that Secrets hold are in no difference, error or warning, and
// their fields are listed, so that they stay hidden once nothing names the Secret any more.
func TestNetworkSecretsAreHidden(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("testdata/network/documents-wireguard.yaml")
	if err != nil {
		t.Fatal(err)
	}

	plain, err := os.ReadFile("testdata/network/wireguard.yaml")
	if err != nil {
		t.Fatal(err)
	}

	for name, tt := range map[string]struct {
		version, network string
		hidden           []string
	}{
		"documents": {"v1.13.9", string(text), []string{"WireguardConfig/wg0: peers", "WireguardConfig/wg0: privateKey"}},
		"legacy":    {"v1.11.5", string(plain), []string{"machine.network.interfaces"}},
	} {
		in := plainInput(t, machineconfig.ControlPlane)
		in.TalosVersion = tt.version
		before := render(t, in)

		in.Machine = networkOf(t, tt.network)
		in.Values = valuesOf(in.Machine)
		after := render(t, in)

		if diff := cmp.Diff(tt.hidden, after.Hidden); diff != "" || !strings.Contains(string(after.Bytes), testValue) {
			t.Errorf("%s: hidden (-want +got):\n%s", name, diff)
		}

		for _, pair := range [][2][]byte{{before.Bytes, after.Bytes}, {after.Bytes, before.Bytes}} {
			d, err := machineconfig.Diff(pair[0], pair[1])
			if err != nil || d.Equal() {
				t.Fatalf("%s: %v", name, err)
			}

			d.Hide(after.Hidden)

			if shown := fmt.Sprintf("%+v", d); strings.Contains(shown, testValue) {
				t.Errorf("%s: %s", name, shown)
			}
		}

		in.Patches.Machine = []string{"machine: {sysctls: {a: [" + testValue + "]}}"}

		if _, err := machineconfig.Render(in); err == nil || strings.Contains(err.Error(), testValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
