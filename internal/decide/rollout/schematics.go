package rollout

import (
	"cmp"
	"slices"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// holdSchematics removes workers from Ready that get another schematic in the version that they run, until the upgrade
// of their cluster has brought the control plane its own. A version comes to the control plane first without that:
// workers do not want one before.
func (out *Output) holdSchematics(in Input) {
	u := in.ControlPlane.Status.Upgrade
	if in.Worker == nil || u != nil && u.TalosVersion != "" && u.ControlPlaneDone &&
		u.ObservedGeneration == in.ControlPlane.Generation {
		return
	}

	held := false
	out.Ready = slices.DeleteFunc(out.Ready, func(c Candidate) bool {
		hold := upgrade.OnlySchematic(&c.Change)
		held = held || hold

		return hold
	})

	if !held || len(out.Ready) > 0 {
		return
	}

	message := ""
	if u != nil {
		message = u.Message
	}

	out.Hold(cmp.Or(message, "workers get another schematic after the control plane"))
}
