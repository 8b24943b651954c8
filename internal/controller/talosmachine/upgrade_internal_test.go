package talosmachine

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TestCompareSystems: what a machine is upgraded to, with which image, and what is refused.
func TestCompareSystems(t *testing.T) {
	const stock = "ghcr.io/siderolabs/installer:"

	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	factory := func(schematic, tag string) string { return "factory.talos.dev/installer/" + schematic + ":" + tag }
	step := func(version string, done bool) *v1alpha1.UpgradeStatus {
		return &v1alpha1.UpgradeStatus{TalosVersion: version, ControlPlaneDone: done}
	}

	for name, c := range map[string]struct {
		runs         system
		status       *v1alpha1.UpgradeStatus
		worker       bool
		live, image  string
		want         system
		install, old string
		refused      string
	}{
		"nothing to do": {
			system{"v1.13.9", ""}, nil, false, stock + "v1.13.9", stock + "v1.13.9", system{"v1.13.9", ""}, "", "", "",
		},
		"no step yet": {
			system{"v1.13.8", ""}, nil, false, stock + "v1.13.8", stock + "v1.13.9", system{"v1.13.8", ""}, "", "", "",
		},
		"the last step": {
			system{"v1.13.8", ""},
			step("v1.13.9", false), false, stock + "v1.13.8", stock + "v1.13.9",
			system{"v1.13.9", ""},
			stock + "v1.13.9", stock + "v1.13.8", "",
		},
		"a step on the way": {
			system{"v1.11.6", ""},
			step("v1.12.12", false), false, stock + "v1.11.6", stock + "v1.13.9",
			system{"v1.12.12", ""},
			stock + "v1.12.12", stock + "v1.11.6", "",
		},
		"ahead of the path": {
			system{"v1.13.9", ""}, step("v1.12.12", true), false, stock + "v1.13.9", stock + "v1.13.9", system{"v1.13.9", ""}, "", "", "",
		},
		"a worker waits": {
			system{"v1.13.8", ""}, step("v1.13.9", false), true, stock + "v1.13.8", stock + "v1.13.9", system{"v1.13.8", ""}, "", "", "",
		},
		"a worker's turn": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, stock + "v1.13.8", stock + "v1.13.9",
			system{"v1.13.9", ""},
			stock + "v1.13.9", stock + "v1.13.8", "",
		},
		"another schematic": {
			system{"v1.13.9", a},
			nil, false, factory(a, "v1.13.9"), factory(b, "v1.13.9"),
			system{"v1.13.9", b},
			factory(b, "v1.13.9"), factory(a, "v1.13.9"), "",
		},
		"the version first": {
			system{"v1.13.8", a}, nil, true, factory(a, "v1.13.8"), factory(b, "v1.13.9"), system{"v1.13.8", a}, "", "", "",
		},
		"both at once": {
			system{"v1.13.8", a},
			step("v1.13.9", true), true, factory(b, "v1.13.8"), factory(b, "v1.13.9"),
			system{"v1.13.9", b},
			factory(b, "v1.13.9"), factory(a, "v1.13.8"), "",
		},
		"extensions would go": {
			system{"v1.13.8", a},
			step("v1.13.9", true), true, factory(a, "v1.13.8"), stock + "v1.13.9",
			system{"v1.13.8", a},
			stock + "v1.13.9", factory(a, "v1.13.8"), "drop the extensions",
		},
		"the image of another version": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, stock + "v1.13.8", stock + "v1.12.7",
			system{"v1.13.8", ""},
			stock + "v1.12.7", stock + "v1.13.8", "name the one of that version",
		},
		"a suffix": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, stock + "v1.13.8", stock + "v1.13.9-ours",
			system{"v1.13.9", ""},
			stock + "v1.13.9-ours", stock + "v1.13.8", "",
		},
		"no suffix": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, stock + "v1.13.8", stock + "v1.13.90",
			system{"v1.13.8", ""},
			stock + "v1.13.90", stock + "v1.13.8", "name the one of that version",
		},
		"a digest in the end": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, stock + "v1.13.8", "mine/installer@sha256:1",
			system{"v1.13.9", ""},
			"mine/installer@sha256:1", stock + "v1.13.8", "",
		},
		"a digest on the way": {
			system{"v1.11.6", ""},
			step("v1.12.12", true), true, stock + "v1.11.6", "mine/installer@sha256:1",
			system{"v1.11.6", ""},
			"", stock + "v1.11.6", "does not tell which image",
		},
		"no way back": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, "mine/installer:build-42", "mine/installer@sha256:1",
			system{"v1.13.8", ""},
			"mine/installer@sha256:1", "", "is unknown",
		},
		"no live image": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, "", stock + "v1.13.9",
			system{"v1.13.9", ""},
			stock + "v1.13.9", stock + "v1.13.8", "",
		},
	} {
		cp, m := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosMachine{}
		cp.Spec.TalosVersion, cp.Spec.Upgrade = "v1.13.9", &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
		cp.Status.Upgrade = c.status

		if c.worker {
			m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "group"}
		}

		got := compareSystems(cp, m, c.runs, c.live, c.image)
		if got.want != c.want || got.image != c.install || got.old != c.old || !strings.Contains(got.refused, c.refused) ||
			(got.refused == "") != (c.refused == "") {
			t.Errorf("%s: %+v", name, got)
		}

		cp.Spec.Upgrade.Talos = v1alpha1.UpgradeReport
		if got := compareSystems(cp, m, c.runs, c.live, c.image); got.want != c.runs || got.image != "" {
			t.Errorf("%s: upgraded without being asked for: %+v", name, got)
		}
	}
}

// TestRevertSystem: what a machine runs that was rolled back, or is to be, and what is refused.
func TestRevertSystem(t *testing.T) {
	const stock = "ghcr.io/siderolabs/installer:"

	older, newer := system{"v1.12.12", ""}, system{"v1.13.9", ""}
	before := &v1alpha1.TalosSystem{TalosVersion: older.version, Image: stock + older.version}

	for name, c := range map[string]struct {
		runs, unwanted system
		previous       *v1alpha1.TalosSystem
		worker         bool
		want           system
		image, refused string
		reverting      bool
	}{
		"to be rolled back":     {newer, newer, before, false, older, stock + older.version, "", true},
		"rolled back":           {older, newer, before, false, older, "", "", true},
		"another is unwanted":   {older, system{"v1.13.8", ""}, nil, false, newer, stock + newer.version, "", false},
		"what ran is not known": {newer, newer, nil, false, newer, "", "its config has changed", true},
		"the same ran":          {newer, newer, &v1alpha1.TalosSystem{TalosVersion: newer.version}, false, newer, "", "not known", true},
		"another etcd":          {newer, newer, &v1alpha1.TalosSystem{TalosVersion: "v1.10.9"}, false, newer, "", "downgrade etcd first", true},
		"a worker has no etcd":  {newer, newer, &v1alpha1.TalosSystem{TalosVersion: "v1.10.9", Image: "old"}, true, system{"v1.10.9", ""}, "old", "", true},
	} {
		cp, m := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosMachine{}
		cp.Spec.TalosVersion, cp.Spec.Upgrade = newer.version, &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: newer.version, ControlPlaneDone: true}
		m.Annotations = map[string]string{v1alpha1.RevertAnnotation: c.unwanted.hash()}
		m.Status.PreviousSystem, m.Spec.Role = c.previous, v1alpha1.RoleControlPlane

		if c.worker {
			m.Spec.WorkerRef, m.Spec.Role = &v1alpha1.ObjectReference{Name: "group"}, v1alpha1.RoleWorker
		}

		got := compareSystems(cp, m, c.runs, stock+c.runs.version, stock+newer.version)
		if got.want != c.want || got.image != c.image || got.reverting != c.reverting ||
			!strings.Contains(got.refused, c.refused) || (got.refused == "") != (c.refused == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestKeepPrevious: what a machine can be rolled back to is known from the installation of another Talos to the first
// change of its configuration.
func TestKeepPrevious(t *testing.T) {
	installer, env := machineconfig.Change{Path: "machine.install.image"}, machineconfig.Change{Path: "machine.env"}

	for name, c := range map[string]struct {
		act  change.Act
		diff []machineconfig.Change
		want string
	}{
		"it is installed":       {change.Install, nil, "v2"},
		"installed by one call": {change.Upgrade, nil, "v2"},
		"it reboots":            {change.Reboot, []machineconfig.Change{env}, "v1"},
		"the installer's name":  {change.Apply, []machineconfig.Change{installer}, "v1"},
		"the config changes":    {change.Apply, []machineconfig.Change{installer, env}, ""},
		"it is staged":          {change.Stage, []machineconfig.Change{env}, ""},
		"it is tried":           {change.Try, []machineconfig.Change{env}, ""},
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{}}
		s.systems = &systems{live: system{"v2", ""}}
		s.machine.Status.PreviousSystem = &v1alpha1.TalosSystem{TalosVersion: "v1"}
		s.machine.Status.Change = &v1alpha1.MachineChange{OldImage: "old"}
		s.diff.Changes = c.diff

		s.keepPrevious(c.act)

		got := ""
		if p := s.machine.Status.PreviousSystem; p != nil {
			got = p.TalosVersion
		}

		if got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
