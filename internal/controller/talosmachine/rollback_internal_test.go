package talosmachine

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// TestRevertSystem: what a machine runs that was rolled back, or is to be, and what is refused.
func TestRevertSystem(t *testing.T) {
	const stock = "ghcr.io/siderolabs/installer:"

	older, newer, ancient := system{"v1.12.12", ""}, system{"v1.13.9", ""}, system{"v1.10.9", ""}
	before := func(s, by system, config string) *v1alpha1.PreviousSystem {
		return &v1alpha1.PreviousSystem{TalosVersion: s.version, Image: stock + s.version, ReplacedBy: by.hash(), ConfigHash: config}
	}
	back := stock + older.version
	overwritten := before(older, newer, "config")
	overwritten.Image = ""

	for name, c := range map[string]struct {
		runs, unwanted system
		previous       *v1alpha1.PreviousSystem
		worker         bool
		want           system
		image, refused string
		reverting      bool
	}{
		"to be rolled back":     {newer, newer, before(older, newer, "config"), false, older, back, "", true},
		"rolled back":           {older, newer, before(older, newer, "config"), false, older, "", "", true},
		"another is unwanted":   {older, system{"v1.13.8", ""}, nil, false, newer, stock + newer.version, "", false},
		"ahead of the path":     {system{"v1.13.8", ""}, system{"v1.13.8", ""}, before(older, system{"v1.13.8", ""}, "config"), false, older, back, "", true},
		"what ran is not known": {newer, newer, nil, false, newer, "", "is not known", true},
		"installed by others":   {newer, newer, before(older, system{"v1.13.8", ""}, "config"), false, newer, "", "is not known", true},
		"another config":        {newer, newer, before(older, newer, "other"), false, newer, "", "its config has changed", true},
		"another etcd":          {newer, newer, before(ancient, newer, "config"), false, newer, "", "downgrade etcd first", true},
		"another installer":     {newer, newer, overwritten, false, newer, "", "may have overwritten Talos v1.12.12", true},
		"a worker has no etcd":  {newer, newer, before(ancient, newer, "config"), true, ancient, stock + ancient.version, "", true},
	} {
		cp, m := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosMachine{}
		cp.Spec.TalosVersion, cp.Spec.Upgrade = newer.version, &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: newer.version, ControlPlaneDone: true}
		m.Annotations = map[string]string{v1alpha1.RevertAnnotation: c.unwanted.hash()}
		m.Status.PreviousSystem, m.Spec.Role = c.previous, v1alpha1.RoleControlPlane

		if c.worker {
			m.Spec.WorkerRef, m.Spec.Role = &v1alpha1.ObjectReference{Name: "group"}, v1alpha1.RoleWorker
		}

		runs := running{system: c.runs, installer: stock + c.runs.version, config: "config"}

		got := compareSystems(cp, m, runs, stock+newer.version)
		if got.want != c.want || got.image != c.image || got.reverting != c.reverting ||
			!strings.Contains(got.refused, c.refused) || (got.refused == "") != (c.refused == "") {
			t.Errorf("%s: %+v", name, got)
		}

		// Neither the policy nor the step of the path keeps a machine from being rolled back.
		cp.Spec.Upgrade.Talos = v1alpha1.UpgradeReport
		if got := compareSystems(cp, m, runs, stock+newer.version); c.unwanted == c.runs && (got.want != c.want || !got.reverting) {
			t.Errorf("%s, not upgraded: %+v", name, got)
		}
	}
}

// TestOverwritePrevious: what ran before what runs stays recorded when another installer is started, and a machine is not
// rolled back to it any more.
func TestOverwritePrevious(t *testing.T) {
	for act, image := range map[change.Act]string{
		change.Install: "", change.Upgrade: "", change.Reboot: "old", change.Uninstall: "", change.Rollback: "old",
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{}}
		s.systems = &systems{live: system{"v2", ""}, config: "hash"}
		recorded := &v1alpha1.PreviousSystem{TalosVersion: "v1", Image: "old", ReplacedBy: s.systems.live.hash(), ConfigHash: "hash"}
		s.machine.Status.PreviousSystem = recorded
		s.machine.Status.WorkingSystem = recorded.ReplacedBy

		s.overwritePrevious(act)

		if got := s.machine.Status.PreviousSystem; got.Image != image || recorded.Image != "old" ||
			worked(&s.machine.Status, system{"v1", ""}.hash()) != s.systems.live.hash() {
			t.Errorf("%s: %+v", act, got)
		}
	}
}
