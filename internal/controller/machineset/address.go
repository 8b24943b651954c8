package machineset

import (
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// InfraAddress returns the address of a Machine to connect to: the first internal one, else the first external one.
func InfraAddress(m *vitistackv1alpha1.Machine) string {
	for _, kind := range []vitistackv1alpha1.AddressType{
		vitistackv1alpha1.AddressInternalIP, vitistackv1alpha1.AddressExternalIP,
	} {
		for _, a := range m.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
	}

	return ""
}
