// Package netconfig turns the network of a machine into what Talos reads: documents since 1.12, machine.network before.
//
// Both ways give the same network. What one of them cannot express is refused with the path of the field; Talos itself
// accepts much that cannot work, so Check looks for that first.
package netconfig

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Root is the path that errors begin with.
const Root = "network"

// linkNameMax is how many bytes the name of a link has at most (IFNAMSIZ of Linux, without its NUL).
const linkNameMax = 15

// notBefore112 ends the message about a field that only documents have.
const notBefore112 = "needs a cluster that was created with Talos 1.12 or later; remove it, or use a patch"

// link is what an interface and a VLAN have in common.
type link struct {
	path      *field.Path
	dhcp      bool
	options   *v1alpha1.DHCPOptions
	addresses []string
	priority  int32
	routes    []v1alpha1.Route
	mtu       int32
	vip       *v1alpha1.VirtualIP
}

func ofInterface(path *field.Path, i v1alpha1.NetworkInterface) link {
	return link{path, ptr.Deref(i.DHCP, false), i.DHCPOptions, i.Addresses, i.AddressRoutePriority, i.Routes, i.MTU, i.VIP}
}

func ofVLAN(path *field.Path, v v1alpha1.VLAN) link {
	return link{path, ptr.Deref(v.DHCP, false), v.DHCPOptions, v.Addresses, v.AddressRoutePriority, v.Routes, v.MTU, v.VIP}
}

func interfacePath(i int) *field.Path { return field.NewPath(Root, "interfaces").Index(i) }

func parseAddr(path *field.Path, text string) (netip.Addr, *field.Error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return addr, field.Invalid(path, text, "is not an IP address")
	}

	return addr, nil
}

func parsePrefix(path *field.Path, text string) (netip.Prefix, *field.Error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, field.Invalid(path, text, "is not in CIDR notation, such as 10.0.0.11/24")
	}

	return prefix, nil
}

// wants tells for which families a link requests addresses.
func (l link) wants() (v4, v6 bool) {
	if !l.dhcp {
		return false, false
	}

	if l.options == nil {
		return true, false
	}

	return ptr.Deref(l.options.IPv4, true), ptr.Deref(l.options.IPv6, false)
}
