package talos

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/controller/generic"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"golang.org/x/sync/errgroup"

	"github.com/talos-operator/talos-operator/internal/text"
)

// Network is what a node reports about its network. A layer is where Talos has something from: default, cmdline,
// platform, operator (DHCP, virtual IPs), or configuration; empty for what Talos has not set itself, such as addresses
// of the kernel and of a CNI. No field holds a key.
type Network struct {
	// Hostname of the node, and the layer that has set it.
	Hostname      string `json:"hostname,omitempty"`
	HostnameLayer string `json:"hostnameLayer,omitempty"`
	// Ready tells which parts are up; nil if the node does not report it.
	Ready *NetworkReady `json:"ready,omitempty"`
	// Resolvers are the DNS servers that the node uses, and the layer that has set them; nil if the node does not report
	// them, and empty if it has none.
	Resolvers      []string `json:"resolvers"`
	ResolversLayer string   `json:"resolversLayer,omitempty"`
	SearchDomains  []string `json:"searchDomains,omitempty"`
	// FailingResolvers are DNS servers that do not answer the node, with their ports.
	FailingResolvers []string `json:"failingResolvers,omitempty"`
	// ConfiguredLinks are those that the machine config has the node bring up, by name. One that is none of Links is
	// missing.
	ConfiguredLinks []string `json:"configuredLinks,omitempty"`
	// Links by name; those without a function, such as tunnels that the kernel always has, included. Nil if the node does
	// not report them.
	Links []Link `json:"links"`
	// Addresses and Routes of the links.
	Addresses []Address `json:"addresses"`
	Routes    []Route   `json:"routes"`
	// Peers of KubeSpan; none if it is off.
	Peers []Peer `json:"kubeSpanPeers,omitempty"`
	// Discovers is true if the node learns of the other nodes of its cluster from a registry.
	Discovers bool `json:"discovers"`
}

// NetworkReady tells which parts of the network are up.
type NetworkReady struct {
	Address      bool `json:"address"`
	Connectivity bool `json:"connectivity"`
	Hostname     bool `json:"hostname"`
	EtcFiles     bool `json:"etcFiles"`
}

// Link is one interface.
type Link struct {
	Name string `json:"name"`
	// Alias that documents of the configuration call it by; empty if there is none.
	Alias string `json:"alias,omitempty"`
	// Kind is physical, loopback, or that of the kernel: bond, vlan, bridge, wireguard, …
	Kind string `json:"kind"`
	// State is the operational one, such as up, down, unknown. Carrier tells whether there is a signal.
	State   string `json:"state"`
	Carrier bool   `json:"carrier"`
	// SpeedMbit is 0 if it is unknown.
	SpeedMbit int    `json:"speedMbit,omitempty"`
	MTU       int    `json:"mtu"`
	MAC       string `json:"mac,omitempty"`
}

// Address of a link.
type Address struct {
	Address string `json:"address"`
	Link    string `json:"link"`
	Layer   string `json:"layer,omitempty"`
}

// Route of a routing table.
type Route struct {
	// Destination is empty for the default route.
	Destination string `json:"destination,omitempty"`
	Gateway     string `json:"gateway,omitempty"`
	Link        string `json:"link,omitempty"`
	Table       string `json:"table"`
	Metric      int    `json:"metric"`
	// Protocol is what has made the route, such as kernel, boot, static.
	Protocol string `json:"protocol,omitempty"`
	Layer    string `json:"layer,omitempty"`
}

// Peer is another machine in KubeSpan.
type Peer struct {
	Name string `json:"name"`
	// State is up, down or unknown.
	State string `json:"state"`
	// Endpoint that is in use; empty if there is none yet.
	Endpoint string `json:"endpoint,omitempty"`
	// LastHandshake is nil if there was none yet.
	LastHandshake *time.Time `json:"lastHandshake,omitempty"`
}

// Network reads what the node reports about its network. What it does not report, or does not show, is nil or empty.
func (n *Node) Network(ctx context.Context) (Network, error) {
	return n.network(ctx, readLinkAddresses, readRoutes)
}

// NetworkHealth reads what shows whether the network of the node works: all but addresses and routes.
func (n *Node) NetworkHealth(ctx context.Context) (Network, error) { return n.network(ctx) }

func (n *Node) network(ctx context.Context, more ...func(context.Context, *reader, *Network)) (Network, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	out := Network{Addresses: []Address{}, Routes: []Route{}}

	g, ctx := errgroup.WithContext(ctx)

	for _, read := range append([]func(context.Context, *reader, *Network){
		readHost, readResolvers, readUpstreams, readLinks, readConfiguredLinks, readPeers, readDiscovery,
	}, more...) {
		g.Go(func() error {
			r := &reader{c: n.c}
			read(ctx, r, &out)

			return r.err
		})
	}

	if err := g.Wait(); err != nil {
		return Network{}, classify("its network", n.name(), err)
	}

	return out, nil
}

func readHost(ctx context.Context, r *reader, out *Network) {
	if s := get[*network.HostnameStatus](
		ctx, r, network.NamespaceName, network.HostnameStatusType, network.HostnameID); s != nil {
		out.Hostname = text.Name(s.TypedSpec().FQDN())
	}

	if s := get[*network.HostnameSpec](
		ctx, r, network.NamespaceName, network.HostnameSpecType, network.HostnameID); s != nil {
		out.HostnameLayer = s.TypedSpec().ConfigLayer.String()
	}

	if s := get[*network.Status](ctx, r, network.NamespaceName, network.StatusType, network.StatusID); s != nil {
		spec := s.TypedSpec()
		out.Ready = &NetworkReady{
			Address: spec.AddressReady, Connectivity: spec.ConnectivityReady,
			Hostname: spec.HostnameReady, EtcFiles: spec.EtcFilesReady,
		}
	}
}

func readResolvers(ctx context.Context, r *reader, out *Network) {
	if s := get[*network.ResolverStatus](
		ctx, r, network.NamespaceName, network.ResolverStatusType, network.ResolverID); s != nil {
		out.Resolvers = []string{}

		for _, server := range s.TypedSpec().DNSServers {
			out.Resolvers = append(out.Resolvers, addressText(server))
		}

		for _, domain := range s.TypedSpec().SearchDomains {
			out.SearchDomains = append(out.SearchDomains, text.Name(domain))
		}
	}

	if s := get[*network.ResolverSpec](
		ctx, r, network.NamespaceName, network.ResolverSpecType, network.ResolverID); s != nil {
		out.ResolversLayer = s.TypedSpec().ConfigLayer.String()
	}
}

// listAll lists resources of one type; nil if the node does not have the type, or denies access, and empty if there are
// none.
func listAll[T generic.ResourceWithRD](ctx context.Context, r *reader) []T {
	if r.err != nil {
		return nil
	}

	list, err := safe.ReaderListAll[T](ctx, r.c.COSI)
	if err != nil {
		if !isAbsent(err) {
			r.err = err
		}

		return nil
	}

	out := make([]T, 0, list.Len())
	for one := range list.All() {
		out = append(out, one)
	}

	return out
}

// readLinks takes single fields of the links: they also have the symmetric keys of WireGuard, in the clear.
func readLinks(ctx context.Context, r *reader, out *Network) {
	links := listAll[*network.LinkStatus](ctx, r)
	if links == nil {
		return
	}

	out.Links = make([]Link, 0, len(links))

	for _, l := range links {
		spec := l.TypedSpec()

		kind := spec.Kind
		if kind == "" {
			kind = spec.Type.String()
		}

		if kind == "ether" {
			kind = "physical"
		}

		out.Links = append(out.Links, Link{
			Name: text.Name(l.Metadata().ID()), Alias: text.Name(spec.Alias), Kind: text.Name(kind),
			State: spec.OperationalState.String(), Carrier: spec.LinkState, SpeedMbit: speed(spec.SpeedMegabits),
			MTU: int(spec.MTU), MAC: spec.HardwareAddr.String(),
		})
	}

	slices.SortFunc(out.Links, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
}

// fastest is more than the speed of any link, in Mbit/s. Drivers report an unknown speed as -1, also without the sign.
const fastest = 10_000_000

func speed(mbit int) int {
	if mbit < 0 || mbit > fastest {
		return 0
	}

	return mbit
}

func readLinkAddresses(ctx context.Context, r *reader, out *Network) {
	layers := map[string]string{}

	for _, s := range listAll[*network.AddressSpec](ctx, r) {
		if s.Metadata().Namespace() == network.NamespaceName {
			layers[s.Metadata().ID()] = s.TypedSpec().ConfigLayer.String()
		}
	}

	for _, a := range listAll[*network.AddressStatus](ctx, r) {
		out.Addresses = append(out.Addresses, Address{
			Address: a.TypedSpec().Address.String(), Link: text.Name(a.TypedSpec().LinkName), Layer: layers[a.Metadata().ID()],
		})
	}

	slices.SortFunc(out.Addresses, func(a, b Address) int {
		return cmp.Or(strings.Compare(a.Link, b.Link), strings.Compare(a.Address, b.Address))
	})
}

func readRoutes(ctx context.Context, r *reader, out *Network) {
	layers := map[string]string{}

	for _, s := range listAll[*network.RouteSpec](ctx, r) {
		if s.Metadata().Namespace() == network.NamespaceName {
			layers[s.Metadata().ID()] = s.TypedSpec().ConfigLayer.String()
		}
	}

	for _, route := range listAll[*network.RouteStatus](ctx, r) {
		spec := route.TypedSpec()

		// Each address has routes in the table local, which only say that it is one.
		if spec.Table.String() == "local" {
			continue
		}

		out.Routes = append(out.Routes, Route{
			Destination: prefixText(spec.Destination), Gateway: addressText(spec.Gateway), Link: text.Name(spec.OutLinkName),
			Table: spec.Table.String(), Metric: int(spec.Priority), Protocol: spec.Protocol.String(),
			Layer: layers[route.Metadata().ID()],
		})
	}

	slices.SortStableFunc(out.Routes, func(a, b Route) int {
		return cmp.Or(strings.Compare(a.Table, b.Table), strings.Compare(a.Destination, b.Destination),
			cmp.Compare(a.Metric, b.Metric), strings.Compare(a.Link, b.Link))
	})
}

func readPeers(ctx context.Context, r *reader, out *Network) {
	for _, p := range listAll[*kubespan.PeerStatus](ctx, r) {
		spec := p.TypedSpec()
		peer := Peer{Name: text.Name(spec.Label), State: spec.State.String()}

		if end := spec.Endpoint; end.IsValid() {
			peer.Endpoint = text.Name(end.String())
		}

		if at := spec.LastHandshakeTime; !at.IsZero() && at.Unix() > 0 {
			peer.LastHandshake = &at
		}

		out.Peers = append(out.Peers, peer)
	}

	slices.SortFunc(out.Peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}

	return p.String()
}

// addressText returns an address. Its zone is any text.
func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}

	return text.Name(a.String())
}
