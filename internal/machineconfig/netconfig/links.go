package netconfig

import (
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// CheckPatched returns what of the network of a machine cannot work with what patches made of the config: base is the
// config without them, patched with them. live is the config of the node that responds, or nil: what that has works, by
// what a platform or a kernel argument adds. n has passed Check. documents is true for Talos 1.12 and later.
func CheckPatched(n v1alpha1.MachineNetwork, base, patched, live config.Config, documents bool) (errs field.ErrorList) {
	// The library dereferences entries of lists without a check: a node would panic at such a config, too.
	defer func() {
		if r := recover(); r != nil {
			errs = field.ErrorList{field.Invalid(field.NewPath(Root, "interfaces"), field.OmitValueType{},
				"a patch of them has an empty entry in a list, that Talos cannot read")}
		}
	}()

	if len(n.Interfaces) == 0 {
		return nil
	}

	had, has := linksOf(base), linksOf(patched)

	c := checker{also: &also{networks: slices.DeleteFunc(slices.Clone(has.networks), func(p netip.Prefix) bool {
		return slices.Contains(had.networks, p)
	})}}
	for name := range has.dhcp {
		c.also.unknown = c.also.unknown || !had.dhcp[name]
	}

	excused := false

	if live != nil {
		runs := linksOf(live)
		c.also.gateways, excused = runs.gateways, !runs.addressed && !live.RunDefaultDHCPOperators()
	}

	for i, one := range n.Interfaces {
		c.gateways(ofInterface(interfacePath(i), one))

		for j, vlan := range one.VLANs {
			c.gateways(ofVLAN(interfacePath(i).Child("vlans").Index(j), vlan))
		}
	}

	// Before Talos 1.12 a listed interface stops the default DHCP only of itself.
	if documents && !has.addressed && !excused {
		c.add(field.Required(field.NewPath(Root, "interfaces"), "none of them gets an address, and Talos stops its default "+
			"DHCP on all interfaces once one is listed: the machine would not be reachable any more; list the interface by "+
			"which it is reached, with dhcp: true or with addresses"))
	}

	return c.errs
}

// also is what a machine reaches beside what its fields say.
type also struct {
	// networks that patches give the machine an address in, or a route to without a gateway.
	networks []netip.Prefix
	// gateways that the live config has routes over.
	gateways []netip.Addr
	// unknown is true if DHCP tells more of them.
	unknown bool
}

func (a *also) reaches(gateway netip.Addr) bool {
	if a.unknown || slices.Contains(a.gateways, gateway) {
		return true
	}

	for _, network := range a.networks {
		if network.Contains(gateway) {
			return true
		}
	}

	return false
}

// gateways refuses routes whose gateway the machine cannot reach.
func (c *checker) gateways(l link) {
	for i, route := range l.routes {
		if gateway, err := netip.ParseAddr(route.Gateway); err == nil {
			c.gateway(l, l.path.Child("routes").Index(i).Child("gateway"), gateway)
		}
	}
}

func (c *checker) gateway(l link, path *field.Path, gateway netip.Addr) {
	if l.reaches(gateway) || c.also != nil && c.also.reaches(gateway) {
		return
	}

	c.add(field.Invalid(path, gateway.String(),
		"is in no network of the interface's addresses; add an address of its network, or a route to it without gateway"))
}

// links are the interfaces of a whole config.
type links struct {
	networks []netip.Prefix
	gateways []netip.Addr
	// dhcp has the names of those with DHCP for IPv4.
	dhcp map[string]bool
	// addressed is true if one by which other machines reach this one gets an address.
	addressed bool
}

func linksOf(cfg config.Config) links {
	l := links{dhcp: map[string]bool{}}

	inside := map[string]bool{loopback: true}

	for _, doc := range cfg.NetworkCommonLinkConfigs() {
		inside[doc.Name()] = isInside(doc)

		for _, address := range doc.Addresses() {
			l.networks = append(l.networks, address.Address())
			l.addressed = l.addressed || !inside[doc.Name()]
		}

		for _, route := range doc.Routes() {
			if gateway, behind := route.Gateway().Get(); behind {
				l.gateways = append(l.gateways, gateway)
			} else {
				l.networks = append(l.networks, route.Destination().ValueOrZero())
			}
		}
	}

	for _, doc := range cfg.NetworkDHCPv4Configs() {
		l.dhcp[doc.Name()] = true
		l.addressed = l.addressed || !inside[doc.Name()]
	}

	for _, doc := range cfg.NetworkDHCPv6Configs() {
		l.addressed = l.addressed || !inside[doc.Name()]
	}

	// A machine section alone, without network, has no devices.
	if m := cfg.Machine(); m != nil {
		for _, device := range m.Network().Devices() {
			l.device(device)
		}
	}

	return l
}

// isInside tells whether no other machine reaches this one by a link, or only through another link.
func isInside(doc config.NetworkCommonLinkConfig) bool {
	switch doc.(type) {
	case config.NetworkDummyLinkConfig, config.NetworkWireguardConfig:
		return true
	default:
		return doc.Name() == loopback
	}
}

const loopback = "lo"

// device adds an interface of machine.network, where Talos before 1.12 has them.
func (l *links) device(d config.Device) {
	if d.Ignore() {
		return
	}

	name := d.Interface()
	if s := d.Selector(); s != nil {
		name = s.PermanentAddress() + s.HardwareAddress() + s.Bus() + s.KernelDriver() + s.PCIID()
	}

	outside := !d.Dummy() && d.WireguardConfig() == nil && name != loopback

	l.part(name, outside, d.Addresses(), d.Routes(), d.DHCP())

	for _, vlan := range d.Vlans() {
		l.part(name, outside, vlan.Addresses(), vlan.Routes(), vlan.DHCP())
	}
}

func (l *links) part(name string, outside bool, addresses []string, routes []config.Route, dhcp bool) {
	for _, text := range addresses {
		l.networks = append(l.networks, prefix(text).Prefix)
	}

	for _, route := range routes {
		if route.Gateway() == "" {
			l.networks = append(l.networks, prefix(route.Network()).Prefix)
		} else {
			l.gateways = append(l.gateways, address(route.Gateway()).Addr)
		}
	}

	if dhcp {
		l.dhcp[name] = true
	}

	l.addressed = l.addressed || outside && (dhcp || len(addresses) > 0)
}
