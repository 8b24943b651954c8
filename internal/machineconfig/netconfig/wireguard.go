package netconfig

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// longestKeepalive is the longest interval that the kernel knows.
const longestKeepalive = 65535 * time.Second

// wireGuard checks a tunnel. Talos takes peers that can never be reached, and allowed addresses that the kernel gives
// to another peer.
func (c *checker) wireGuard(path *field.Path, i v1alpha1.NetworkInterface) {
	w := i.WireGuard
	if w == nil {
		return
	}

	path = path.Child("wireguard")

	if ptr.Deref(i.DHCP, false) || i.VIP != nil || len(i.VLANs) > 0 {
		c.add(field.Forbidden(path, "a tunnel has no Ethernet: remove dhcp, vip and vlans"))
	}

	if w.PrivateKeyFrom.Name == "" || w.PrivateKeyFrom.Key == "" {
		c.add(field.Required(path.Child("privateKeyFrom"), "name a Secret and a key in it"))
	}

	allowed := map[netip.Prefix]string{}
	keys := map[string]bool{}

	for j, peer := range w.Peers {
		at := path.Child("peers").Index(j)

		switch {
		case !isWireGuardKey(peer.PublicKey):
			c.add(field.Invalid(at.Child("publicKey"), peer.PublicKey, "is not the key of a peer, as wg pubkey prints it"))
		case keys[peer.PublicKey]:
			c.add(field.Duplicate(at.Child("publicKey"), peer.PublicKey))
		}

		keys[peer.PublicKey] = true

		c.peer(at, peer, allowed)
	}
}

// peer checks one peer. allowed are the addresses of those before it.
func (c *checker) peer(path *field.Path, peer v1alpha1.WireGuardPeer, allowed map[netip.Prefix]string) {
	if peer.Endpoint != "" {
		if end, err := netip.ParseAddrPort(peer.Endpoint); err != nil || end.Port() == 0 {
			c.add(field.Invalid(path.Child("endpoint"), peer.Endpoint,
				"is not an IP address and a port, such as 192.0.2.1:51820; Talos resolves no names here"))
		}
	}

	if keepalive := peer.PersistentKeepaliveInterval; keepalive != nil && keepalive.Duration > longestKeepalive {
		c.add(field.Invalid(path.Child("persistentKeepaliveInterval"), keepalive.Duration.String(),
			fmt.Sprintf("is more than %d seconds", int(longestKeepalive.Seconds()))))
	}

	for i, text := range peer.AllowedIPs {
		at := path.Child("allowedIPs").Index(i)

		prefix, err := parsePrefix(at, text)
		if err != nil {
			c.add(err)

			continue
		}

		switch first, taken := allowed[prefix]; {
		case prefix.Masked() != prefix:
			c.add(field.Invalid(at, text, "has bits outside of its prefix; write "+prefix.Masked().String()))
		case taken:
			c.add(field.Invalid(at, text, "is also in "+first+": the kernel would give it to one of the two"))
		}

		allowed[prefix] = at.String()
	}
}

// wireGuard returns the document of a tunnel.
func (d *documents) wireGuard(
	path *field.Path, name string, w *v1alpha1.WireGuard, common network.CommonLinkConfig,
) *network.WireguardConfigV1Alpha1 {
	doc := network.NewWireguardConfigV1Alpha1(name)
	doc.CommonLinkConfig = common
	doc.WireguardPrivateKey = d.value(path.Child("privateKeyFrom"))
	doc.WireguardListenPort, doc.WireguardFirewallMark = int(w.ListenPort), int(w.FirewallMark)

	for i, peer := range w.Peers {
		out := network.WireguardPeer{WireguardPublicKey: peer.PublicKey}

		if peer.PresharedKeyFrom != nil {
			out.WireguardPresharedKey = d.value(path.Child("peers").Index(i).Child("presharedKeyFrom"))
		}

		if end, err := netip.ParseAddrPort(peer.Endpoint); err == nil {
			out.WireguardEndpoint = network.AddrPort{AddrPort: end}
		}

		if keepalive := peer.PersistentKeepaliveInterval; keepalive != nil {
			out.WireguardPersistentKeepaliveInterval = keepalive.Duration
		}

		for _, text := range peer.AllowedIPs {
			out.WireguardAllowedIPs = append(out.WireguardAllowedIPs, prefix(text))
		}

		doc.WireguardPeers = append(doc.WireguardPeers, out)
	}

	return doc
}

func (l *legacy) wireGuard(path *field.Path, w *v1alpha1.WireGuard) *talosv1alpha1.DeviceWireguardConfig {
	if w == nil {
		return nil
	}

	out := &talosv1alpha1.DeviceWireguardConfig{
		WireguardPrivateKey: l.value(path.Child("privateKeyFrom")),
		WireguardListenPort: int(w.ListenPort), WireguardFirewallMark: int(w.FirewallMark),
	}

	for i, peer := range w.Peers {
		l.unsupported(path.Child("peers").Index(i).Child("presharedKeyFrom"), peer.PresharedKeyFrom != nil)

		one := &talosv1alpha1.DeviceWireguardPeer{
			WireguardPublicKey: peer.PublicKey, WireguardEndpoint: peer.Endpoint, WireguardAllowedIPs: peer.AllowedIPs,
		}

		if keepalive := peer.PersistentKeepaliveInterval; keepalive != nil {
			one.WireguardPersistentKeepaliveInterval = keepalive.Duration
		}

		out.WireguardPeers = append(out.WireguardPeers, one)
	}

	return out
}
