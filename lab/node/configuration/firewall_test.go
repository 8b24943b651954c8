package configuration_test

import (
	"net/netip"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/talos-operator/talos-operator/lab/node/configuration"
)

// TestAccepts: with a default of block, what a rule lets in; with accept, all but what a rule for the port keeps out.
func TestAccepts(t *testing.T) {
	t.Parallel()

	const (
		block = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n"
		one   = "---\napiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: one\nportSelector: {ports: [50000-50001], protocol: tcp}\n" +
			"ingress: [{subnet: 127.1.0.0/16, except: 127.1.1.0/24}, {subnet: 127.1.1.1/32}]\n"
		two = "---\napiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: two\nportSelector: {ports: [50000], protocol: tcp}\n" +
			"ingress: [{subnet: 127.0.0.1/32}]\n"
		udp = "---\napiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: udp\nportSelector: {ports: [50000], protocol: udp}\n" +
			"ingress: [{subnet: 127.0.0.1/32}]\n"
	)

	for name, tt := range map[string]struct {
		config, from string
		port         uint16
		want         bool
	}{
		"blocked":                    {block, "127.0.0.1", 50000, false},
		"let in":                     {block + one, "127.1.0.9", 50001, true},
		"another port":               {block + one, "127.1.0.9", 6443, false},
		"another network":            {block + one, "127.0.0.1", 50000, false},
		"excepted":                   {block + one, "127.1.1.9", 50000, false},
		"excepted and listed":        {block + one, "127.1.1.1", 50000, false},
		"by the second rule":         {block + one + two, "127.0.0.1", 50000, true},
		"another protocol":           {block + udp, "127.0.0.1", 50000, false},
		"accepted":                   {udp, "127.1.0.9", 50000, true},
		"accepted, another port":     {one, "127.0.0.1", 6443, true},
		"accepted, kept out":         {one, "127.0.0.1", 50000, false},
		"accepted, named":            {one, "127.1.0.9", 50000, true},
		"accepted, by one of two":    {one + two, "127.1.0.9", 50000, false},
		"accepted, rule of one port": {one + two, "127.1.0.9", 50001, true},
	} {
		cfg, err := configloader.NewFromBytes([]byte(tt.config))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if got := configuration.Accepts(cfg, tt.port, netip.MustParseAddr(tt.from)); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
