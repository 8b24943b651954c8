package netconfig

import (
	"cmp"
	"slices"

	talos "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// takenPorts are those of etcd, Kubernetes and Talos on a machine, also on localhost, which KubePrism cannot have.
var takenPorts = []int32{2379, 2380, 6443, 10248, 10249, 10250, 10256, 10257, 10259, 50000, 50001}

// KubePrismPort returns the port of KubePrism on the machines of a cluster, or 0 without KubePrism.
func KubePrismPort(k *v1alpha1.KubePrism) int32 {
	switch {
	case k == nil:
		return constants.DefaultKubePrismPort
	case !ptr.Deref(k.Enabled, true):
		return 0
	}

	return cmp.Or(k.Port, constants.DefaultKubePrismPort)
}

func (c Cluster) checkKubePrism(path *field.Path) field.ErrorList {
	k := c.KubePrism
	if k == nil || k.Port == 0 || k.Port > 0 && k.Port <= 65535 && !slices.Contains(takenPorts, k.Port) {
		return nil
	}

	return field.ErrorList{field.Invalid(path.Child("port"), k.Port,
		"must be a port that neither etcd nor Kubernetes nor Talos uses")}
}

// ApplyKubePrism writes KubePrism into the main document.
func (c Cluster) ApplyKubePrism(m *talos.MachineConfig) {
	k := c.KubePrism
	if k == nil {
		return
	}

	if m.MachineFeatures == nil {
		m.MachineFeatures = &talos.FeaturesConfig{}
	}

	if m.MachineFeatures.KubePrismSupport == nil {
		m.MachineFeatures.KubePrismSupport = &talos.KubePrism{}
	}

	into := m.MachineFeatures.KubePrismSupport

	if k.Enabled != nil {
		into.ServerEnabled = k.Enabled
	}

	if k.Port != 0 {
		into.ServerPort = int(k.Port)
	}
}
