package stack

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/node/disk"
)

// settings are what a lab keeps over restarts, because the addresses of its machines depend on it.
type settings struct {
	Subnet string `json:"subnet"`
}

// settle returns the subnet of the lab in a directory: the one that it has, else the one asked for.
func settle(dir, asked string) (netip.Prefix, error) {
	var kept settings
	if _, err := disk.ReadJSON(settingsFile(dir), &kept); err != nil {
		return netip.Prefix{}, err
	}

	if kept.Subnet != "" && asked != "" && kept.Subnet != asked {
		return netip.Prefix{}, fmt.Errorf("the lab in %s uses %s and cannot move to %s: use another directory",
			dir, kept.Subnet, asked)
	}

	subnet, err := netip.ParsePrefix(cmp.Or(kept.Subnet, asked, lab.DefaultSubnet))
	if err != nil || !subnet.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("the subnet %q of a lab must be an IPv4 network such as %s", asked,
			lab.DefaultSubnet)
	}

	return subnet, nil
}

// keep writes down where the lab is kept, once it runs.
func keep(dir string, subnet netip.Prefix) error {
	return disk.WriteJSON(settingsFile(dir), settings{Subnet: subnet.String()})
}

func settingsFile(dir string) string { return filepath.Join(dir, "lab.json") }

// maxSubnets is how many labs may run side by side without a choice of subnets by hand.
const maxSubnets = 20

// FreeSubnet returns the usual subnet, or the first one after it that no lab uses.
func FreeSubnet(ctx context.Context) (string, error) {
	var lc net.ListenConfig

	for i := range byte(maxSubnets) {
		subnet := netip.MustParsePrefix(lab.DefaultSubnet)
		b := subnet.Addr().As4()
		b[1] += i
		subnet = netip.PrefixFrom(netip.AddrFrom4(b), subnet.Bits())

		l, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(lab.Reserved(subnet, managementNumber), apiServerPort).String())
		if err == nil {
			_ = l.Close()

			return subnet.String(), nil
		}
	}

	return "", fmt.Errorf("no subnet is free: %d labs are running", maxSubnets)
}

// apiServerPort is where a management plane listens.
const apiServerPort = 6443
