package desired

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// BundleConfig returns the parameters that a new cluster of the object is created with.
func BundleConfig(cp *v1alpha1.TalosControlPlane) clusterstate.BundleConfig {
	spec := &cp.Spec
	network := NetworkOf(spec.Network)

	return clusterstate.BundleConfig{
		ClusterName: cmp.Or(spec.ClusterName, cp.Name), Endpoint: spec.Endpoint,
		TalosVersion: spec.TalosVersion, KubernetesVersion: spec.KubernetesVersion,
		Contract: contract(spec.TalosVersion), PodSubnets: network.PodSubnets, ServiceSubnets: network.ServiceSubnets,
		DNSDomain: network.DNSDomain, CertSANs: spec.CertSANs, KubePrism: kubePrism(spec.KubePrism),
	}
}

// kubePrism writes down the load balancer that the manifests of a new cluster name.
func kubePrism(k *v1alpha1.KubePrism) string {
	port := netconfig.KubePrismPort(k)
	if port == 0 {
		return "off"
	}

	return strconv.Itoa(int(port))
}

// NetworkOf returns the network of a cluster with all defaults applied.
func NetworkOf(n v1alpha1.ClusterNetwork) v1alpha1.ClusterNetwork {
	if len(n.PodSubnets) == 0 {
		n.PodSubnets = []string{machineconfig.DefaultPodSubnet}
	}

	if len(n.ServiceSubnets) == 0 {
		n.ServiceSubnets = []string{machineconfig.DefaultServiceSubnet}
	}

	n.DNSDomain = cmp.Or(n.DNSDomain, machineconfig.DefaultDNSDomain)

	return n
}

// contract returns the minor version of a Talos version, v1.13 for v1.13.9.
func contract(version string) string {
	parts := strings.SplitN(version, ".", 3)

	return strings.Join(parts[:min(2, len(parts))], ".")
}
