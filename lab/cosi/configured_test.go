package cosi_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/cosi"
)

// Two ways to write the same network: the documents of Talos 1.12, and the main document before.
const (
	bondDocuments = `apiVersion: v1alpha1
kind: BondConfig
name: bond0
mtu: 9000
links: [eth0, eth1]
bondMode: 802.3ad
---
apiVersion: v1alpha1
kind: VLANConfig
name: bond0.100
vlanID: 100
parent: bond0
mtu: 1500
addresses: [{address: 127.10.0.1/24}]
---
apiVersion: v1alpha1
kind: VLANConfig
name: bond0.200
vlanID: 200
parent: bond0
addresses: [{address: 172.20.151.1/24}]
---
apiVersion: v1alpha1
kind: Layer2VIPConfig
name: 127.10.0.200
link: bond0.100
`
	bondLegacy = `machine:
  network:
    interfaces:
      - interface: bond0
        mtu: 9000
        bond: {mode: 802.3ad, interfaces: [eth0, eth1]}
        vlans:
          - {vlanId: 100, mtu: 1500, addresses: [127.10.0.1/24], vip: {ip: 127.10.0.200}}
          - {vlanId: 200, addresses: [172.20.151.1/24]}
`
)

// TestConfiguredLinks: a bond, its members, its VLANs and all addresses are what the config says, in both generations,
// and the node has what it had before once the config no longer says so.
func TestConfiguredLinks(t *testing.T) {
	t.Parallel()

	for name, config := range map[string]string{"documents": bondDocuments, "main document": bondLegacy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s, err := cosi.NewStore(cosi.Identity{
				Hostname: "n1", Address: netip.MustParsePrefix("127.10.0.1/16"), MoreLinks: []string{"eth1"},
			})
			if err != nil {
				t.Fatal(err)
			}

			before := linkNames(t, s)
			if !slices.Equal(before, []string{"eth0", "eth1", "lo"}) {
				t.Errorf("links %v", before)
			}

			if err := s.SetStage(cosi.ControlPlane); err != nil {
				t.Fatal(err)
			}

			plain := nodeAddresses(t, s)

			s.SetLiveConfig(linked(t, config))
			checkBond(t, s)

			want := []string{"127.10.0.1/24", "172.20.151.1/24"}
			if got := nodeAddresses(t, s); !slices.Equal(got, want) {
				t.Errorf("addresses %v", got)
			}

			vip := netip.MustParseAddr("127.10.0.200")
			if vips := cosi.VirtualIPs(linked(t, config)); !slices.Equal(vips, []netip.Addr{vip}) {
				t.Errorf("virtual IPs %v", vips)
			}

			s.SetVirtualIPs(vip)

			if got := nodeAddresses(t, s); !slices.Contains(got, "127.10.0.200/32") {
				t.Errorf("with the virtual IP %v", got)
			}

			s.SetVirtualIPs()

			if got := nodeAddresses(t, s); !slices.Equal(got, want) {
				t.Errorf("without the virtual IP %v", got)
			}

			s.SetLiveConfig(linked(t, ""))

			if links, addresses := linkNames(t, s), nodeAddresses(t, s); !slices.Equal(links, before) || !slices.Equal(addresses, plain) {
				t.Errorf("it still has %v, %v", links, addresses)
			}

			if l := linksOf(t, s)["eth0"]; l.SlaveKind != "" || l.MTU != 1500 {
				t.Errorf("eth0 is still %+v", l)
			}
		})
	}
}

func checkBond(t *testing.T, s *cosi.Store) {
	t.Helper()

	links := linksOf(t, s)
	bond, nodes, storage := links["bond0"], links["bond0.100"], links["bond0.200"]

	if bond.Kind != "bond" || bond.BondMaster.Mode.String() != "802.3ad" || bond.MTU != 9000 {
		t.Errorf("bond0 is %+v", bond)
	}

	if nodes.Kind != "vlan" || nodes.VLAN.VID != 100 || nodes.MTU != 1500 || nodes.LinkIndex != bond.Index {
		t.Errorf("bond0.100 is %+v", nodes)
	}

	if storage.VLAN.VID != 200 || storage.MTU != 9000 || storage.Index == nodes.Index {
		t.Errorf("bond0.200 is %+v", storage)
	}

	for _, name := range []string{"eth0", "eth1"} {
		if l := links[name]; l.MasterIndex != bond.Index || l.SlaveKind != "bond" || l.MTU != 9000 {
			t.Errorf("%s is %+v", name, l)
		}
	}

	spec, err := safe.StateGetByID[*network.LinkSpec](t.Context(), s.State(), "eth1")
	if err != nil || !spec.TypedSpec().Up || spec.TypedSpec().BondSlave.MasterName != "bond0" ||
		spec.TypedSpec().BondSlave.SlaveIndex != 1 {
		t.Errorf("eth1 is to be %+v: %v", spec, err)
	}

	for _, id := range []string{"eth0/127.10.0.1/16", "bond0.100/127.10.0.1/24"} {
		_, err := safe.StateGetByID[*network.AddressStatus](t.Context(), s.State(), id)
		if (err == nil) != (id == "bond0.100/127.10.0.1/24") {
			t.Errorf("%s: %v", id, err)
		}
	}

	operator, err := safe.StateGetByID[*network.OperatorSpec](t.Context(), s.State(), "vip/bond0.100/127.10.0.200")
	if err != nil || operator.TypedSpec().VIP.IP.String() != "127.10.0.200" {
		t.Errorf("no operator of the virtual IP: %v", err)
	}
}

func linksOf(t *testing.T, s *cosi.Store) map[string]network.LinkStatusSpec {
	t.Helper()

	list, err := safe.StateListAll[*network.LinkStatus](t.Context(), s.State())
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]network.LinkStatusSpec{}
	for l := range list.All() {
		out[l.Metadata().ID()] = *l.TypedSpec()
	}

	return out
}

func linkNames(t *testing.T, s *cosi.Store) []string {
	t.Helper()

	return slices.Sorted(maps.Keys(linksOf(t, s)))
}

// nodeAddresses are those that the node counts as its own.
func nodeAddresses(t *testing.T, s *cosi.Store) []string {
	t.Helper()

	r, err := safe.StateGetByID[*network.NodeAddress](t.Context(), s.State(), network.NodeAddressCurrentID)
	if err != nil {
		t.Fatal(err)
	}

	var out []string
	for _, p := range r.TypedSpec().Addresses {
		out = append(out, p.String())
	}

	return out
}

// TestExtensionConfigs: configurations of services of extensions show with the version that the services have.
func TestExtensionConfigs(t *testing.T) {
	t.Parallel()

	s := newStore(t, 1)

	shown := func(content string) string {
		t.Helper()

		s.SetLiveConfig(linked(t, "apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: nut-client\n"+
			"configFiles: [{mountPath: /a, content: "+content+"}]\n"))

		c, err := safe.StateGetByID[*runtime.ExtensionServiceConfig](t.Context(), s.State(), "nut-client")
		if err != nil || c.TypedSpec().Files[0] != (runtime.ExtensionServiceConfigFile{Content: content, MountPath: "/a"}) {
			t.Fatalf("%+v: %v", c, err)
		}

		st, err := safe.StateGetByID[*runtime.ExtensionServiceConfigStatus](t.Context(), s.State(), "nut-client")
		if err != nil || st.TypedSpec().SpecVersion != c.Metadata().Version().String() {
			t.Fatalf("%+v of %+v: %v", st, c.Metadata(), err)
		}

		return st.TypedSpec().SpecVersion
	}

	if first, second := shown("one"), shown("two"); first == second {
		t.Errorf("both have the version %s", first)
	}

	s.SetLiveConfig(linked(t, ""))

	list, err := safe.StateListAll[*runtime.ExtensionServiceConfig](t.Context(), s.State())
	if err != nil || list.Len() > 0 {
		t.Errorf("%d are left: %v", list.Len(), err)
	}
}
