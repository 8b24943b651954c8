package cosi

import (
	"net/netip"
	"slices"

	"github.com/siderolabs/gen/xslices"
	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// link is one that a config has the node bring up.
type link struct {
	name string
	// kind of a link that the node creates, such as bond and vlan; empty for hardware, which has to be there.
	kind string
	// mtu is zero if the config does not name one.
	mtu uint32
	// parent is the link that a VLAN is on, members those of a bond or a bridge.
	parent    string
	members   []string
	vlan      network.VLANSpec
	bond      network.BondMasterSpec
	addresses []netip.Prefix
	// vips are the virtual IPs that the node may get on the link.
	vips []netip.Addr
}

// kindDummy is the kind of a link without hardware.
const kindDummy = "dummy"

// linksOf returns the links of a config, from its documents and from its main one.
func linksOf(live coreconfig.Config) []link {
	var out []link

	for _, doc := range live.NetworkCommonLinkConfigs() {
		out = append(out, linkOfDocument(doc))
	}

	for _, d := range live.Machine().Network().Devices() {
		if d.Interface() != "" && !d.Ignore() {
			out = append(out, linksOfDevice(d)...)
		}
	}

	for _, vip := range live.NetworkVirtualIPConfigs() {
		if i := slices.IndexFunc(out, func(l link) bool { return l.name == vip.Link() }); i >= 0 {
			out[i].vips = append(out[i].vips, vip.VIP())
		}
	}

	return withMembers(out)
}

// withMembers adds the members of bonds and bridges, which no document has to name: their master brings them up.
func withMembers(links []link) []link {
	for _, master := range slices.Clone(links) {
		for _, member := range master.members {
			if !slices.ContainsFunc(links, func(l link) bool { return l.name == member }) {
				links = append(links, link{name: member})
			}
		}
	}

	return links
}

func linkOfDocument(doc config.NetworkCommonLinkConfig) link {
	l := link{name: doc.Name(), mtu: doc.MTU().ValueOrZero()}

	for _, a := range doc.Addresses() {
		l.addresses = append(l.addresses, a.Address())
	}

	switch doc := doc.(type) {
	case config.NetworkVLANConfig:
		l.kind, l.parent = network.LinkKindVLAN, doc.ParentLink()
		l.vlan = network.VLANSpec{VID: doc.VLANID(), Protocol: doc.VLANMode().ValueOr(nethelpers.VLANProtocol8021Q)}
	case config.NetworkBondConfig:
		l.kind, l.members, l.bond = network.LinkKindBond, doc.Links(), bondOf(doc)
	case config.NetworkBridgeConfig:
		l.kind, l.members = network.LinkKindBridge, doc.Links()
	case config.NetworkVRFConfig:
		l.kind = network.LinkKindVRF
	case config.NetworkWireguardConfig:
		l.kind = network.LinkKindWireguard
	case config.NetworkDummyLinkConfig:
		l.kind = kindDummy
	}

	return l
}

func bondOf(doc config.NetworkBondConfig) network.BondMasterSpec {
	return network.BondMasterSpec{
		Mode: doc.Mode(), HashPolicy: doc.XmitHashPolicy().ValueOrZero(), LACPRate: doc.LACPRate().ValueOrZero(),
		MIIMon: doc.MIIMon().ValueOrZero(), UpDelay: doc.UpDelay().ValueOrZero(), DownDelay: doc.DownDelay().ValueOrZero(),
	}
}

// linksOfDevice returns the link of a device of the main document, and its VLANs.
func linksOfDevice(d config.Device) []link {
	l := link{
		name: d.Interface(), mtu: uint32(max(d.MTU(), 0)), addresses: prefixes(d.Addresses()), vips: vipOf(d.VIPConfig()),
	}

	switch {
	case d.Bond() != nil:
		l.kind, l.members, l.bond = network.LinkKindBond, d.Bond().Interfaces(), bondOfDevice(d.Bond())
	case d.Bridge() != nil:
		l.kind, l.members = network.LinkKindBridge, d.Bridge().Interfaces()
	case d.WireguardConfig() != nil:
		l.kind = network.LinkKindWireguard
	case d.Dummy():
		l.kind = kindDummy
	}

	out := []link{l}

	for _, v := range d.Vlans() {
		out = append(out, link{
			name: nethelpers.VLANLinkName(l.name, v.ID()), kind: network.LinkKindVLAN, parent: l.name, mtu: v.MTU(),
			vlan: network.VLANSpec{VID: v.ID(), Protocol: v.Mode()}, addresses: prefixes(v.Addresses()),
			vips: vipOf(v.VIPConfig()),
		})
	}

	return out
}

// bondOfDevice leaves out what it cannot read: Talos refuses it before.
func bondOfDevice(b config.Bond) network.BondMasterSpec {
	out := network.BondMasterSpec{MIIMon: b.MIIMon(), UpDelay: b.UpDelay(), DownDelay: b.DownDelay()}
	out.Mode, _ = nethelpers.BondModeByName(b.Mode())
	out.HashPolicy, _ = nethelpers.BondXmitHashPolicyByName(b.HashPolicy())
	out.LACPRate, _ = nethelpers.LACPRateByName(b.LACPRate())

	return out
}

func prefixes(texts []string) []netip.Prefix {
	var out []netip.Prefix

	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}

	return out
}

func vipOf(c config.VIPConfig) []netip.Addr {
	if c == nil {
		return nil
	}

	addr, err := netip.ParseAddr(c.IP())
	if err != nil {
		return nil
	}

	return []netip.Addr{addr}
}

// VirtualIPs returns the virtual IPs that a config has its node compete for.
func VirtualIPs(live coreconfig.Config) []netip.Addr {
	if live == nil || live.Machine() == nil {
		return nil
	}

	return xslices.FlatMap(linksOf(live), func(l link) []netip.Addr { return l.vips })
}
