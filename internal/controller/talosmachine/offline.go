package talosmachine

import (
	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// RenderConfig renders the config that a machine would get now, for one that cannot be asked for its own. worker is nil
// for a machine of the control plane. It holds private keys.
func RenderConfig(cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker, m *v1alpha1.TalosMachine,
	state *clusterstate.State,
) (*machineconfig.Rendered, error) {
	return machineconfig.Render(ConfigInput(cp, worker, m, state))
}

// ConfigInput is what the config of a machine is rendered from. It holds private keys.
func ConfigInput(cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker, m *v1alpha1.TalosMachine,
	state *clusterstate.State,
) machineconfig.Input {
	s := &scope{machine: m, controlPlane: cp, worker: worker}

	return configInput(configSources{
		controlPlane: cp, group: s.group(), machine: m, state: state, disk: m.Status.InstallDisk,
	})
}
