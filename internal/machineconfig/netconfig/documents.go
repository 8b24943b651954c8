package netconfig

import (
	"encoding"
	"fmt"
	"net"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// Documents returns the network of a machine as Talos 1.12 and later reads it, apart from the host name. n has passed
// Check. The errors name fields that documents cannot express, or not for the version of Talos. values are those of
// its Secrets.
func Documents(
	n v1alpha1.MachineNetwork, talos string, values keyref.Values,
) ([]config.Document, field.ErrorList) {
	d := documents{reader: reader{values: values}}

	d.resolver(n)

	if len(n.TimeServers) > 0 {
		doc := network.NewTimeSyncConfigV1Alpha1()
		doc.TimeNTP = &network.NTPConfig{Servers: n.TimeServers}
		d.docs = append(d.docs, doc)
	}

	for _, host := range n.Hosts {
		doc := network.NewStaticHostConfigV1Alpha1(host.Address)
		doc.Hostnames = host.Hostnames
		d.docs = append(d.docs, doc)
	}

	for i, one := range n.Interfaces {
		d.one(interfacePath(i), one)
	}

	d.routing(n, talos)

	return d.docs, d.errs
}

type documents struct {
	reader

	docs []config.Document
}

func (d *documents) resolver(n v1alpha1.MachineNetwork) {
	if len(n.Nameservers)+len(n.SearchDomains) == 0 && n.DisableDefaultSearchDomain == nil {
		return
	}

	doc := network.NewResolverConfigV1Alpha1()
	doc.ResolverSearchDomains.SearchDomains = n.SearchDomains
	doc.ResolverSearchDomains.SearchDisableDefault = n.DisableDefaultSearchDomain

	for _, server := range n.Nameservers {
		doc.ResolverNameservers = append(doc.ResolverNameservers, network.NameserverConfig{Address: address(server)})
	}

	d.docs = append(d.docs, doc)
}

func (d *documents) one(path *field.Path, i v1alpha1.NetworkInterface) {
	if ptr.Deref(i.Ignore, false) {
		return // links without a document are left alone once another one has a document, which CheckPatched makes sure of
	}

	name, ok := d.name(path, i)
	if !ok {
		return
	}

	l := ofInterface(path, i)
	common := d.common(l)

	switch {
	case i.Bond != nil:
		doc := d.bond(path.Child("bond"), name, i.Bond, common)
		doc.HardwareAddressConfig = hardwareAddress(i)
		d.docs = append(d.docs, doc)
	case i.Bridge != nil:
		doc := network.NewBridgeConfigV1Alpha1(name)
		doc.BridgeLinks, doc.BridgeSTP.BridgeSTPEnabled = i.Bridge.Interfaces, i.Bridge.STP
		doc.BridgeVLAN.BridgeVLANFiltering, doc.CommonLinkConfig = i.Bridge.VLANFiltering, common
		doc.HardwareAddressConfig = hardwareAddress(i)
		d.docs = append(d.docs, doc)
	case i.WireGuard != nil:
		d.docs = append(d.docs, d.wireGuard(path.Child("wireguard"), name, i.WireGuard, common))
	case ptr.Deref(i.Dummy, false):
		doc := network.NewDummyLinkConfigV1Alpha1(name)
		doc.CommonLinkConfig, doc.HardwareAddressConfig = common, hardwareAddress(i)
		d.docs = append(d.docs, doc)
	default:
		doc := network.NewLinkConfigV1Alpha1(name)
		doc.CommonLinkConfig = common
		d.docs = append(d.docs, doc)
	}

	d.rest(name, l)

	for j, vlan := range i.VLANs {
		at := path.Child("vlans").Index(j)
		l := ofVLAN(at, vlan)

		doc := network.NewVLANConfigV1Alpha1(nethelpers.VLANLinkName(name, uint16(vlan.ID)))
		doc.VLANIDConfig, doc.ParentLinkConfig, doc.CommonLinkConfig = uint16(vlan.ID), name, d.common(l)
		doc.VLANModeConfig = enum[nethelpers.VLANProtocol](d, at.Child("protocol"), vlan.Protocol)
		d.docs = append(d.docs, doc)

		d.rest(doc.Name(), l)
	}
}

// name returns how other documents call an interface; one that has no name gets an alias.
func (d *documents) name(path *field.Path, i v1alpha1.NetworkInterface) (string, bool) {
	if i.Name != "" {
		return i.Name, true
	}

	make := func() (*network.LinkAliasConfigV1Alpha1, error) { return aliasOfAddress(i.MACAddress) }
	if i.Selector != nil {
		make = func() (*network.LinkAliasConfigV1Alpha1, error) { return aliasOfSelector(*i.Selector) }
	}

	doc, err := make()
	if err != nil {
		d.errs = append(d.errs, field.Invalid(path, i.MACAddress, err.Error()))

		return "", false
	}

	d.docs = append(d.docs, doc)

	return doc.Name(), true
}

func (d *documents) common(l link) network.CommonLinkConfig {
	up := true
	out := network.CommonLinkConfig{LinkUp: &up, LinkMTU: uint32(l.mtu)}

	for _, text := range l.addresses {
		out.LinkAddresses = append(out.LinkAddresses, network.AddressConfig{
			AddressAddress: prefix(text).Prefix, AddressPriority: priority(l.priority),
		})
	}

	for _, r := range l.routes {
		route := network.RouteConfig{
			RouteGateway: address(r.Gateway), RouteSource: address(r.Source),
			RouteMetric: uint32(r.Metric), RouteMTU: uint32(r.MTU), RouteTable: nethelpers.RoutingTable(r.Table),
		}

		// Talos writes the default route as one without destination, and refuses 0.0.0.0/0.
		if destination := prefix(r.Network); destination.IsValid() && destination.Bits() > 0 {
			route.RouteDestination = destination
		}

		out.LinkRoutes = append(out.LinkRoutes, route)
	}

	return out
}

// rest adds the documents that a link has beside its own.
func (d *documents) rest(name string, l link) {
	v4, v6 := l.wants()

	options := v1alpha1.DHCPOptions{}
	if l.options != nil {
		options = *l.options
	}

	identifier := enum[nethelpers.ClientIdentifier](d, l.path.Child("dhcpOptions", "clientIdentifier"),
		options.ClientIdentifier)
	duid := d.duid(l.path.Child("dhcpOptions", "duid"), options.DUID)

	if v4 {
		doc := network.NewDHCPv4ConfigV1Alpha1(name)
		doc.ConfigRouteMetric, doc.ConfigIgnoreHostname = uint32(options.RouteMetric), options.IgnoreHostname
		doc.ConfigClientIdentifier, doc.ConfigDUIDRaw = identifier, duid
		d.docs = append(d.docs, doc)
	}

	if v6 {
		doc := network.NewDHCPv6ConfigV1Alpha1(name)
		doc.ConfigRouteMetric, doc.ConfigIgnoreHostname = uint32(options.RouteMetric), options.IgnoreHostname
		doc.ConfigClientIdentifier, doc.ConfigDUIDRaw = identifier, duid
		d.docs = append(d.docs, doc)
	}

	d.vip(l.path.Child("vip"), name, l.vip)
}

// vip adds the document of a virtual IP, which has the kind of who assigns it.
func (d *documents) vip(path *field.Path, link string, vip *v1alpha1.VirtualIP) {
	if vip == nil {
		return
	}

	d.unsupported(path.Child("equinixMetal"), "Talos 1.12 and later has no document for it; remove it",
		vip.EquinixMetal != nil)

	if vip.HCloud != nil {
		doc := network.NewHCloudVIPConfigV1Alpha1(vip.Address)
		doc.LinkName, doc.APIToken = link, d.value(path.Child("hcloud", "apiTokenFrom"))
		d.docs = append(d.docs, doc)

		return
	}

	doc := network.NewLayer2VIPConfigV1Alpha1(vip.Address)
	doc.LinkName = link
	d.docs = append(d.docs, doc)
}

func (d *documents) duid(path *field.Path, text string) nethelpers.HardwareAddr {
	if text == "" {
		return nil
	}

	var out nethelpers.HardwareAddr
	if err := out.UnmarshalText([]byte(text)); err != nil {
		d.errs = append(d.errs, field.Invalid(path, text, "is no list of hexadecimal bytes like 00:01:00:01"))
	}

	return out
}

// enum reads a value of one of the machinery's enumerations, nil for none.
func enum[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](d *documents, path *field.Path, text string) *T {
	if text == "" {
		return nil
	}

	out := new(T)
	if err := P(out).UnmarshalText([]byte(text)); err != nil {
		d.errs = append(d.errs, field.Invalid(path, text, fmt.Sprintf("is unknown: %v", err)))
	}

	return out
}

// hardwareAddress reads that of a link which Talos creates, or none. It was checked.
func hardwareAddress(i v1alpha1.NetworkInterface) nethelpers.HardwareAddr {
	out, err := net.ParseMAC(i.HardwareAddress)
	if err != nil {
		return nil
	}

	return nethelpers.HardwareAddr(out)
}

func priority(n int32) *uint32 {
	if n == 0 {
		return nil
	}

	return number[uint32](&n)
}

// address reads an address that was checked, or none.
func address(text string) network.Addr {
	addr, _ := netip.ParseAddr(text)

	return network.Addr{Addr: addr}
}

// prefix reads a network that was checked, or none.
func prefix(text string) network.Prefix {
	p, _ := netip.ParsePrefix(text)

	return network.Prefix{Prefix: p}
}
