package stack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/talos-operator/talos-operator/lab"
)

// settings are what a lab keeps over restarts, because the addresses of its machines depend on it.
type settings struct {
	Subnet string `json:"subnet"`
}

// settle returns the subnet of the lab in a directory: the one that it has, else the one asked for.
func settle(dir, asked string) (netip.Prefix, error) {
	kept, err := readSettings(settingsFile(dir))
	if err != nil {
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

// keep writes down where the lab lives, once it does.
func keep(dir string, subnet netip.Prefix) error {
	content, err := json.Marshal(settings{Subnet: subnet.String()})
	if err != nil {
		return fmt.Errorf("encoding the settings of the lab: %w", err)
	}

	if err := os.WriteFile(settingsFile(dir), content, 0o600); err != nil {
		return fmt.Errorf("writing the settings of the lab: %w", err)
	}

	return nil
}

func settingsFile(dir string) string { return filepath.Join(dir, "lab.json") }

func readSettings(file string) (settings, error) {
	var s settings

	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}

	if err != nil {
		return s, fmt.Errorf("reading the settings of the lab: %w", err)
	}

	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("reading the settings of the lab, %s: %w", file, err)
	}

	return s, nil
}

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
