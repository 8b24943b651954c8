package talosmachine_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestNoGapAfterAConfig: a machine that gets a configuration, and another schematic after it, wants the schematic with the
// end of the first: in between it would count as done, and workers would not wait for it.
func TestNoGapAfterAConfig(t *testing.T) {
	e := newEnv(t)
	e.runsSchematic()
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	})
	change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) {
		w.Spec.Install = &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{DropExtensions: []string{"*"}}}
		w.Spec.ConfigPatches = []string{"machine: {sysctls: {vm.swappiness: \"1\"}}"}
	})

	kinds := map[v1alpha1.ChangeKind]bool{}

	e.follows("w-0", "it runs no schematic", func(m *v1alpha1.TalosMachine) bool {
		if c := m.Status.Change; c != nil {
			kinds[c.Kind] = true
		}

		cp, w := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
		e.Get(cp, cluster)
		e.Get(w, group)

		there := m.Status.Image != nil && m.Status.Image.Schematic == ""
		if m.Status.Change == nil && m.Status.ComparedTo == rollout.ComparedTo(cp, w, m) && !there {
			t.Fatalf("it counts as done: %s", show(m))
		}

		return there
	})

	if m := e.machine("w-0"); len(kinds) != 2 || m.Status.TalosVersion != harness.TalosVersion {
		t.Errorf("%v: %s", kinds, show(m))
	}
}
