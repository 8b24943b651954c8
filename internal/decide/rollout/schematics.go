package rollout

import (
	"cmp"
	"slices"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// holdSchematics removes workers from Ready that get another schematic in the version that they run, until the step of
// the upgrade that brings schematics has brought the control plane its own. A version comes to the control plane first
// without that: workers do not want one before. Configurations of a group come before its schematics, so that all that
// want one are known when the first begins.
func (out *Output) holdSchematics(in Input) {
	slices.SortStableFunc(out.Ready, func(a, b Candidate) int { return last(&a) - last(&b) })

	u := in.ControlPlane.Status.Upgrade
	if in.Worker == nil || upgrade.BringsSchematics(u) && u.ControlPlaneDone &&
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

// last orders candidates: 1 for one that gets another schematic, and 0 for any other.
func last(c *Candidate) int {
	if upgrade.OnlySchematic(&c.Change) {
		return 1
	}

	return 0
}
