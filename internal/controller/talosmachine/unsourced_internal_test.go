package talosmachine

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestEndSystems: while the desired configuration is unknown, an upgrade goes on to what it was planned for, and one
// that a user does not want is reverted.
func TestEndSystems(t *testing.T) {
	t.Parallel()

	before, after := system{"v1.12.0", "s"}, system{"v1.13.0", "s"}
	upgrades := &v1alpha1.MachineChange{
		Kind: v1alpha1.ChangeTalos, Target: after.hash(), Image: "i:v1.13.0", OldImage: "i:v1.12.0",
		Fields: []v1alpha1.FieldChange{{Field: upgrade.FieldTalos, Old: before.version, New: after.version}},
	}

	for name, tt := range map[string]struct {
		change     *v1alpha1.MachineChange
		runs, want system
		unwanted   string
		reverting  bool
	}{
		"no upgrade":            {&v1alpha1.MachineChange{Target: "1"}, before, before, "", false},
		"it has begun":          {upgrades, before, after, "", false},
		"it is live":            {upgrades, after, after, "", false},
		"it is live, unwanted":  {upgrades, after, before, after.hash(), true},
		"it is begun, unwanted": {upgrades, before, before, after.hash(), true},
	} {
		m := &v1alpha1.TalosMachine{}
		m.Annotations = map[string]string{v1alpha1.RevertAnnotation: tt.unwanted}
		m.Status.Change = tt.change
		m.Status.PreviousSystem = &v1alpha1.PreviousSystem{
			TalosVersion: before.version, Schematic: before.schematic, Image: "old", ReplacedBy: after.hash(), ConfigHash: "c",
		}

		got := endSystems(&scope{machine: m, controlPlane: &v1alpha1.TalosControlPlane{}}, running{system: tt.runs, config: "c"})
		if got.want != tt.want || got.reverting != tt.reverting || got.refused != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
