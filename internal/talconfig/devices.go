package talconfig

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"k8s.io/utils/ptr"
)

// longestLink is the longest name that Linux gives a link.
const longestLink = 15

// links turns the networkInterfaces of one node into documents, the form since Talos 1.12. What no document can say is
// a problem, not a loss.
type links struct {
	*loader
	docs []docconfig.Document
	// names that are taken, and members of bonds and bridges, and by which field.
	names, members map[string]string

	next int
	// isWorker: a shared address has no meaning there.
	isWorker bool
}

// validateDevices checks the network of a node, and keeps its documents.
func (l *loader) validateDevices(m *Machine) {
	x := &links{loader: l, names: map[string]string{}, members: map[string]string{}, isWorker: !m.ControlPlane}
	field := l.inherited(m, m.NetworkInterfaces != nil, "networkInterfaces")

	for i, device := range m.NetworkInterfaces {
		if device.DeviceInterface != "" {
			l.unique(x.names, fmt.Sprintf("%s[%d].interface", field, i), device.DeviceInterface)
		}
	}

	for i, device := range m.NetworkInterfaces {
		x.device(fmt.Sprintf("%s[%d]", field, i), device)
	}

	l.validateVIPs(m, field)

	m.Network = x.docs
}

// inherited returns the path of a setting, which may be that of the group.
func (l *loader) inherited(m *Machine, isSet bool, key string) string {
	own := join(m.Field, key)
	if _, ok := l.lines[own]; ok || !isSet {
		return own
	}

	if m.ControlPlane {
		return join(groupControlPlane, key)
	}

	return join(groupWorker, key)
}

// validateVIPs refuses a shared address that a machine has as its own: two machines would have it.
func (l *loader) validateVIPs(m *Machine, field string) {
	for i, device := range m.NetworkInterfaces {
		if device.DeviceVIPConfig == nil || device.DeviceVIPConfig.SharedIP == "" {
			continue
		}

		if slices.Contains(m.Addresses(), device.DeviceVIPConfig.SharedIP) {
			l.add(fmt.Sprintf("%s[%d].vip.ip", field, i), "is the address of %s itself: a shared address moves between "+
				"machines; use another", m.Hostname)
		}
	}
}

func (x *links) device(field string, d *v1alpha1.Device) {
	x.refuse(field, d)

	name := d.DeviceInterface

	switch {
	case name == "" && d.DeviceSelector == nil:
		x.add(field, "has neither interface nor deviceSelector: name the link, such as eth0, or select it")

		return
	case name == "" && isVirtual(d):
		x.add(field+".interface", "is missing: the name of the link that is made, such as bond0; select the members of "+
			"a bond in bond.deviceSelectors")

		return
	case name == "":
		for name = ""; name == "" || x.names[name] != ""; x.next++ {
			name = fmt.Sprintf("ethSel%d", x.next)
		}

		x.names[name] = field
	}

	if len(name) > longestLink {
		x.add(field+".interface", "%q is longer than %d characters, which is the most that Linux allows", name, longestLink)
	}

	if d.DeviceSelector != nil {
		x.alias(field+".deviceSelector", name, *d.DeviceSelector)
	}

	x.link(field, name, d)
	x.vip(field+".vip", name, d.DeviceVIPConfig)

	for i, vlan := range d.DeviceVlans {
		x.vlan(fmt.Sprintf("%s.vlans[%d]", field, i), name, vlan)
	}
}

// link makes the document of the link itself, and those of its DHCP.
func (x *links) link(field, name string, d *v1alpha1.Device) {
	common := x.common(field, d.DeviceMTU, withCIDR(d.DeviceAddresses, d.DeviceCIDR), d.DeviceRoutes)
	hasOwn := len(common.LinkAddresses) > 0 || len(common.LinkRoutes) > 0 || common.LinkMTU > 0
	hasDHCP := ptr.Deref(d.DeviceDHCP, false)

	switch {
	case d.DeviceBond != nil:
		x.bond(field+".bond", name, d.DeviceBond, common)
	case d.DeviceBridge != nil:
		x.bridge(field+".bridge", name, d.DeviceBridge, common)
	case d.DeviceWireguardConfig != nil:
		x.wireguard(field+".wireguard", name, d.DeviceWireguardConfig, common)
	case ptr.Deref(d.DeviceDummy, false):
		doc := network.NewDummyLinkConfigV1Alpha1(name)
		doc.CommonLinkConfig = common
		x.docs = append(x.docs, doc)
	case hasOwn || !hasDHCP:
		doc := network.NewLinkConfigV1Alpha1(name)
		doc.CommonLinkConfig = common
		x.docs = append(x.docs, doc)
	}

	if hasDHCP {
		x.dhcp(field+".dhcpOptions", name, d.DeviceDHCPOptions)
	}
}

func isVirtual(d *v1alpha1.Device) bool {
	return d.DeviceBond != nil || d.DeviceBridge != nil || d.DeviceWireguardConfig != nil ||
		ptr.Deref(d.DeviceDummy, false)
}

// refuse names what no document can say.
func (x *links) refuse(field string, d *v1alpha1.Device) {
	if x.legacy {
		return
	}

	if d.DeviceBridgePort != nil {
		x.add(field+".bridgePort", "has no form since Talos 1.12: name the link in bridge.interfaces of the bridge")
	}

	if ptr.Deref(d.DeviceIgnore, false) {
		x.add(field+".ignore", "has no form since Talos 1.12: leave the link out; links without a document are not "+
			"configured as soon as one link has a document")
	}

	kinds := 0
	for _, is := range []bool{
		d.DeviceBond != nil, d.DeviceBridge != nil, d.DeviceWireguardConfig != nil, ptr.Deref(d.DeviceDummy, false),
	} {
		if is {
			kinds++
		}
	}

	if kinds > 1 {
		x.add(field, "is of more than one kind: a link is either a bond, a bridge, a WireGuard tunnel or a dummy")
	}
}

func withCIDR(addresses []string, cidr string) []string {
	if cidr == "" {
		return addresses
	}

	return append(slices.Clone(addresses), cidr)
}

// alias gives the link that a selector finds a name.
func (x *links) alias(field, name string, s v1alpha1.NetworkDeviceSelector) {
	var terms, shape []string

	isPlain := true

	for _, term := range []struct{ pattern, value string }{
		{s.NetworkDeviceHardwareAddress, "mac(link.hardware_addr)"},
		{s.NetworkDevicePermanentAddress, "mac(link.permanent_addr)"},
		{s.NetworkDeviceBus, "link.bus_path"},
		{s.NetworkDeviceKernelDriver, "link.driver"},
		{s.NetworkDevicePCIID, "link.pciid"},
	} {
		if term.pattern != "" {
			pattern := strings.TrimSpace(term.pattern)
			isPlain = isPlain && plainPattern.MatchString(pattern)
			terms = append(terms, fmt.Sprintf("glob(%q, %s)", pattern, term.value))
			shape = append(shape, term.value)
		}
	}

	switch {
	case s.NetworkDevicePhysical == nil:
	case *s.NetworkDevicePhysical:
		terms = append(terms, `link.type == 1 && link.kind == ""`)
	default:
		terms = append(terms, `!(link.type == 1 && link.kind == "")`)
	}

	if len(terms) == 0 {
		x.add(field, "selects every link: give it busPath, hardwareAddr, permanentAddr, pciID, driver or physical")

		return
	}

	key := ""
	if isPlain && len(terms) == 1 && len(shape) == 1 {
		key = shape[0]
	}

	match, err := x.expression(strings.Join(terms, " && "), key)
	if err != nil {
		x.add(field, "has a pattern that cannot be read")

		return
	}

	doc := network.NewLinkAliasConfigV1Alpha1(name)
	doc.Selector.Match = match
	x.docs = append(x.docs, doc)
}

// plainPattern is a pattern that is the same with and without quoting, and short enough to stay on one line.
var plainPattern = regexp.MustCompile(`^[0-9A-Za-z:.*_/-]{1,32}$`)

// expression reads an expression. Of those that differ in one plain pattern only, and have the same key, the first is
// parsed and checked, and the others are taken as they stand: in a large fleet this is most of the work otherwise. An
// empty key parses.
func (l *loader) expression(text, key string) (out cel.Expression, err error) {
	if l.known[key] {
		return out, out.UnmarshalText([]byte(text))
	}

	out, err = cel.ParseBooleanExpression(text, celenv.LinkLocator())
	if err != nil || key == "" {
		return out, err
	}

	// What is written is the text of the parsed expression: it has to be the one that is taken.
	if written, err := out.MarshalText(); err == nil && string(written) == text {
		l.known[key] = true
	}

	return out, nil
}

func (x *links) common(field string, mtu int, addresses []string, routes []*v1alpha1.Route) network.CommonLinkConfig {
	var out network.CommonLinkConfig

	if mtu < 0 || mtu > 65535 {
		x.add(field+".mtu", "has to be between 0 and 65535")
	}

	out.LinkMTU = uint32(mtu)

	for i, address := range addresses {
		prefix, ok := parsePrefix(address)
		if !ok {
			x.add(fmt.Sprintf("%s.addresses[%d]", field, i), "%q is not an address such as 10.0.0.11/24", address)

			continue
		}

		out.LinkAddresses = append(out.LinkAddresses, network.AddressConfig{AddressAddress: prefix})
	}

	for i, route := range routes {
		out.LinkRoutes = append(out.LinkRoutes, x.route(fmt.Sprintf("%s.routes[%d]", field, i), route))
	}

	return out
}

// parsePrefix reads an address without a mask as Talos does: as that of a single host.
func parsePrefix(text string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}

	prefix, err := netip.ParsePrefix(text)

	return prefix, err == nil
}

func (x *links) route(field string, r *v1alpha1.Route) network.RouteConfig {
	out := network.RouteConfig{RouteMetric: r.RouteMetric, RouteMTU: r.RouteMTU}
	out.RouteGateway = network.Addr{Addr: x.addr(field+".gateway", r.RouteGateway)}
	out.RouteSource = network.Addr{Addr: x.addr(field+".source", r.RouteSource)}

	if r.RouteNetwork == "" && r.RouteGateway == "" {
		x.add(field, "has neither network nor gateway")
	}

	if r.RouteNetwork == "" {
		return out
	}

	destination, ok := parsePrefix(r.RouteNetwork)
	if !ok {
		x.add(field+".network", "%q is not a network such as 0.0.0.0/0", r.RouteNetwork)

		return out
	}

	if destination.Bits() == 0 && r.RouteGateway == "" {
		x.add(field+".gateway", "is missing: a default route needs one")
	}

	// Talos writes the default route as one without destination, and refuses 0.0.0.0/0.
	if destination.Bits() > 0 {
		out.RouteDestination = network.Prefix{Prefix: destination}
	}

	return out
}

func (x *links) addr(field, text string) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}

	addr, err := netip.ParseAddr(text)
	if err != nil {
		x.add(field, "%q is not an IP address", text)
	}

	return addr
}

func (x *links) dhcp(field, name string, o *v1alpha1.DHCPOptions) {
	if o == nil {
		o = &v1alpha1.DHCPOptions{}
	}

	if o.DHCPIPv4 == nil || *o.DHCPIPv4 {
		doc := network.NewDHCPv4ConfigV1Alpha1(name)
		doc.ConfigRouteMetric = o.DHCPRouteMetric
		x.docs = append(x.docs, doc)
	}

	if !ptr.Deref(o.DHCPIPv6, false) {
		return
	}

	doc := network.NewDHCPv6ConfigV1Alpha1(name)
	doc.ConfigRouteMetric = o.DHCPRouteMetric

	if o.DHCPDUIDv6 != "" {
		raw, err := hex.DecodeString(strings.ReplaceAll(o.DHCPDUIDv6, ":", ""))
		if err != nil {
			x.add(field+".duidv6", "%q is not hexadecimal", o.DHCPDUIDv6)
		}

		kind := nethelpers.ClientIdentifierDUID
		doc.ConfigClientIdentifier, doc.ConfigDUIDRaw = &kind, raw
	}

	x.docs = append(x.docs, doc)
}

func (x *links) vip(field, name string, v *v1alpha1.DeviceVIPConfig) {
	if v == nil {
		return
	}

	if x.isWorker {
		x.add(field, "has no effect on a worker: only control planes share an address; remove it")
	}

	if v.EquinixMetalConfig != nil && !x.legacy {
		x.add(field+".equinixMetal", "has no form since Talos 1.12: Equinix Metal has ended its service")
	}

	if x.addr(field+".ip", v.SharedIP); v.SharedIP == "" {
		x.add(field+".ip", "is missing: the shared address")

		return
	}

	if v.HCloudConfig == nil {
		doc := network.NewLayer2VIPConfigV1Alpha1(v.SharedIP)
		doc.LinkName = name
		x.docs = append(x.docs, doc)

		return
	}

	doc := network.NewHCloudVIPConfigV1Alpha1(v.SharedIP)
	doc.LinkName, doc.APIToken = name, v.HCloudConfig.HCloudAPIToken
	x.docs = append(x.docs, doc)
}

func (x *links) vlan(field, parent string, v *v1alpha1.Vlan) {
	if v.VlanID == 0 || v.VlanID > 4094 {
		x.add(field+".vlanId", "has to be between 1 and 4094")
	}

	name := fmt.Sprintf("%s.%d", parent, v.VlanID)
	x.unique(x.names, field+".vlanId", name)

	if len(name) > longestLink {
		x.add(field+".vlanId", "the link would be called %q, which is longer than %d characters", name, longestLink)
	}

	doc := network.NewVLANConfigV1Alpha1(name)
	doc.VLANIDConfig, doc.ParentLinkConfig = v.VlanID, parent
	doc.CommonLinkConfig = x.common(field, int(v.VlanMTU), withCIDR(v.VlanAddresses, v.VlanCIDR), v.VlanRoutes)
	x.docs = append(x.docs, doc)

	if ptr.Deref(v.VlanDHCP, false) {
		x.dhcp(field+".dhcpOptions", name, v.VlanDHCPOptions)
	}

	x.vip(field+".vip", name, v.VlanVIP)
}
