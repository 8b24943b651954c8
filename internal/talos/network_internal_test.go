package talos

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/google/go-cmp/cmp"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// sharedKey is what a link has in the clear, and nothing may show.
const sharedKey = "UpH8htYK7yJBPg5+q4M/Tx0o5ipHbeSZtI/h/mHxOeU="

func handshake() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// networkResources are those of a node with a tunnel and KubeSpan.
func networkResources() []resource.Resource {
	const ns = network.NamespaceName

	hostname := network.NewHostnameStatus(ns, network.HostnameID)
	hostname.TypedSpec().Hostname, hostname.TypedSpec().Domainname = "cp-0", "example.org"
	named := network.NewHostnameSpec(ns, network.HostnameID)
	named.TypedSpec().ConfigLayer = network.ConfigMachineConfiguration

	ready := network.NewStatus(ns, network.StatusID)
	*ready.TypedSpec() = network.StatusSpec{AddressReady: true, HostnameReady: true, EtcFilesReady: true}

	resolver := network.NewResolverStatus(ns, network.ResolverID)
	resolver.TypedSpec().DNSServers = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
	resolver.TypedSpec().SearchDomains = []string{"example.org"}
	resolved := network.NewResolverSpec(ns, network.ResolverID)
	resolved.TypedSpec().ConfigLayer = network.ConfigOperator

	eth0 := network.NewLinkStatus(ns, "eth0")
	*eth0.TypedSpec() = network.LinkStatusSpec{
		Type: nethelpers.LinkEther, OperationalState: nethelpers.OperStateUp, LinkState: true, SpeedMegabits: 1000, MTU: 1500,
		Alias: "nic0", HardwareAddr: nethelpers.HardwareAddr{2, 0, 0, 0, 0, 1},
	}
	wg0 := network.NewLinkStatus(ns, "wg0")
	*wg0.TypedSpec() = network.LinkStatusSpec{
		Type: nethelpers.LinkNone, Kind: "wireguard", OperationalState: nethelpers.OperStateDown, SpeedMegabits: 4294967295, MTU: 1420,
		Wireguard: network.WireguardSpec{PrivateKey: sharedKey, Peers: []network.WireguardPeer{{PublicKey: "a", PresharedKey: sharedKey}}},
	}

	address := network.NewAddressStatus(ns, "eth0/10.0.0.11/24")
	address.TypedSpec().Address, address.TypedSpec().LinkName = netip.MustParsePrefix("10.0.0.11/24"), "eth0"
	assigned := network.NewAddressSpec(ns, "eth0/10.0.0.11/24")
	assigned.TypedSpec().ConfigLayer = network.ConfigMachineConfiguration
	// What one layer says, before it is merged with the others.
	layered := network.NewAddressSpec(network.ConfigNamespaceName, "eth0/10.0.0.11/24")
	layered.TypedSpec().ConfigLayer = network.ConfigPlatform
	own := network.NewAddressStatus(ns, "eth0/fe80::1/64")
	own.TypedSpec().Address, own.TypedSpec().LinkName = netip.MustParsePrefix("fe80::1/64"), "eth0"

	route := network.NewRouteStatus(ns, "inet4/10.0.0.1//1024")
	*route.TypedSpec() = network.RouteStatusSpec{
		Gateway: netip.MustParseAddr("10.0.0.1"), OutLinkName: "eth0", Table: nethelpers.TableMain, Priority: 1024,
		Protocol: nethelpers.ProtocolStatic,
	}
	routed := network.NewRouteSpec(ns, "inet4/10.0.0.1//1024")
	routed.TypedSpec().ConfigLayer = network.ConfigOperator
	local := network.NewRouteStatus(ns, "local/inet4//10.0.0.11/32/0")
	local.TypedSpec().Table = nethelpers.TableLocal

	up := kubespan.NewPeerStatus(kubespan.NamespaceName, "keyOfB")
	*up.TypedSpec() = kubespan.PeerStatusSpec{
		Label: "w-1", State: kubespan.PeerStateUp, Endpoint: netip.MustParseAddrPort("192.0.2.1:51820"), LastHandshakeTime: handshake(),
	}
	down := kubespan.NewPeerStatus(kubespan.NamespaceName, "keyOfA")
	*down.TypedSpec() = kubespan.PeerStatusSpec{Label: "w-0", State: kubespan.PeerStateDown}

	spec := func(name string, layer network.ConfigLayer, up bool) resource.Resource {
		r := network.NewLinkSpec(ns, name)
		*r.TypedSpec() = network.LinkSpecSpec{Name: name, Up: up, ConfigLayer: layer, Wireguard: network.WireguardSpec{PrivateKey: sharedKey}}

		return r
	}
	discovery := cluster.NewConfig(config.NamespaceName, cluster.ConfigID)
	*discovery.TypedSpec() = cluster.ConfigSpec{DiscoveryEnabled: true, RegistryServiceEnabled: true, ServiceEncryptionKey: []byte(sharedKey)}

	return []resource.Resource{
		spec("wg0", network.ConfigMachineConfiguration, true), spec("eth9", network.ConfigMachineConfiguration, true),
		spec("eth8", network.ConfigMachineConfiguration, false), spec("eth0", network.ConfigDefault, true), discovery,
		hostname, named, ready, resolver, resolved, eth0, wg0, address, assigned, layered, own, route, routed, local, up, down,
	}
}

// TestNetwork: everything has the layer that it comes from, what belongs to the kernel has none, and no key is read.
func TestNetwork(t *testing.T) {
	t.Parallel()

	st := state.WrapCore(namespaced.NewState(inmem.Build))

	for _, r := range networkResources() {
		if err := st.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}

	n := &Node{ref: NodeRef{Address: "10.0.0.11"}, c: &talosclient.Client{COSI: st}}

	got, err := n.Network(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	at := handshake()
	want := Network{
		Hostname: "cp-0.example.org", HostnameLayer: "configuration",
		Ready:     &NetworkReady{Address: true, Hostname: true, EtcFiles: true},
		Resolvers: []string{"10.0.0.2"}, ResolversLayer: "operator", SearchDomains: []string{"example.org"},
		Links: []Link{
			{Name: "eth0", Alias: "nic0", Kind: "physical", State: "up", Carrier: true, SpeedMbit: 1000, MTU: 1500, MAC: "02:00:00:00:00:01"},
			{Name: "wg0", Kind: "wireguard", State: "down", MTU: 1420},
		},
		Addresses: []Address{
			{Address: "10.0.0.11/24", Link: "eth0", Layer: "configuration"}, {Address: "fe80::1/64", Link: "eth0"},
		},
		Routes:          []Route{{Gateway: "10.0.0.1", Link: "eth0", Table: "main", Metric: 1024, Protocol: "static", Layer: "operator"}},
		ConfiguredLinks: []string{"eth9", "wg0"}, Discovers: true,
		Peers: []Peer{
			{Name: "w-0", State: "down"}, {Name: "w-1", State: "up", Endpoint: "192.0.2.1:51820", LastHandshake: &at},
		},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	shown, err := json.Marshal(got)
	if err != nil || strings.Contains(string(shown), sharedKey) {
		t.Errorf("%v: %s", err, shown)
	}
}

// TestNetworkUnknown: what a node has no type of, or does not show, is not what it has none of.
func TestNetworkUnknown(t *testing.T) {
	t.Parallel()

	denied := func(typ resource.Type) *Node {
		return &Node{c: &talosclient.Client{COSI: deniedState{state.WrapCore(namespaced.NewState(inmem.Build)), typ}}}
	}

	for typ, known := range map[resource.Type][3]bool{
		"":                         {true, true, false},
		network.LinkStatusType:     {false, true, false},
		cluster.MemberType:         {true, false, false},
		network.ResolverStatusType: {true, true, false},
	} {
		got, err := denied(typ).NetworkHealth(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		members, err := denied(typ).ClusterMembers(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if is := [3]bool{got.Links != nil, members != nil, got.Resolvers != nil}; is != known {
			t.Errorf("without %q: %t, want %t", typ, is, known)
		}
	}

	st := state.WrapCore(namespaced.NewState(inmem.Build))
	if err := st.Create(t.Context(), network.NewResolverStatus(network.NamespaceName, network.ResolverID)); err != nil {
		t.Fatal(err)
	}

	got, err := (&Node{c: &talosclient.Client{COSI: st}}).NetworkHealth(t.Context())
	if err != nil || got.Resolvers == nil || len(got.Resolvers) != 0 {
		t.Errorf("resolvers that are none: %#v, %v", got.Resolvers, err)
	}
}

// deniedState does not let one type be read.
type deniedState struct {
	state.State

	typ resource.Type
}

func (s deniedState) List(ctx context.Context, kind resource.Kind, o ...state.ListOption) (resource.List, error) {
	if kind.Type() == s.typ {
		return resource.List{}, status.Error(codes.PermissionDenied, "not authorized")
	}

	return s.State.List(ctx, kind, o...)
}

// TestUnknownMachines: a machine is known by its short name, by its name with its domain, and by any of its addresses.
func TestUnknownMachines(t *testing.T) {
	t.Parallel()

	machine := v1alpha1.TalosMachine{}
	machine.Name = "m"
	machine.Status.Hostname, machine.Status.Address, machine.Status.Addresses = "cp-0", "192.0.2.1", []string{"10.0.0.11"}

	for member, known := range map[*ClusterMember]bool{
		{Name: "cp-0"}: true,
		{Name: "cp-0.example.org", Addresses: []string{"10.9"}}: true,
		{Name: "other", Addresses: []string{"10.0.0.11"}}:       true,
		{Name: "other", Addresses: []string{"192.0.2.1"}}:       true,
		{Name: "cp-01", Addresses: []string{"10.0.0.1"}}:        false,
		{}: false,
	} {
		got := UnknownMachines([]v1alpha1.TalosMachine{machine}, []ClusterMember{*member})
		if (len(got) == 0) != known {
			t.Errorf("%+v: %q", member, got)
		}
	}

	if SameHost("a.example.org", "a.example.com") || !SameHost("A.example.org", "a") || SameHost("", "") {
		t.Error("names of other domains, or without a name")
	}
}
