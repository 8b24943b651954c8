package talosmachine

import (
	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// RenderConfig renders the configuration that a machine would get now, for a machine that cannot be queried for its
// own. worker is nil for a control-plane machine. The result contains private keys.
func RenderConfig(cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker, m *v1alpha1.TalosMachine,
	state *clusterstate.State,
) (*machineconfig.Rendered, error) {
	return machineconfig.Render(ConfigInput(cp, worker, m, state))
}

// ConfigInput returns the input from which the configuration of a machine is rendered. It contains private keys.
func ConfigInput(cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker, m *v1alpha1.TalosMachine,
	state *clusterstate.State,
) machineconfig.Input {
	s := &scope{machine: m, controlPlane: cp, worker: worker}

	return configInput(configSources{
		controlPlane: cp, group: s.group(), machine: m, state: state, disk: m.Status.InstallDisk,
	})
}
