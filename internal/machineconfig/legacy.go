package machineconfig

import (
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/registry"
)

// addLegacy writes hostname, network and registries as Talos before 1.12 wants them: inside the main document.
func addLegacy(in Input, docs []docconfig.Document) error {
	for _, doc := range docs {
		main, ok := doc.(*v1alpha1.Config)
		if !ok {
			continue
		}

		problems := netconfig.Legacy(in.Machine, in.Values, main.MachineConfig)
		problems = append(problems, registry.Legacy(in.Registries, in.Values, main.MachineConfig)...)

		if len(problems) > 0 {
			return inputErrors(problems)
		}
	}

	return nil
}
