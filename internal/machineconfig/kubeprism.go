package machineconfig

import "github.com/siderolabs/talos/pkg/machinery/config"

// KubePrismField is the field of the main document that has the settings of KubePrism.
const KubePrismField = "machine.features.kubePrism"

// keepsKubePrism returns what is checked after each patch: where the manifests of a cluster name the address of
// KubePrism, a machine that listens elsewhere cuts off its own kube-proxy and flannel.
func keepsKubePrism(in Input, base config.Provider) func(patch, *draft) error {
	want := kubePrismOf(base)

	return func(p patch, d *draft) error {
		if !in.KubePrismFixed || kubePrismOf(d.known) == want {
			return nil
		}

		return p.refused("changes " + KubePrismField + ", which is fixed when a cluster is created: kube-proxy and flannel " +
			"keep using its address; remove it from the patch, and set spec.kubePrism for a new cluster")
	}
}

// ChangesKubePrism tells whether a difference is one of KubePrism, which no patch may bring to a cluster whose
// manifests name its address.
func (d Difference) ChangesKubePrism() bool {
	for _, c := range d.Changes {
		if c.Document == "" && isUnder(c.Path, KubePrismField) {
			return true
		}
	}

	return false
}

// kubePrismOf returns the port of KubePrism, or 0 without KubePrism.
func kubePrismOf(cfg config.Provider) int {
	prism := cfg.Machine().Features().KubePrism()
	if !prism.Enabled() {
		return 0
	}

	return prism.Port()
}
