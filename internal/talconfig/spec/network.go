package spec

import (
	"slices"
	"strings"

	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
)

// setInterfaces describes the network of a machine whose Talos reads it from the main document by typed fields, if they
// result in the same. The documents of later versions differ in what they leave to Talos: patches hold those.
func (b *builder) setInterfaces(n *node) {
	if b.fleet.HasDocuments() || n.main.MachineConfig.MachineNetwork == nil {
		return
	}

	interfaces := interfacesOf(n.main.MachineConfig.MachineNetwork.NetworkInterfaces)
	if len(interfaces) == 0 {
		return
	}

	was := n.entry.Network

	with := v1alpha1.MachineNetwork{}
	if was != nil {
		with = *was
	}

	with.Interfaces = interfaces
	n.entry.Network = &with

	rendered, err := machineconfig.Render(desired.Input(b.sources(n, desired.Patches{})))
	if err == nil {
		var difference machineconfig.Difference

		difference, err = machineconfig.Diff(rendered.Bytes, n.config)
		if err == nil && !slices.ContainsFunc(difference.Paths(), func(field string) bool {
			return strings.HasPrefix(field, "machine.network.interfaces")
		}) {
			return
		}
	}

	n.entry.Network = was
}

// interfacesOf leaves out what typed fields cannot express, which the comparison finds. It is empty where a device
// holds a secret.
func interfacesOf(devices []*talosv1alpha1.Device) []v1alpha1.NetworkInterface {
	out := make([]v1alpha1.NetworkInterface, 0, len(devices))

	for _, d := range devices {
		if d == nil || d.DeviceWireguardConfig != nil {
			return nil
		}

		one := v1alpha1.NetworkInterface{
			Name: d.DeviceInterface, Addresses: d.DeviceAddresses, MTU: int32(d.DeviceMTU), DHCP: d.DeviceDHCP,
			DHCPOptions: dhcp(d.DeviceDHCPOptions), Routes: routes(d.DeviceRoutes), VIP: vip(d.DeviceVIPConfig),
			Ignore: d.DeviceIgnore, Dummy: d.DeviceDummy, Bond: bond(d.DeviceBond),
		}

		if d.DeviceSelector != nil {
			one.Selector = selector(*d.DeviceSelector)
		}

		if br := d.DeviceBridge; br != nil {
			one.Bridge = &v1alpha1.Bridge{Interfaces: br.BridgedInterfaces}
			if br.BridgeSTP != nil {
				one.Bridge.STP = br.BridgeSTP.STPEnabled
			}

			if br.BridgeVLAN != nil {
				one.Bridge.VLANFiltering = br.BridgeVLAN.BridgeVLANFiltering
			}
		}

		for _, v := range d.DeviceVlans {
			one.VLANs = append(one.VLANs, v1alpha1.VLAN{
				ID: int32(v.VlanID), Addresses: v.VlanAddresses, MTU: int32(v.VlanMTU), DHCP: v.VlanDHCP,
				DHCPOptions: dhcp(v.VlanDHCPOptions), Routes: routes(v.VlanRoutes), VIP: vip(v.VlanVIP),
			})
		}

		if !isValid(one) {
			return nil
		}

		out = append(out, one)
	}

	if len(out) > mostInterfaces {
		return nil
	}

	return out
}

// Limits of the API.
const (
	mostInterfaces = 32
	mostVLANs      = 32
	mostAddresses  = 16
)

// isValid reports whether the API accepts an interface, as far as the rules go that only the API has.
func isValid(i v1alpha1.NetworkInterface) bool {
	hasOther := ptr.Deref(i.DHCP, false) || len(i.Addresses)+len(i.Routes)+len(i.VLANs) > 0 || i.VIP != nil ||
		i.Bond != nil ||
		i.Bridge != nil
	isVirtual := i.Bond != nil || i.Bridge != nil || ptr.Deref(i.Dummy, false)

	switch {
	case (i.Name == "") == (i.Selector == nil), isVirtual && i.Name == "", ptr.Deref(i.Ignore, false) && hasOther,
		len(i.VLANs) > mostVLANs, len(i.Addresses) > mostAddresses,
		i.Bond != nil && (len(i.Bond.Interfaces) == 0) == (len(i.Bond.Selectors) == 0):
		return false
	}

	return !slices.ContainsFunc(i.VLANs, func(v v1alpha1.VLAN) bool { return len(v.Addresses) > mostAddresses })
}

func dhcp(o *talosv1alpha1.DHCPOptions) *v1alpha1.DHCPOptions {
	if o == nil || o.DHCPDUIDv6 != "" {
		return nil
	}

	return &v1alpha1.DHCPOptions{IPv4: o.DHCPIPv4, IPv6: o.DHCPIPv6, RouteMetric: int32(o.DHCPRouteMetric)}
}

func routes(list []*talosv1alpha1.Route) []v1alpha1.Route {
	var out []v1alpha1.Route

	for _, r := range list {
		out = append(out, v1alpha1.Route{
			Network: r.RouteNetwork, Gateway: r.RouteGateway, Source: r.RouteSource, Metric: int32(r.RouteMetric),
			MTU: int32(r.RouteMTU),
		})
	}

	return out
}

func vip(v *talosv1alpha1.DeviceVIPConfig) *v1alpha1.VirtualIP {
	if v == nil {
		return nil
	}

	return &v1alpha1.VirtualIP{Address: v.SharedIP}
}

func selector(s talosv1alpha1.NetworkDeviceSelector) *v1alpha1.LinkSelector {
	return &v1alpha1.LinkSelector{
		BusPath: s.NetworkDeviceBus, Driver: s.NetworkDeviceKernelDriver, PCIID: s.NetworkDevicePCIID,
		HardwareAddress: s.NetworkDeviceHardwareAddress, PermanentAddress: s.NetworkDevicePermanentAddress,
		Physical: s.NetworkDevicePhysical,
	}
}

func bond(b *talosv1alpha1.Bond) *v1alpha1.Bond {
	if b == nil {
		return nil
	}

	out := &v1alpha1.Bond{
		Interfaces: b.BondInterfaces, Mode: b.BondMode, XmitHashPolicy: b.BondHashPolicy, LACPRate: b.BondLACPRate,
		ARPValidate: b.BondARPValidate, ARPAllTargets: b.BondARPAllTargets, Primary: b.BondPrimary,
		PrimaryReselect: b.BondPrimaryReselect, FailOverMAC: b.BondFailOverMac, ADSelect: b.BondADSelect,
		UseCarrier: b.BondUseCarrier, MIIMon: some(b.BondMIIMon), UpDelay: some(b.BondUpDelay),
		DownDelay: some(b.BondDownDelay), ResendIGMP: some(b.BondResendIGMP), MinLinks: some(b.BondMinLinks),
		LPInterval: some(b.BondLPInterval), PacketsPerSlave: some(b.BondPacketsPerSlave),
		NumPeerNotif: some(b.BondNumPeerNotif), TLBDynamicLB: some(b.BondTLBDynamicLB),
		AllSlavesActive: some(b.BondAllSlavesActive), ADActorSysPrio: some(b.BondADActorSysPrio),
		ADUserPortKey: some(b.BondADUserPortKey), PeerNotifDelay: some(b.BondPeerNotifyDelay),
	}

	for _, s := range b.BondDeviceSelectors {
		out.Selectors = append(out.Selectors, *selector(s))
	}

	return out
}

func some[T uint8 | uint16 | uint32](n T) *int32 {
	if n == 0 {
		return nil
	}

	out := int32(n)

	return &out
}
