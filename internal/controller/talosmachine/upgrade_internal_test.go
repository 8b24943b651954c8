package talosmachine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
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
		"a worker wants it before its turn": {
			system{"v1.13.9", a},
			&v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9", SchematicsOnly: true}, true, factory(a, "v1.13.9"), factory(b, "v1.13.9"),
			system{"v1.13.9", b},
			factory(b, "v1.13.9"), factory(a, "v1.13.9"), "",
		},
		"a worker wants it while its step is held": {
			system{"v1.13.9", a},
			&v1alpha1.UpgradeStatus{SchematicsOnly: true}, true, factory(a, "v1.13.9"), factory(b, "v1.13.9"),
			system{"v1.13.9", b},
			factory(b, "v1.13.9"), factory(a, "v1.13.9"), "",
		},
		"a version on the control plane before it": {
			system{"v1.13.9", a}, step("v1.13.9", false), true, factory(a, "v1.13.9"), factory(b, "v1.13.9"), system{"v1.13.9", a}, "", "", "",
		},
		"Kubernetes before it": {
			system{"v1.13.9", a},
			&v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2"}, false, factory(a, "v1.13.9"), factory(b, "v1.13.9"),
			system{"v1.13.9", a},
			"", "", "",
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
			stock + "v1.13.9", factory(a, "v1.13.8"), "lose the extensions gvisor of the schematic",
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
		"from digest to digest": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, "r.example:5000/installer:v1.13.8@sha256:1", "r.example:5000/installer:v1.13.9@sha256:2",
			system{"v1.13.9", ""},
			"r.example:5000/installer:v1.13.9@sha256:2", "r.example:5000/installer:v1.13.8@sha256:1", "",
		},
		"the config is behind": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, "mine/installer:v1.13.7@sha256:1", "mine/installer:v1.13.9@sha256:2",
			system{"v1.13.9", ""},
			"mine/installer:v1.13.9@sha256:2", "mine/installer:v1.13.8", "",
		},
		"from a tag with digest to a digest": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, "mine/installer:v1.13.8@sha256:1", "mine/installer@sha256:2",
			system{"v1.13.9", ""},
			"mine/installer@sha256:2", "mine/installer:v1.13.8@sha256:1", "",
		},
		"from a digest to a tag with digest": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, "mine/installer@sha256:1", "mine/installer:v1.13.9@sha256:2",
			system{"v1.13.9", ""},
			"mine/installer:v1.13.9@sha256:2", "mine/installer:v1.13.8", "",
		},
		"digests without tags": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, "mine/installer@sha256:1", "mine/installer@sha256:2",
			system{"v1.13.8", ""},
			"mine/installer@sha256:2", "", "is unknown",
		},
		"a digest of another version": {
			system{"v1.13.8", ""},
			step("v1.13.9", true), true, stock + "v1.13.8", stock + "v1.12.7@sha256:1",
			system{"v1.13.8", ""},
			stock + "v1.12.7@sha256:1", stock + "v1.13.8", "name the one of that version",
		},
		"a tag with digest on the way": {
			system{"v1.11.6", ""},
			step("v1.12.12", true), true, stock + "v1.11.6@sha256:1", stock + "v1.13.9@sha256:2",
			system{"v1.11.6", ""},
			"", stock + "v1.11.6@sha256:1", "without a digest",
		},
		"a digest of another schematic": {
			system{"v1.13.9", a},
			nil, false, factory(b, "v1.13.9@sha256:1"), factory(b, "v1.13.9@sha256:1"),
			system{"v1.13.9", b},
			factory(b, "v1.13.9@sha256:1"), factory(a, "v1.13.9"), "",
		},
		"the version is newer than what is known": {
			system{"v1.14.0", ""},
			step("v1.13.9", true), false, stock + "v1.14.0", stock + "v1.13.9",
			system{"v1.14.0", ""},
			"", "", "",
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

		got := compareSystems(cp, m, running{system: c.runs, installer: c.live, image: names("gvisor")}, c.image)
		if got.want != c.want || got.image != c.install || got.old != c.old || !strings.Contains(got.refused, c.refused) ||
			(got.refused == "") != (c.refused == "") {
			t.Errorf("%s: %+v", name, got)
		}

		cp.Spec.Upgrade.Talos = v1alpha1.UpgradeReport
		if got := compareSystems(cp, m, running{system: c.runs, installer: c.live}, c.image); got.want != c.runs || got.image != "" {
			t.Errorf("%s: upgraded without being asked for: %+v", name, got)
		}
	}
}

// TestAgainByDigest: a digest alone in the spec is the installer of the version that the spec names, and of no other one.
func TestAgainByDigest(t *testing.T) {
	const image = "mine/installer@sha256:1"

	for version, want := range map[string]string{"v1.13.9": image, "v1.13.8": ""} {
		runs := running{system: system{version: version}, installer: "mine/installer@sha256:2"}
		if old, ok := runs.again(image, "v1.13.9"); old != want || ok != (want != "") {
			t.Errorf("%s: %q, %t", version, old, ok)
		}
	}
}

// TestWaitingUpgradeIsCompared: an upgrade that is installed and waits is permitted to go on only once its machine counts
// as compared, although its configuration differs and waits for the end of the upgrade.
func TestWaitingUpgradeIsCompared(t *testing.T) {
	for phase, compared := range map[v1alpha1.ChangePhase]string{
		v1alpha1.ChangePending: "7/0/3", v1alpha1.ChangeAwaitingReboot: "7/0/3", v1alpha1.ChangeApplying: "6/0/3",
		v1alpha1.ChangeFailed: "6/0/3",
	} {
		runs, wants := system{version: "v1.13.9"}, system{version: "v1.13.10"}
		s := &scope{
			machine:      &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 3}},
			controlPlane: &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 7}},
			compared:     true,
			comparison: comparison{
				liveHash: "x", wantHash: "y", diff: machineconfig.Difference{Changes: []machineconfig.Change{{}}},
				systems: &systems{live: runs, want: wants, image: "installer:b"},
			},
		}
		s.machine.Status.ComparedTo = "6/0/3"
		s.machine.Status.Change = &v1alpha1.MachineChange{
			Kind: v1alpha1.ChangeTalos, Phase: phase, Staged: true, Image: "installer:b", Base: runs.hash(), Target: wants.hash(),
		}

		r := &Reconciler{Clock: testclock.NewFakePassiveClock(time.Unix(0, 0))}
		if _, err := r.recordChange(t.Context(), s); err != nil || s.machine.Status.ComparedTo != compared {
			t.Errorf("%s: compared to %s, %v", phase, s.machine.Status.ComparedTo, err)
		}
	}
}
