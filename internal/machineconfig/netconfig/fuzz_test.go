package netconfig_test

import (
	"testing"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// FuzzNetwork: addresses are refused with their fields, or become documents; none of them holds what would be a line
// of its own in a configuration.
func FuzzNetwork(f *testing.F) {
	f.Add("10.0.0.1", "10.0.0.11/24", "10.0.0.1", "0.0.0.0/0", "10.0.0.5")
	f.Add("fe80::1%eth0", "::1/129", "fe80::1%\n", "::/0", "::ffff:10.0.0.1")
	f.Add("", "10.0.0.11", "010.0.0.1", "10.0.0.1/0", "")
	f.Add("2001:db8::1", "2001:db8::11/64", "2001:db8::1", "2001:db8:1::/48", "2001:db8::5")

	f.Fuzz(func(t *testing.T, server, address, gateway, network, vip string) {
		n := v1alpha1.MachineNetwork{
			SharedNetwork: v1alpha1.SharedNetwork{
				Nameservers: []string{server}, Hosts: []v1alpha1.StaticHost{{Address: server, Hostnames: []string{"a"}}},
			},
			Interfaces: []v1alpha1.NetworkInterface{{
				Name: "eth0", Addresses: []string{address}, VIP: &v1alpha1.VirtualIP{Address: vip},
				Routes: []v1alpha1.Route{{Network: network, Gateway: gateway}},
			}},
		}

		if len(netconfig.Check(n, false, false)) > 0 {
			return
		}

		for _, text := range []string{server, address, gateway, network, vip} {
			for _, r := range text {
				if unicode.IsSpace(r) || unicode.IsControl(r) {
					t.Errorf("%q is accepted", text)
				}
			}
		}

		if docs, errs := netconfig.Documents(n, "v1.13.9", keyref.Values{}); len(docs)+len(errs) == 0 {
			t.Error("neither documents nor errors")
		}
	})
}

// FuzzFirewall: ports and networks of a rule are refused with their fields, or mean what they say.
func FuzzFirewall(f *testing.F) {
	f.Add("10250", "10.0.0.0/8", "10.1.0.0/16")
	f.Add("2379-2380", "::/0", "fd00::/8")
	f.Add("-1", "10.0.0.1/8", "")
	f.Add("1-", "10.0.0.0/8%eth0", "10.0.0.0/8")
	f.Add("0-65536", "", "::/0")
	f.Add("1-2-3", "0.0.0.0/0", "0.0.0.0/0")

	f.Fuzz(func(t *testing.T, ports, subnet, except string) {
		rule := v1alpha1.FirewallRule{
			Name: "a", Ports: []string{ports}, Ingress: []v1alpha1.FirewallSource{{Subnet: subnet, Except: except}},
		}
		rules := &v1alpha1.IngressFirewall{Rules: []v1alpha1.FirewallRule{rule}}

		if len(netconfig.CheckFirewall(field.NewPath("firewall"), rules)) > 0 {
			return
		}

		for _, r := range ports + subnet + except {
			if unicode.IsSpace(r) || unicode.IsControl(r) {
				t.Errorf("%q from %q except %q is accepted", ports, subnet, except)
			}
		}

		if docs := netconfig.Shared(v1alpha1.MachineNetwork{}, rules); len(docs) == 0 {
			t.Error("the rule becomes no document")
		}
	})
}
