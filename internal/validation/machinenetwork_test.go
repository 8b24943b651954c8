package validation_test

import (
	"fmt"
	"iter"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// TestMachineNetworks: what cannot work is told with its path, as is an address of two machines, unless it is on lo or
// a dummy.
func TestMachineNetworks(t *testing.T) {
	t.Parallel()

	of := func(interfaces ...v1alpha1.NetworkInterface) *v1alpha1.MachineNetwork {
		return &v1alpha1.MachineNetwork{Interfaces: interfaces}
	}
	one := func(address string) v1alpha1.NetworkInterface {
		return v1alpha1.NetworkInterface{Name: "eth0", Addresses: []string{address}}
	}
	list := func(networks ...*v1alpha1.MachineNetwork) iter.Seq2[string, *v1alpha1.MachineEntry] {
		return func(yield func(string, *v1alpha1.MachineEntry) bool) {
			for i, n := range networks {
				name := fmt.Sprintf("m%d", i)
				if !yield(fmt.Sprintf("spec.machines[%d]", i), &v1alpha1.MachineEntry{Name: name, Network: n}) {
					return
				}
			}
		}
	}
	anycast := []v1alpha1.NetworkInterface{
		{Name: "lo", Addresses: []string{"10.9.9.9/32"}}, {Name: "d", Dummy: new(true), Addresses: []string{"10.9.9.8/32"}},
	}
	tagged := v1alpha1.NetworkInterface{Name: "a", VLANs: []v1alpha1.VLAN{{ID: 5, Addresses: []string{"10.0.0.1/24"}}}}
	virtual := v1alpha1.NetworkInterface{Name: "a", VIP: &v1alpha1.VirtualIP{Address: "10.0.0.9"}}

	tunnel := v1alpha1.NetworkInterface{
		Name: "wg0", WireGuard: &v1alpha1.WireGuard{PrivateKeyFrom: v1alpha1.SecretKeyReference{Name: "wg", Key: "k"}},
	}

	check(t, validation.MachineNetworks(list(of(tunnel), of(tunnel)), false),
		"spec.machines[1].network.interfaces[0].wireguard.privateKeyFrom: is also the private key of wg0 of m0")
	check(t, validation.MachineNetworks(list(nil, of(one("10.0.0.1/24")), of(one("10.0.0.2/24"))), false))
	check(t, validation.MachineNetworks(list(of(anycast...), of(anycast...)), false))
	check(t, validation.MachineNetworks(list(of(virtual), of(virtual)), false))
	check(t, validation.MachineNetworks(list(of(one("fe80::1/64")), of(one("fe80::1/64"))), false))
	check(t, validation.MachineNetworks(list(of(one("10.0.0.9/24")), of(virtual)), false),
		"spec.machines[1].network.interfaces[0].vip.address: 10.0.0.9 is an address of m0")
	check(t, validation.MachineNetworks(list(nil, of(one("10.0.0.1"))), false), "spec.machines[1].network.interfaces[0].addresses[0]: ")
	check(t, validation.MachineNetworks(list(of(one("10.0.0.1/24")), of(tagged)), false),
		"spec.machines[0].network.interfaces[0].addresses[0]: 10.0.0.1 is also the address of m1",
		"spec.machines[1].network.interfaces[0].vlans[0].addresses[0]: 10.0.0.1 is also the address of m0")
}
