package endpoint_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/endpoint"
)

// FuzzList: what is shown of a list is the list, and no address of the computer or of its network segment may be called
// unless a network of the list has it.
func FuzzList(f *testing.F) {
	f.Add("*", "127.0.0.1")
	f.Add("10.0.0.0/8,s3.example.com,*.minio.example", "::ffff:169.254.169.254")
	f.Add("64:ff9b::/96", "64:ff9b::7f00:1")
	f.Add("0.0.0.0/0,::/0", "fe80::1%eth0")
	f.Add("a,127.0.0.1", "A.")

	f.Fuzz(func(t *testing.T, list, host string) {
		l, again := &endpoint.List{}, &endpoint.List{}
		if l.Set(list) != nil {
			return
		}

		if err := again.Set(l.String()); err != nil || again.String() != l.String() {
			t.Errorf("%q is shown as %q: %v", list, l.String(), err)
		}

		address, err := netip.ParseAddr(host)
		if err != nil || l.Check(host) != nil {
			return
		}

		for _, target := range targets(address) {
			if isLocal(target) && !names(list, targets(address)) {
				t.Errorf("%q allows %s, which is %s", list, host, target)
			}
		}
	})
}

// targets are the addresses that packets to an address may arrive at.
func targets(address netip.Addr) []netip.Addr {
	address = address.WithZone("").Unmap()
	if bytes := address.As16(); strings.HasPrefix(address.StringExpanded(), "0064:ff9b:0000:0000:0000:0000:") {
		return []netip.Addr{address, netip.AddrFrom4([4]byte(bytes[12:]))}
	}

	return []netip.Addr{address}
}

func isLocal(a netip.Addr) bool {
	return a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast()
}

// names reports whether a list has a network with one of the addresses, other than that of all addresses.
func names(list string, addresses []netip.Addr) bool {
	for rule := range strings.SplitSeq(list, ",") {
		network, err := netip.ParsePrefix(rule)
		if one, bad := netip.ParseAddr(rule); bad == nil {
			network, err = one.Prefix(one.BitLen())
		}

		for _, a := range addresses {
			if err == nil && network.Bits() > 0 && network.Contains(a) {
				return true
			}
		}
	}

	return false
}
