package remediation

import (
	"fmt"
	"iter"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// Listed returns all machines that a spec names, including spares, by their field.
func Listed(machines, spares []v1alpha1.MachineEntry) iter.Seq2[string, *v1alpha1.MachineEntry] {
	return func(yield func(string, *v1alpha1.MachineEntry) bool) {
		for i := range machines {
			if !yield(fmt.Sprintf("spec.machines[%d]", i), &machines[i]) {
				return
			}
		}

		for i := range spares {
			if !yield(fmt.Sprintf("spec.spares[%d]", i), &spares[i]) {
				return
			}
		}
	}
}

// Check rejects spares with the name or the address of another machine of the group.
func Check(machines, spares []v1alpha1.MachineEntry) validation.Failures {
	var (
		failures validation.Failures
		claims   []validation.Claim
	)

	fields := map[string]string{}

	for field, m := range Listed(machines, spares) {
		if other := fields[m.Name]; other != "" {
			failures = append(failures, validation.Failure{
				Field: field + ".name", Problem: fmt.Sprintf("is %s, as is that of %s", m.Name, other),
				Remedy: "give each machine a name of its own",
			})
		}

		fields[m.Name] = field

		failures = append(failures, validation.Hostname(field+".name", m.Name)...)

		if m.Address != "" {
			claims = append(claims, validation.Claim{Owner: m.Name, Field: field + ".address", Address: m.Address})
		}
	}

	return append(failures, validation.Addresses(claims)...)
}
