package netconfig

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Check returns what cannot work on any version of Talos, or nothing. worker is true for the network of a worker,
// patched if patches may add addresses and routes to it: CheckPatched says whether they do.
func Check(n v1alpha1.MachineNetwork, worker, patched bool) field.ErrorList {
	c := checker{
		worker: worker, patched: patched,
		names: map[string]string{}, addresses: map[netip.Addr]string{}, members: map[string]string{},
	}

	c.errs = append(c.errs, CheckShared(field.NewPath(Root), &n.SharedNetwork)...)

	for i, one := range n.Interfaces {
		c.one(interfacePath(i), one)
	}

	c.enslaved(n.Interfaces)
	c.routing(n)

	// Last, because an address may be listed after the virtual one.
	for i, one := range n.Interfaces {
		c.vip(interfacePath(i).Child("vip"), one.VIP)

		for j, vlan := range one.VLANs {
			c.vip(interfacePath(i).Child("vlans").Index(j).Child("vip"), vlan.VIP)
		}
	}

	return c.errs
}

// CheckShared returns what is wrong with what machines have in common; n may be nil. path is that of n.
func CheckShared(path *field.Path, n *v1alpha1.SharedNetwork) field.ErrorList {
	if n == nil {
		return nil
	}

	var c checker

	for i, server := range n.Nameservers {
		c.addr(path.Child("nameservers").Index(i), server)
	}

	known := map[string]bool{}

	for i, host := range n.Hosts {
		at := path.Child("hosts").Index(i).Child("address")
		c.addr(at, host.Address)

		if address := addressOf(host); known[address] {
			c.add(field.Duplicate(at, host.Address))
		} else {
			known[address] = true
		}
	}

	return c.errs
}

// checker remembers what has to be unique on a machine, with the path that had it first.
type checker struct {
	worker    bool
	patched   bool
	also      *also
	errs      field.ErrorList
	names     map[string]string
	addresses map[netip.Addr]string
	members   map[string]string
}

func (c *checker) add(err *field.Error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *checker) addr(path *field.Path, text string) {
	_, err := parseAddr(path, text)
	c.add(err)
}

func (c *checker) one(path *field.Path, i v1alpha1.NetworkInterface) {
	c.identity(path, i)
	c.hardwareAddress(path.Child("hardwareAddress"), i)
	c.link(ofInterface(path, i))
	c.bond(path.Child("bond"), i.Bond)
	c.wireGuard(path, i)

	if i.Bridge != nil {
		for j, name := range i.Bridge.Interfaces {
			c.member(path.Child("bridge", "interfaces").Index(j), i.Name, name)
		}
	}

	ids := map[int32]bool{}

	for j, vlan := range i.VLANs {
		at := path.Child("vlans").Index(j)

		if vlan.ID < 1 || vlan.ID > 4094 {
			c.add(field.Invalid(at.Child("id"), vlan.ID, "must be between 1 and 4094"))
		} else if ids[vlan.ID] {
			c.add(field.Duplicate(at.Child("id"), vlan.ID))
		}

		ids[vlan.ID] = true

		if i.MTU > 0 && vlan.MTU > i.MTU {
			c.add(field.Invalid(at.Child("mtu"), vlan.MTU, fmt.Sprintf("is more than the %d of its interface", i.MTU)))
		}

		c.link(ofVLAN(at, vlan))
	}
}

// identity checks that an interface is selected in one way, and that no other one is selected alike.
func (c *checker) identity(path *field.Path, i v1alpha1.NetworkInterface) {
	key := "name " + i.Name

	switch {
	case i.Name != "" && i.MACAddress == "" && i.Selector == nil:
		c.name(path.Child("name"), i.Name)
	case i.MACAddress != "" && i.Name == "" && i.Selector == nil:
		if _, err := permanentAddress(i.MACAddress); err != nil {
			c.add(field.Invalid(path.Child("macAddress"), i.MACAddress, err.Error()))
		}

		key = "address " + strings.ToLower(i.MACAddress)
	case i.Selector != nil && i.Name == "" && i.MACAddress == "":
		key = "selector " + expression(*i.Selector)
		if expression(*i.Selector) == "" {
			c.add(field.Required(path.Child("selector"), "set at least one property"))
		}
	default:
		c.add(field.Required(path, "set exactly one of name, macAddress and selector"))

		return
	}

	if first, ok := c.names[key]; ok {
		c.add(field.Invalid(path, i.Name, "is the same interface as "+first+"; put both into one entry"))
	}

	c.names[key] = path.String()
}

// hardwareAddress checks the address that a link gets. Talos sets it only for those that it creates.
func (c *checker) hardwareAddress(path *field.Path, i v1alpha1.NetworkInterface) {
	if i.HardwareAddress == "" {
		return
	}

	if i.Bond == nil && i.Bridge == nil && !ptr.Deref(i.Dummy, false) {
		c.add(field.Forbidden(path, "is for bonds, bridges and dummies; remove it, or select the interface by macAddress"))
	}

	switch mac, err := net.ParseMAC(i.HardwareAddress); {
	case err != nil || len(mac) != 6:
		c.add(field.Invalid(path, i.HardwareAddress, "is no hardware address like 02:1a:2b:3c:4d:5e"))
	case mac[0]&1 == 1:
		c.add(field.Invalid(path, i.HardwareAddress, "is the address of a multicast group, which no interface can have"))
	case slices.Max(mac) == 0:
		c.add(field.Invalid(path, i.HardwareAddress, "is not an address that an interface can have"))
	}
}

func (c *checker) name(path *field.Path, name string) {
	if len(name) > linkNameMax {
		c.add(field.TooLong(path, name, linkNameMax))
	}

	if strings.ContainsAny(name, "/ \t\n\x00") || name == "." || name == ".." {
		c.add(field.Invalid(path, name, "is no name of an interface: it has a space, a slash, or dots only"))
	}
}

func (c *checker) link(l link) {
	if l.mtu != 0 && (l.mtu < 68 || l.mtu > 65535) {
		c.add(field.Invalid(l.path.Child("mtu"), l.mtu, "must be between 68 and 65535"))
	}

	for i, text := range l.addresses {
		at := l.path.Child("addresses").Index(i)

		prefix, err := parsePrefix(at, text)
		switch first, taken := c.addresses[prefix.Addr()]; {
		case err != nil:
			c.add(err)

			continue
		case prefix.Addr().IsUnspecified() || prefix.Addr().IsMulticast():
			c.add(field.Invalid(at, text, "is not an address that a machine can have"))
		case taken && !prefix.Addr().IsLinkLocalUnicast():
			c.add(field.Invalid(at, text, "is an address of "+first+", too"))
		}

		c.addresses[prefix.Addr()] = at.String()
	}

	if l.priority < 0 || l.priority > 0 && len(l.addresses) == 0 {
		c.add(field.Invalid(l.path.Child("addressRoutePriority"), l.priority, "needs addresses, and must not be negative"))
	}

	c.dhcp(l)

	for i, route := range l.routes {
		c.route(l, l.path.Child("routes").Index(i), route)
	}
}

func (c *checker) dhcp(l link) {
	if l.options == nil {
		return
	}

	path := l.path.Child("dhcpOptions")

	if v4, v6 := l.wants(); l.dhcp && !v4 && !v6 {
		c.add(field.Forbidden(path, "turns IPv4 off and IPv6 not on; remove dhcp instead"))
	}

	if (l.options.ClientIdentifier == "duid") != (l.options.DUID != "") {
		c.add(field.Forbidden(path.Child("duid"), "duid belongs to clientIdentifier: duid, and only to it"))
	}
}

// route checks one route: Talos accepts those that the kernel refuses later, without a word.
func (c *checker) route(l link, path *field.Path, r v1alpha1.Route) {
	if r.Network == "" && r.Gateway == "" {
		c.add(field.Required(path, "needs a network, a gateway, or both"))
	}

	network, gateway, source := c.routeParts(path, r)

	if network.IsValid() && network.Masked() != network {
		c.add(field.Invalid(path.Child("network"), r.Network,
			"has bits outside of its prefix; write "+network.Masked().String()))
	}

	if network.IsValid() && gateway.IsValid() && network.Addr().Is4() != gateway.Is4() {
		c.add(field.Invalid(path.Child("gateway"), r.Gateway, "is of another IP family than "+r.Network))
	}

	if source.IsValid() && (gateway.IsValid() && source.Is4() != gateway.Is4() ||
		network.IsValid() && source.Is4() != network.Addr().Is4()) {
		c.add(field.Invalid(path.Child("source"), r.Source, "is of another IP family than the route"))
	}

	if gateway.IsValid() && !c.patched {
		c.gateway(l, path.Child("gateway"), gateway)
	}
}

func (c *checker) routeParts(path *field.Path, r v1alpha1.Route) (network netip.Prefix, gateway, source netip.Addr) {
	var err *field.Error

	if r.Network != "" {
		network, err = parsePrefix(path.Child("network"), r.Network)
		c.add(err)
	}

	if r.Gateway != "" {
		gateway, err = parseAddr(path.Child("gateway"), r.Gateway)
		c.add(err)
	}

	if r.Source != "" {
		source, err = parseAddr(path.Child("source"), r.Source)
		c.add(err)
	}

	return network, gateway, source
}

// reaches tells whether a gateway may be reached over the link itself. An address that comes by DHCP is not known.
func (l link) reaches(gateway netip.Addr) bool {
	// IPv6 machines learn networks from routers, which no field tells.
	if v4, _ := l.wants(); gateway.Is6() || v4 || gateway.IsLinkLocalUnicast() {
		return true
	}

	for _, text := range l.addresses {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Contains(gateway) {
			return true
		}
	}

	for _, route := range l.routes {
		if prefix, err := netip.ParsePrefix(route.Network); err == nil && route.Gateway == "" && prefix.Contains(gateway) {
			return true
		}
	}

	return false
}

func (c *checker) vip(path *field.Path, vip *v1alpha1.VirtualIP) {
	if vip == nil {
		return
	}

	addr, err := parseAddr(path.Child("address"), vip.Address)
	if err != nil {
		c.add(err)

		return
	}

	if vip.HCloud != nil && vip.EquinixMetal != nil {
		c.add(field.Forbidden(path, "is assigned by hcloud or by equinixMetal, not by both"))
	}

	if c.worker {
		c.add(field.Forbidden(path, "a worker cannot have a virtual IP address: its owner is elected by etcd"))
	}

	if first, taken := c.addresses[addr]; taken {
		c.add(field.Invalid(path.Child("address"), vip.Address, "is the machine's own address in "+first))
	}
}

// member notes that an interface belongs to a bond or a bridge.
func (c *checker) member(path *field.Path, master, name string) {
	c.name(path, name)

	switch first, taken := c.members[name]; {
	case name == master:
		c.add(field.Invalid(path, name, "cannot be a member of itself"))
	case taken:
		c.add(field.Invalid(path, name, "is a member of "+first+", too"))
	}

	c.members[name] = master
}

// enslaved checks that members of bonds and bridges have nothing of their own: the kernel would ignore it.
func (c *checker) enslaved(all []v1alpha1.NetworkInterface) {
	for i, one := range all {
		master, ok := c.members[one.Name]
		if !ok || one.Name == "" {
			continue
		}

		if len(one.Addresses)+len(one.Routes) > 0 || ptr.Deref(one.DHCP, false) || one.VIP != nil {
			c.add(field.Forbidden(interfacePath(i),
				one.Name+" is a member of "+master+" and cannot have addresses or routes; give them to "+master))
		}
	}
}
