package validation

import (
	"fmt"
	"iter"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// MachineNetworks checks the networks of the machines of a group, which are listed by the path of their fields, and
// that no two of them have the same address. worker is true for a group of workers.
func MachineNetworks(machines iter.Seq2[string, *v1alpha1.MachineEntry], worker bool) Failures {
	var (
		failures Failures
		claims   []Claim
	)

	for path, m := range machines {
		if m.Network == nil {
			continue
		}

		problems := netconfig.Check(*m.Network, worker)
		for _, problem := range problems {
			failures = append(failures, Failure{
				Field: path + "." + problem.Field, Problem: problem.ErrorBody(), Remedy: "correct the network of " + m.Name,
			})
		}

		// The others would only repeat what is wrong.
		if len(problems) == 0 {
			claims = append(claims, addressesOf(path, m)...)
		}
	}

	for _, failure := range Addresses(claims) {
		failure.Remedy = "give every machine addresses of its own"
		failures = append(failures, failure)
	}

	return failures.sorted()
}

// addressesOf returns the addresses that only one machine may have: those of lo and of dummies may be anycast ones.
func addressesOf(path string, m *v1alpha1.MachineEntry) []Claim {
	var claims []Claim

	add := func(path string, addresses []string) {
		for i, address := range addresses {
			address, _, _ = strings.Cut(address, "/")
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
