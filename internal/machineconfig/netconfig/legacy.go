package netconfig

import (
	"net/netip"
	"strings"

	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

// The fields below are deprecated by Talos 1.12, but they are the only ones that earlier versions know.

// Legacy writes the network of a machine as Talos before 1.12 reads it, inside the main document. n has passed Check.
// values are those of its Secrets. The errors name fields that machine.network cannot express.
func Legacy(n v1alpha1.MachineNetwork, values keyref.Values, m *talosv1alpha1.MachineConfig) field.ErrorList {
	if m.MachineNetwork == nil {
		m.MachineNetwork = &talosv1alpha1.NetworkConfig{}
	}

	out := m.MachineNetwork
	out.NetworkHostname = n.Hostname
	out.NameServers = append(out.NameServers, n.Nameservers...)
	out.Searches = append(out.Searches, n.SearchDomains...)
	out.NetworkDisableSearchDomain = n.DisableDefaultSearchDomain

	if len(n.TimeServers) > 0 {
		if m.MachineTime == nil {
			m.MachineTime = &talosv1alpha1.TimeConfig{}
		}

		m.MachineTime.TimeServers = n.TimeServers
	}

	for _, host := range n.Hosts {
		out.ExtraHostEntries = append(out.ExtraHostEntries,
			&talosv1alpha1.ExtraHost{HostIP: host.Address, HostAliases: host.Hostnames})
	}

	l := legacy{reader{values: values}}

	for i := range n.RoutingRules {
		l.unsupported(rulePath(i), true)
	}

	for i := range n.BlackholeRoutes {
		l.unsupported(blackholePath(i), true)
	}

	for i, one := range n.Interfaces {
		out.NetworkInterfaces = append(out.NetworkInterfaces, l.device(interfacePath(i), one))
	}

	return l.errs
}

type legacy struct{ reader }

func (l *legacy) device(path *field.Path, i v1alpha1.NetworkInterface) *talosv1alpha1.Device {
	link := ofInterface(path, i)
	l.unsupported(path.Child("addressRoutePriority"), i.AddressRoutePriority != 0)
	l.unsupported(path.Child("hardwareAddress"), i.HardwareAddress != "")

	device := &talosv1alpha1.Device{
		DeviceInterface: i.Name, DeviceAddresses: i.Addresses, DeviceMTU: int(i.MTU), DeviceRoutes: l.routes(path, i.Routes),
		DeviceDHCP: optional.TrueOrNil(i.DHCP), DeviceDHCPOptions: l.dhcp(link),
		DeviceVIPConfig: l.vip(path.Child("vip"), i.VIP), DeviceDummy: optional.TrueOrNil(i.Dummy),
		DeviceBond: l.bond(path.Child("bond"), i.Bond), DeviceIgnore: optional.TrueOrNil(i.Ignore),
		DeviceWireguardConfig: l.wireGuard(path.Child("wireguard"), i.WireGuard),
	}

	switch {
	case i.MACAddress != "":
		device.DeviceSelector = &talosv1alpha1.NetworkDeviceSelector{
			NetworkDevicePermanentAddress: strings.ToLower(i.MACAddress),
		}
	case i.Selector != nil:
		selector := legacySelector(*i.Selector)
		device.DeviceSelector = &selector
	}

	if b := i.Bridge; b != nil {
		device.DeviceBridge = &talosv1alpha1.Bridge{BridgedInterfaces: b.Interfaces}

		if b.STP != nil {
			device.DeviceBridge.BridgeSTP = &talosv1alpha1.STP{STPEnabled: b.STP}
		}

		if b.VLANFiltering != nil {
			device.DeviceBridge.BridgeVLAN = &talosv1alpha1.BridgeVLAN{BridgeVLANFiltering: b.VLANFiltering}
		}
	}

	for j, v := range i.VLANs {
		at := path.Child("vlans").Index(j)
		l.unsupported(at.Child("protocol"), v.Protocol == "802.1ad")
		l.unsupported(at.Child("addressRoutePriority"), v.AddressRoutePriority != 0)

		device.DeviceVlans = append(device.DeviceVlans, &talosv1alpha1.Vlan{
			VlanID: uint16(v.ID), VlanAddresses: v.Addresses, VlanMTU: uint32(v.MTU),
			VlanRoutes: l.routes(at, v.Routes), VlanDHCP: optional.TrueOrNil(v.DHCP), VlanDHCPOptions: l.dhcp(ofVLAN(at, v)),
			VlanVIP: l.vip(at.Child("vip"), v.VIP),
		})
	}

	return device
}

func (l *legacy) unsupported(path *field.Path, is bool) { l.reader.unsupported(path, notBefore112, is) }

func (l *legacy) dhcp(link link) *talosv1alpha1.DHCPOptions {
	o := link.options
	if o == nil || !link.dhcp {
		return nil
	}

	at := link.path.Child("dhcpOptions")
	v4, v6 := link.wants()

	l.unsupported(at.Child("ignoreHostname"), ptr.Deref(o.IgnoreHostname, false))
	l.unsupported(at.Child("clientIdentifier"), o.ClientIdentifier == "none" || o.ClientIdentifier == "duid" && v4)

	out := &talosv1alpha1.DHCPOptions{
		DHCPRouteMetric: uint32(o.RouteMetric), DHCPIPv4: o.IPv4, DHCPIPv6: o.IPv6,
	}

	if v6 {
		out.DHCPDUIDv6 = strings.ReplaceAll(o.DUID, ":", "")
	}

	return out
}

func (l *legacy) routes(path *field.Path, routes []v1alpha1.Route) []*talosv1alpha1.Route {
	var out []*talosv1alpha1.Route

	for i, r := range routes {
		l.unsupported(path.Child("routes").Index(i).Child("table"), r.Table != 0)

		destination := r.Network
		if destination == "" {
			destination = "0.0.0.0/0"
			if gateway, err := netip.ParseAddr(r.Gateway); err == nil && gateway.Is6() {
				destination = "::/0"
			}
		}

		out = append(out, &talosv1alpha1.Route{
			RouteNetwork: destination, RouteGateway: r.Gateway, RouteSource: r.Source,
			RouteMetric: uint32(r.Metric), RouteMTU: uint32(r.MTU),
		})
	}

	return out
}

func (l *legacy) vip(path *field.Path, v *v1alpha1.VirtualIP) *talosv1alpha1.DeviceVIPConfig {
	if v == nil {
		return nil
	}

	out := &talosv1alpha1.DeviceVIPConfig{SharedIP: v.Address}

	if v.HCloud != nil {
		out.HCloudConfig = &talosv1alpha1.VIPHCloudConfig{HCloudAPIToken: l.value(path.Child("hcloud", "apiTokenFrom"))}
	}

	if v.EquinixMetal != nil {
		out.EquinixMetalConfig = &talosv1alpha1.VIPEquinixMetalConfig{
			EquinixMetalAPIToken: l.value(path.Child("equinixMetal", "apiTokenFrom")),
		}
	}

	return out
}

func legacySelector(s v1alpha1.LinkSelector) talosv1alpha1.NetworkDeviceSelector {
	return talosv1alpha1.NetworkDeviceSelector{
		NetworkDeviceBus: s.BusPath, NetworkDeviceKernelDriver: s.Driver, NetworkDevicePCIID: s.PCIID,
		NetworkDeviceHardwareAddress:  strings.ToLower(s.HardwareAddress),
		NetworkDevicePermanentAddress: strings.ToLower(s.PermanentAddress),
		NetworkDevicePhysical:         s.Physical,
	}
}

func (l *legacy) bond(path *field.Path, b *v1alpha1.Bond) *talosv1alpha1.Bond {
	if b == nil {
		return nil
	}

	l.unsupported(path.Child("arpIPTargets"), len(b.ARPIPTargets) > 0)
	l.unsupported(path.Child("nsIP6Targets"), len(b.NSIP6Targets) > 0)
	l.unsupported(path.Child("adLACPActive"), b.ADLACPActive != "")
	l.unsupported(path.Child("missedMax"), b.MissedMax != nil)

	out := &talosv1alpha1.Bond{
		BondInterfaces: b.Interfaces, BondMode: b.Mode, BondHashPolicy: b.XmitHashPolicy, BondLACPRate: b.LACPRate,
		BondARPValidate: b.ARPValidate, BondARPAllTargets: b.ARPAllTargets, BondPrimary: b.Primary,
		BondPrimaryReselect: b.PrimaryReselect, BondFailOverMac: b.FailOverMAC, BondADSelect: b.ADSelect,
		BondUseCarrier: b.UseCarrier,
		BondMIIMon:     or0[uint32](b.MIIMon), BondUpDelay: or0[uint32](b.UpDelay), BondDownDelay: or0[uint32](b.DownDelay),
		BondARPInterval: or0[uint32](b.ARPInterval), BondResendIGMP: or0[uint32](b.ResendIGMP),
		BondMinLinks: or0[uint32](b.MinLinks), BondLPInterval: or0[uint32](b.LPInterval),
		BondPacketsPerSlave: or0[uint32](b.PacketsPerSlave), BondNumPeerNotif: or0[uint8](b.NumPeerNotif),
		BondTLBDynamicLB: or0[uint8](b.TLBDynamicLB), BondAllSlavesActive: or0[uint8](b.AllSlavesActive),
		BondADActorSysPrio: or0[uint16](b.ADActorSysPrio), BondADUserPortKey: or0[uint16](b.ADUserPortKey),
		BondPeerNotifyDelay: or0[uint32](b.PeerNotifDelay),
	}

	for _, selector := range b.Selectors {
		out.BondDeviceSelectors = append(out.BondDeviceSelectors, legacySelector(selector))
	}

	return out
}

func or0[T uint8 | uint16 | uint32](n *int32) T { return T(orZero(n)) }
