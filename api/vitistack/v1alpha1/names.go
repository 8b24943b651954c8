package v1alpha1

import "cmp"

// TalosClusterName returns the name of the Talos cluster, which is also the name of the TalosControlPlane.
func (c *KubernetesCluster) TalosClusterName() string {
	return cmp.Or(c.Spec.ClusterName, c.InlineClusterName(), c.Name)
}

// InlineClusterName returns the name of the Talos cluster in spec.talosConfig; empty if it has none.
func (c *KubernetesCluster) InlineClusterName() string {
	if t := c.Spec.TalosConfig; t != nil && t.Cluster != nil {
		return t.Cluster.Name
	}

	return ""
}

// Address returns the address of a Machine to connect to: the first internal one, else the first external one; empty if
// it has none.
func (m *Machine) Address() string {
	for _, kind := range []AddressType{AddressInternalIP, AddressExternalIP} {
		for _, a := range m.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
	}

	return ""
}
