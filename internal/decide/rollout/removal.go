package rollout

import (
	"fmt"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// HoldRemoval returns why a machine is not taken out of its group yet: another one is being changed, or may be. It is
// empty if none is. Nothing but a reboot takes the lock of a disruption, and an API server that restarts, or a machine
// that proves its change, is no time to lose another one.
func HoldRemoval(machines []v1alpha1.TalosMachine, name string) string {
	for i := range machines {
		m := &machines[i]
		if m.Name == name || m.Status.Change == nil || planned(m).State != v1alpha1.PlannedRunning {
			continue
		}

		return fmt.Sprintf("waiting for %s, which is being changed", m.Name)
	}

	return ""
}
