package upgrade_test

import (
	"testing"

	"github.com/blang/semver/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/gendata"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestNewer: what is no version is neither newer nor older.
func TestNewer(t *testing.T) {
	for versions, want := range map[[2]string]bool{
		{"v1.13.10", "v1.13.9"}: true, {"v1.13.9", "v1.13.10"}: false, {"v1.13.9", "v1.13.9"}: false,
		{"v1.13.9", "v1.13.9-rc.0"}: true, {"v1.13.9", ""}: false, {"", "v1.13.9"}: false, {"v2.0.0", "v1.13.9"}: false,
		{"1.13.10", "v1.13.9"}: false, {"v1.13.10", "1.13.9"}: false,
	} {
		if got := upgrade.Newer(versions[0], versions[1]); got != want {
			t.Errorf("%v: %t", versions, got)
		}
	}
}

// TestIsVersion: a version is written as Talos writes it.
func TestIsVersion(t *testing.T) {
	for text, want := range map[string]bool{
		"v1.13.9": true, "v1.14.0-alpha.1": true, "1.13.9": false, "v2.0.0": false, "v1.13": false, "latest": false, "": false,
	} {
		if got := upgrade.IsVersion(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// TestOldest: the oldest version of either component, without those that are not known.
func TestOldest(t *testing.T) {
	node := func(talos, kubelet string) upgrade.Node { return upgrade.Node{Talos: talos, Kubelet: kubelet} }

	for name, c := range map[string]struct {
		kubernetes string
		nodes      []upgrade.Node
		want       upgrade.Target
	}{
		"nothing":                   {},
		"an API server":             {"v1.36.2", nil, upgrade.Target{Kubernetes: "v1.36.2"}},
		"a machine":                 {"", []upgrade.Node{node("v1.13.9", "v1.36.2")}, upgrade.Target{Talos: "v1.13.9", Kubernetes: "v1.36.2"}},
		"the first is the oldest":   {"v1.35.1", []upgrade.Node{node("v1.12.9", "v1.36.2"), node("v1.13.9", "v1.36.2")}, upgrade.Target{Talos: "v1.12.9", Kubernetes: "v1.35.1"}},
		"the last is the oldest":    {"v1.36.2", []upgrade.Node{node("v1.13.9", "v1.36.2"), node("v1.12.9", "v1.35.1")}, upgrade.Target{Talos: "v1.12.9", Kubernetes: "v1.35.1"}},
		"what is not known is none": {"", []upgrade.Node{node("", "latest"), node("v1.13.9", "v1.36.2")}, upgrade.Target{Talos: "v1.13.9", Kubernetes: "v1.36.2"}},
	} {
		if got := upgrade.Oldest(upgrade.Cluster{Kubernetes: c.kubernetes, Nodes: c.nodes}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestNodeOf: what a machine runs is the version of each component, whatever the build of its image. A worker has a
// kubelet only.
func TestNodeOf(t *testing.T) {
	m := &v1alpha1.TalosMachine{}
	m.Name, m.Status.TalosVersion, m.Status.KubeletVersion = "m", "v1.13.9", "v1.36.2-slim"

	want := upgrade.Node{Name: "m", ControlPlane: true, Talos: "v1.13.9", Kubelet: "v1.36.2"}
	if diff := cmp.Diff(want, upgrade.NodeOf(m)); diff != "" {
		t.Errorf("without components: -want +got:\n%s", diff)
	}

	m.Status.ComponentVersions = &v1alpha1.ComponentVersions{
		APIServer: "v1.36.1-slim", ControllerManager: "v1.36.2", Scheduler: "v1.36.3", Proxy: "v1.35.1",
	}
	want.Components = map[v1alpha1.KubernetesComponent]string{
		v1alpha1.ComponentAPIServer: "v1.36.1", v1alpha1.ComponentControllerManager: "v1.36.2",
		v1alpha1.ComponentScheduler: "v1.36.3", v1alpha1.ComponentProxy: "v1.35.1",
	}

	if diff := cmp.Diff(want, upgrade.NodeOf(m)); diff != "" {
		t.Errorf("control plane: -want +got:\n%s", diff)
	}

	m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "w"}
	want.ControlPlane, want.Components = false, nil

	if diff := cmp.Diff(want, upgrade.NodeOf(m)); diff != "" {
		t.Errorf("worker: -want +got:\n%s", diff)
	}
}

// TestRefusal: a refusal says what could be reached instead, if anything can.
func TestRefusal(t *testing.T) {
	for want, nearest := range map[string]upgrade.Target{
		"no": {},
		"no; the nearest that can be reached is Talos v1.13.9 with Kubernetes v1.36.2": {Talos: "v1.13.9", Kubernetes: "v1.36.2"},
		"no; the nearest that can be reached is Talos v1.13.9":                         {Talos: "v1.13.9"},
		"no; the nearest that can be reached is Kubernetes v1.36.2":                    {Kubernetes: "v1.36.2"},
	} {
		if got := (&upgrade.Refusal{Problem: "no", Nearest: nearest}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSystemHash: another version or schematic is another system.
func TestSystemHash(t *testing.T) {
	seen := map[string]string{}

	for _, system := range [][2]string{{"v1.13.9", ""}, {"v1.13.9", "a"}, {"v1.13.10", "a"}, {"", "v1.13.9"}} {
		hash := upgrade.SystemHash(system[0], system[1])
		if other, is := seen[hash]; is {
			t.Errorf("%v has the hash of %s", system, other)
		}

		seen[hash] = system[0] + " " + system[1]
	}
}

// TestLibraryIsKnown: the library that renders configurations is of the newest minor version of Talos in the table of
// releases. A bump of the library alone opens no upgrade to a Talos that machines are told to be unknown with.
func TestLibraryIsKnown(t *testing.T) {
	library, err := semver.ParseTolerant(gendata.VersionTag)
	newest, nerr := semver.ParseTolerant(upgrade.NewestKnown(upgrade.Talos))

	if err != nil || nerr != nil || library.Minor != newest.Minor || upgrade.TooNew(gendata.VersionTag) {
		t.Errorf("the library is of Talos %s, the newest known release is %s: %v, %v", library, newest, err, nerr)
	}
}

// TestTooNewIsNoTarget: no path leads to a minor version that is too new.
func TestTooNewIsNoTarget(t *testing.T) {
	runs := upgrade.Cluster{
		Kubernetes: "v1.36.2", Nodes: []upgrade.Node{{Name: "a", ControlPlane: true, Talos: "v1.13.8", Kubelet: "v1.36.2"}},
	}

	for to, refused := range map[string]bool{"v1.13.9": false, "v1.14.0": true, "v1.99.0": true} {
		path, err := upgrade.Plan(runs, upgrade.Target{Talos: to, Kubernetes: "v1.36.2"})
		if upgrade.TooNew(to) != refused || (err != nil) != refused {
			t.Errorf("%s: too new: %t, %v, %v", to, upgrade.TooNew(to), path, err)
		}
	}
}

// TestTooNew: a newer patch release of a known minor is known; a newer minor is not, and neither is a text that is no
// version too new.
func TestTooNew(t *testing.T) {
	newest := upgrade.NewestKnown(upgrade.Talos)
	if !upgrade.IsVersion(newest) || upgrade.TooNew(newest) {
		t.Errorf("the newest known version is %q", newest)
	}

	for version, want := range map[string]bool{
		"v1.9.0": false, "v1.13.99": false, "v1.14.0": true, "v1.14.0-alpha.0": true, "": false, "latest": false,
	} {
		if got := upgrade.TooNew(version); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}
