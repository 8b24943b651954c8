package validation

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// MachineNetworks checks the networks of control-plane machines, which are listed by the path of their fields, and that
// no two of them have the same address, nor the virtual one. patched is true if patches of all of them may add to it.
func MachineNetworks(machines iter.Seq2[string, *v1alpha1.MachineEntry], patched bool) Failures {
	var (
		failures Failures
		claims   []Claim
		virtual  = map[string]Failure{}
		keys     = map[v1alpha1.SecretKeyReference]string{}
	)

	for path, m := range machines {
		claims = append(claims, Claim{Owner: m.Name, Address: m.Address})

		if m.Network == nil {
			continue
		}

		problems := netconfig.Check(*m.Network, false, patched || len(m.ConfigPatches)+len(m.ConfigPatchesFrom) > 0)
		for _, problem := range problems {
			failures = append(failures, Failure{
				Field: path + "." + problem.Field, Problem: problem.ErrorBody(), Remedy: "correct the network of " + m.Name,
			})
		}

		// The others would only repeat what is wrong.
		if len(problems) == 0 {
			claims = append(claims, addressesOf(path, m)...)
			virtualOf(path, m, virtual)

			failures = append(failures, sharedKeys(path, m, keys)...)
		}
	}

	for _, claim := range claims {
		if failure, taken := virtual[claim.Address]; taken {
			failure.Problem = fmt.Sprintf("%s is an address of %s", claim.Address, claim.Owner)
			failures = append(failures, failure)
		}
	}

	for _, failure := range Addresses(claims) {
		failure.Remedy = "give every machine addresses of its own"
		failures = append(failures, failure)
	}

	return failures.sorted()
}

// sharedKeys finds private keys of WireGuard that an interface before has, too: peers tell interfaces by their keys.
// keys are those of all interfaces so far, with their owners.
func sharedKeys(path string, m *v1alpha1.MachineEntry, keys map[v1alpha1.SecretKeyReference]string) Failures {
	var failures Failures

	for i, one := range m.Network.Interfaces {
		if one.WireGuard == nil {
			continue
		}

		if first, taken := keys[one.WireGuard.PrivateKeyFrom]; taken {
			failures = append(failures, Failure{
				Field:   fmt.Sprintf("%s.network.interfaces[%d].wireguard.privateKeyFrom", path, i),
				Problem: "is also the private key of " + first, Remedy: "give every interface a key of its own",
			})
		}

		keys[one.WireGuard.PrivateKeyFrom] = fmt.Sprintf("%s of %s", one.Name, m.Name)
	}

	return failures
}

// virtualOf adds the virtual addresses of a machine, with what to say where one is an address of a machine.
func virtualOf(path string, m *v1alpha1.MachineEntry, virtual map[string]Failure) {
	add := func(path string, vip *v1alpha1.VirtualIP) {
		if vip != nil {
			virtual[vip.Address] = Failure{
				Field: path + ".vip.address", Remedy: "use an address that no machine has",
			}
		}
	}

	for i, one := range m.Network.Interfaces {
		at := fmt.Sprintf("%s.network.interfaces[%d]", path, i)
		add(at, one.VIP)

		for j, vlan := range one.VLANs {
			add(fmt.Sprintf("%s.vlans[%d]", at, j), vlan.VIP)
		}
	}
}

// addressesOf returns the addresses that only one machine may have: those of lo and of dummies may be anycast ones.
func addressesOf(path string, m *v1alpha1.MachineEntry) []Claim {
	var claims []Claim

	add := func(path string, addresses []string) {
		for i, address := range addresses {
			address, _, _ = strings.Cut(address, "/")

			if addr, err := netip.ParseAddr(address); err == nil && addr.IsLinkLocalUnicast() {
				continue
			}

			claims = append(claims, Claim{
				Owner: m.Name, Field: fmt.Sprintf("%s.addresses[%d]", path, i), Address: address,
			})
		}
	}

	for i, one := range m.Network.Interfaces {
		if one.Name == "lo" || one.Dummy != nil && *one.Dummy {
			continue
		}

		at := fmt.Sprintf("%s.network.interfaces[%d]", path, i)
		add(at, one.Addresses)

		for j, vlan := range one.VLANs {
			add(fmt.Sprintf("%s.vlans[%d]", at, j), vlan.Addresses)
		}
	}

	return claims
}
