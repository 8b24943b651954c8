package upgrade_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

var controlPlaneComponents = []v1alpha1.KubernetesComponent{
	v1alpha1.ComponentAPIServer, v1alpha1.ComponentControllerManager, v1alpha1.ComponentScheduler, v1alpha1.ComponentProxy,
}

// running is a cluster of three control-plane machines and two workers with one version of Kubernetes.
func running(version string) upgrade.Cluster {
	c := upgrade.Cluster{Kubernetes: version}

	for _, name := range []string{"a", "b", "c", "v", "w"} {
		n := upgrade.Node{Name: name, ControlPlane: name < "d", Talos: "v1.13.9", Kubelet: version}
		if n.ControlPlane {
			n.Components = map[v1alpha1.KubernetesComponent]string{}
			for _, of := range controlPlaneComponents {
				n.Components[of] = version
			}
		}

		c.Nodes = append(c.Nodes, n)
	}

	return c
}

// set gives a component of a machine another version.
func set(c *upgrade.Cluster, name string, of v1alpha1.KubernetesComponent, version string) {
	for i := range c.Nodes {
		switch n := &c.Nodes[i]; {
		case n.Name != name:
		case of == v1alpha1.ComponentKubelet:
			n.Kubelet = version
		default:
			n.Components[of] = version
		}
	}
}

// TestNextVersionOfKubernetes: one row for each situation of an upgrade.
func TestNextVersionOfKubernetes(t *testing.T) {
	const api, manager, scheduler, proxy, kubelet = v1alpha1.ComponentAPIServer, v1alpha1.ComponentControllerManager,
		v1alpha1.ComponentScheduler, v1alpha1.ComponentProxy, v1alpha1.ComponentKubelet

	type moved struct {
		machines string
		of       v1alpha1.KubernetesComponent
		to       string
	}

	all := func(to string, of ...v1alpha1.KubernetesComponent) (out []moved) {
		for _, component := range of {
			machines := "abc"
			if component == kubelet {
				machines = "abcvw"
			}

			out = append(out, moved{machines, component, to})
		}

		return out
	}

	for name, c := range map[string]struct {
		moved    []moved
		target   upgrade.Target
		version  string
		of       v1alpha1.KubernetesComponent
		machines string
		refused  string
		via      []string
		byHand   bool
		waits    string
		talos    string
		also     func(*upgrade.Cluster)
	}{
		"there already":      {target: upgrade.Target{Kubernetes: "v1.35.1"}},
		"API servers first":  {target: upgrade.Target{Kubernetes: "v1.36.2"}, version: "v1.36.2", of: api, machines: "abc"},
		"minor by minor":     {moved: all("v1.34.1", append(controlPlaneComponents, kubelet)...), target: upgrade.Target{Kubernetes: "v1.36.2"}, version: "v1.35.10", of: api, machines: "abc"},
		"one is done":        {moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Kubernetes: "v1.36.2"}, version: "v1.36.2", of: api, machines: "bc"},
		"controller manager": {moved: all("v1.36.2", api), target: upgrade.Target{Kubernetes: "v1.36.2"}, version: "v1.36.2", of: manager, machines: "abc"},
		"scheduler":          {moved: all("v1.36.2", api, manager), target: upgrade.Target{Kubernetes: "v1.36.2"}, version: "v1.36.2", of: scheduler, machines: "abc"},
		"proxy":              {moved: all("v1.36.2", api, manager, scheduler), target: upgrade.Target{Kubernetes: "v1.36.2"}, version: "v1.36.2", of: proxy, machines: "abc"},
		"kubelets":           {moved: all("v1.36.2", controlPlaneComponents...), target: upgrade.Target{Kubernetes: "v1.36.2"}, version: "v1.36.2", of: kubelet, machines: "abcvw"},
		"no proxy":           {moved: append(all("v1.36.2", api, manager, scheduler), all("", proxy)...), target: upgrade.Target{Kubernetes: "v1.36.2"}, version: "v1.36.2", of: kubelet, machines: "abcvw"},
		"done":               {moved: all("v1.36.2", append(controlPlaneComponents, kubelet)...), target: upgrade.Target{Kubernetes: "v1.36.2"}},
		"called off":         {moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Kubernetes: "v1.35.1"}, version: "v1.35.1", of: api, machines: "a"},
		"called off later":   {moved: append(all("v1.36.2", api), moved{"b", manager, "v1.36.2"}), target: upgrade.Target{Kubernetes: "v1.35.1"}, version: "v1.35.1", of: manager, machines: "b"},
		"called off, with the last machine done": {
			moved:  []moved{{"c", api, "v1.36.2"}, {"c", manager, "v1.36.2"}, {"c", scheduler, "v1.36.2"}, {"c", proxy, "v1.36.2"}},
			target: upgrade.Target{Kubernetes: "v1.35.1"}, version: "v1.35.1", of: proxy, machines: "c",
		},
		"called off too late": {
			moved: all("v1.36.2", controlPlaneComponents...), target: upgrade.Target{Kubernetes: "v1.35.1"}, refused: "no way back",
		},
		"a kubelet is newer": {
			moved: []moved{{"a", api, "v1.36.2"}, {"w", kubelet, "v1.36.2"}}, target: upgrade.Target{Kubernetes: "v1.35.1"}, refused: "no way back",
		},
		"upgraded by hand": {
			moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Kubernetes: "v1.35.1"}, byHand: true,
			waits: "a runs Kubernetes v1.36.2, which this operator has not brought there",
		},
		"to another one": {moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Kubernetes: "v1.36.4"}, version: "v1.36.4", of: api, machines: "abc"},
		"Talos waits":    {moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Talos: "v1.13.10", Kubernetes: "v1.36.2"}, version: "v1.36.2", of: api, machines: "bc"},
		"Talos first":    {target: upgrade.Target{Talos: "v1.13.10", Kubernetes: "v1.36.2"}, talos: "v1.13.10", machines: "abcvw"},
		"begun by hand": {
			moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Talos: "v1.13.10", Kubernetes: "v1.36.2"}, byHand: true,
			talos: "v1.13.10", machines: "abcvw",
		},
		"Talos waits for kubelets": {
			moved: all("v1.36.2", controlPlaneComponents...), target: upgrade.Target{Talos: "v1.13.10"},
			waits: "Talos v1.13.10 waits for Kubernetes v1.36.2: kubelets are older than the API servers",
		},
		"waits for a Talos that is not asked for": {
			moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Kubernetes: "v1.36.2"}, also: lagging("v1.13.7"),
			waits: "Kubernetes v1.36.2 waits for Talos v1.13.9: the target",
		},
		"Talos lags, which is not asked for": {target: upgrade.Target{Kubernetes: "v1.35.1"}, also: lagging("v1.11.6")},
		"kubelets lag": {
			moved:  append(all("v1.34.1", append(controlPlaneComponents, kubelet)...), all("v1.35.4", controlPlaneComponents...)...),
			target: upgrade.Target{Kubernetes: "v1.36.2"}, version: "v1.35.4", of: kubelet, machines: "abcvw",
		},
		"not asked for": {moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Talos: "v1.13.9"}},
		"named on the way": {
			moved:  append(all("v1.34.1", append(controlPlaneComponents, kubelet)...), moved{"a", api, "v1.35.4"}),
			target: upgrade.Target{Talos: "v1.13.10", Kubernetes: "v1.36.2"}, via: []string{"v1.35.4"}, version: "v1.35.4", of: api,
			machines: "bc",
		},
		"named on the way, of Talos, too": {
			moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Talos: "v1.13.11", Kubernetes: "v1.36.2"},
			via: []string{"v1.13.10"}, version: "v1.36.2", of: api, machines: "bc",
		},
		"called off, to no version": {
			moved: []moved{{"a", api, "v1.36.2"}}, target: upgrade.Target{Kubernetes: "1.35.1"}, refused: "is not a version",
		},
		"called off, without a version": {
			moved: []moved{{"a", api, "v1.36.2"}, {"b", manager, ""}}, target: upgrade.Target{Kubernetes: "v1.35.1"},
			refused: "the configuration of b names no version of ControllerManager",
		},
		"called off, without the version of a worker": {
			moved: []moved{{"a", api, "v1.36.2"}, {"w", kubelet, ""}}, target: upgrade.Target{Kubernetes: "v1.35.1"},
			refused: "machine w: its version of Kubernetes is not known yet",
		},
		"begun, without a version": {
			moved: []moved{{"a", api, "v1.36.2"}, {"b", manager, ""}}, target: upgrade.Target{Kubernetes: "v1.36.2"},
			refused: "the configuration of b names no version of ControllerManager",
		},
		"a proxy without a version": {
			moved: []moved{{"b", proxy, "stable"}}, target: upgrade.Target{Kubernetes: "v1.36.2"},
			refused: "the configuration of b names no version of Proxy",
		},
		"what is no version is not newer": {
			moved: []moved{{"a", api, "1.37.0"}}, target: upgrade.Target{Kubernetes: "v1.35.1"}, byHand: true,
		},
		"no version": {
			moved: []moved{{"b", manager, ""}}, target: upgrade.Target{Kubernetes: "v1.36.2"},
			refused: "the configuration of b names no version of ControllerManager",
		},
		"a tag that is none": {
			moved: []moved{{"c", api, "stable"}}, target: upgrade.Target{Kubernetes: "v1.36.2"},
			refused: "the configuration of c names no version of APIServer",
		},
		"none of it, for Talos": {moved: []moved{{"c", api, "stable"}}, target: upgrade.Target{Talos: "v1.13.9"}},
	} {
		cluster := running("v1.35.1")
		if !c.byHand {
			cluster.Upgraded = "v1.36.2"
		}

		for _, m := range c.moved {
			for _, name := range m.machines {
				set(&cluster, string(name), m.of, m.to)
			}
		}

		if c.also != nil {
			c.also(&cluster)
		}

		got, err := upgrade.Next(cluster, c.target, c.via...)
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v", name, err)

			continue
		}

		in := append(slices.Clone(controlPlaneComponents), kubelet)
		if got.Back {
			in = slices.Clone(controlPlaneComponents)
			slices.Reverse(in)
		}

		if got.Kubernetes != c.version || !slices.Equal(got.Components, in[:slices.Index(in, c.of)+1]) ||
			strings.Join(got.Machines, "") != c.machines || got.Talos != c.talos ||
			!strings.Contains(got.Waits, c.waits) || (c.waits == "") != (got.Waits == "") || got.Back != (c.version == "v1.35.1") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// lagging gives a worker an older Talos.
func lagging(talos string) func(*upgrade.Cluster) {
	return func(c *upgrade.Cluster) { c.Nodes[len(c.Nodes)-1].Talos = talos }
}

// TestStepsLeft: a status tells how many steps of the path are left, the one in progress included.
func TestStepsLeft(t *testing.T) {
	const api = v1alpha1.ComponentAPIServer

	for name, c := range map[string]struct {
		runs     string
		api      string
		upgraded string
		lags     string
		target   upgrade.Target
		want     int
	}{
		"nothing to do":         {runs: "v1.35.1", target: upgrade.Target{Kubernetes: "v1.35.1"}},
		"Talos":                 {runs: "v1.35.1", target: upgrade.Target{Talos: "v1.13.10"}, want: 1},
		"both":                  {runs: "v1.34.1", target: upgrade.Target{Talos: "v1.13.10", Kubernetes: "v1.36.2"}, want: 3},
		"Kubernetes":            {runs: "v1.34.1", target: upgrade.Target{Kubernetes: "v1.36.2"}, want: 2},
		"begun":                 {runs: "v1.34.1", api: "v1.35.10", upgraded: "v1.35.10", target: upgrade.Target{Kubernetes: "v1.36.2"}, want: 2},
		"called off":            {runs: "v1.34.1", api: "v1.35.10", upgraded: "v1.35.10", target: upgrade.Target{Kubernetes: "v1.34.1"}, want: 1},
		"brought there by hand": {runs: "v1.34.1", api: "v1.35.10", target: upgrade.Target{Kubernetes: "v1.34.1"}, want: 1},
		"waits for Talos":       {runs: "v1.35.1", lags: "v1.11.6", target: upgrade.Target{Kubernetes: "v1.36.2"}, want: 3},
	} {
		cluster := running(c.runs)
		cluster.Upgraded = c.upgraded

		if c.api != "" {
			set(&cluster, "a", api, c.api)
		}

		if c.lags != "" {
			lagging(c.lags)(&cluster)
		}

		if got, err := upgrade.Next(cluster, c.target); err != nil || got.Left != c.want {
			t.Errorf("%s: %+v, %v, want %d", name, got, err, c.want)
		}
	}
}

// TestUpgradesKeepTheSkew: whatever order machines take their steps in, and if the spec changes in the middle, nothing
// is newer than an API server that it may talk to, API servers are at most one minor apart, and the cluster arrives.
//
// Source of the rules: https://kubernetes.io/releases/version-skew-policy/
func TestUpgradesKeepTheSkew(t *testing.T) {
	t.Parallel()

	versions := []string{"v1.33.2", "v1.34.1", "v1.35.0", "v1.35.1", "v1.36.2", "v1.36.4"}

	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, len(versions)-1).Draw(t, "from")
		cluster := running(versions[from])
		target := versions[rapid.IntRange(from, len(versions)-1).Draw(t, "target")]

		for range 400 {
			if rapid.IntRange(0, 60).Draw(t, "changed mind") == 0 {
				target = versions[rapid.IntRange(0, len(versions)-1).Draw(t, "other target")]
			}

			now, err := upgrade.Next(cluster, upgrade.Target{Kubernetes: target})
			cluster.Upgraded = cmp.Or(now.Kubernetes, cluster.Upgraded)

			if err != nil { // a way back that does not exist: a person names what runs, or something newer
				target = "v1.36.4"

				continue
			}

			if len(now.Machines) == 0 {
				for _, n := range cluster.Nodes {
					if n.Kubelet != target || n.ControlPlane && n.Components[v1alpha1.ComponentAPIServer] != target {
						t.Fatalf("nothing is left to do for %s: %+v", target, cluster)
					}
				}

				return
			}

			set(&cluster, rapid.SampledFrom(now.Machines).Draw(t, "machine"), now.Components[len(now.Components)-1], now.Kubernetes)

			if problem := skew(cluster); problem != "" {
				t.Fatalf("after %+v: %s", now, problem)
			}
		}

		t.Fatalf("the upgrade to %s does not end: %+v", target, cluster)
	})
}

// skew says which rule a cluster breaks.
func skew(c upgrade.Cluster) string {
	var apis []semver.Version

	for _, n := range c.Nodes {
		if n.ControlPlane {
			apis = append(apis, semver.MustParse(n.Components[v1alpha1.ComponentAPIServer][1:]))
		}
	}

	slices.SortFunc(apis, semver.Version.Compare)

	oldest, newest := apis[0], apis[len(apis)-1]
	if newest.Minor-oldest.Minor > 1 {
		return fmt.Sprintf("API servers of v%s and v%s", oldest, newest)
	}

	for _, n := range c.Nodes {
		if v := semver.MustParse(n.Kubelet[1:]); v.GT(oldest) || newest.Minor-v.Minor > 3 {
			return fmt.Sprintf("the kubelet %s of %s with API servers from v%s to v%s", v, n.Name, oldest, newest)
		}

		if !n.ControlPlane {
			continue
		}

		own := semver.MustParse(n.Components[v1alpha1.ComponentAPIServer][1:])

		for _, of := range []v1alpha1.KubernetesComponent{v1alpha1.ComponentControllerManager, v1alpha1.ComponentScheduler} {
			if v := semver.MustParse(n.Components[of][1:]); v.GT(own) || own.Minor-v.Minor > 1 {
				return fmt.Sprintf("%s %s next to the API server v%s on %s", of, v, own, n.Name)
			}
		}
	}

	return ""
}

// TestPointOfNoReturn: an upgrade is final from when on the version of before is refused, which is when kubelets are next.
func TestPointOfNoReturn(t *testing.T) {
	const before, wanted = "v1.35.1", "v1.36.2"

	cluster, kubelets := running(before), 0

	for range 100 {
		now, err := upgrade.Next(cluster, upgrade.Target{Kubernetes: wanted})
		if err != nil {
			t.Fatal(err)
		}

		if len(now.Machines) == 0 {
			break
		}

		cluster.Upgraded = now.Kubernetes
		of := now.Components[len(now.Components)-1]
		_, refused := upgrade.Next(cluster, upgrade.Target{Kubernetes: before})

		if final := cluster.IsFinal(wanted); final != (refused != nil) || final != (of == v1alpha1.ComponentKubelet) {
			t.Fatalf("before %s of %s it is final: %t; the way back: %v", of, now.Machines[0], final, refused)
		}

		if of == v1alpha1.ComponentKubelet {
			kubelets++
		}

		set(&cluster, now.Machines[0], of, wanted)
	}

	if kubelets != len(cluster.Nodes) || !cluster.IsFinal(wanted) {
		t.Errorf("%d kubelets, in the end it is final: %t", kubelets, cluster.IsFinal(wanted))
	}

	ahead := running(before)
	set(&ahead, "w", v1alpha1.ComponentKubelet, wanted)

	if !ahead.IsFinal(wanted) {
		t.Error("a kubelet would be newer than the API servers that it talks to")
	}
}

// TestVersionOf: builds of a version are that version, releases before it are not.
func TestVersionOf(t *testing.T) {
	for tag, want := range map[string]string{
		"v1.36.2": "v1.36.2", "v1.36.2-slim": "v1.36.2", "v1.36.2-fat": "v1.36.2", "v1.36.2-acme.3": "v1.36.2", "": "",
		"v1.37.0-rc.0": "v1.37.0-rc.0", "v1.37.0-alpha.1": "v1.37.0-alpha.1", "v1.37.0-beta.0": "v1.37.0-beta.0", "stable": "stable",
	} {
		if got := upgrade.VersionOf(tag); got != want {
			t.Errorf("%s: %s", tag, got)
		}
	}
}

// TestLegacy: only nodes that cannot install without a reboot are upgraded by one call.
func TestLegacy(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.12.4": true, "v1.9.0": true, "v1.13.0": false, "v1.13.9": false, "v1.14.0-alpha.1": false, "": false, "main": false,
	} {
		if got := upgrade.Legacy(version); got != want {
			t.Errorf("%s: %t", version, got)
		}
	}
}

// TestSameEtcd: what is not known is not the same.
func TestSameEtcd(t *testing.T) {
	for versions, want := range map[[2]string]bool{
		{"v1.12.4", "v1.13.9"}: true, {"v1.10.9", "v1.11.0"}: false, {"v1.9.0", "v1.10.0"}: true, {"v1.13.9", "v1.14.0"}: false,
		{"v1.99.0", "v1.99.1"}: true, {"v1.98.0", "v1.99.1"}: false, {"main", "v1.13.0"}: false, {"v1.13.0", ""}: false, {"v2.12.0", "v2.13.0"}: false,
		{"v2.12.0", "v1.13.0"}: false, {"v1.13.0", "v2.13.0"}: false,
	} {
		if got := upgrade.SameEtcd(versions[0], versions[1]); got != want {
			t.Errorf("%v: %t", versions, got)
		}
	}
}

// TestRunsVersion: a cluster runs a version once each known component of each machine does.
func TestRunsVersion(t *testing.T) {
	const version, other = "v1.36.2", "v1.35.1"

	node := func(kubelet, api string) upgrade.Node {
		return upgrade.Node{Name: "a", Kubelet: kubelet, Components: map[v1alpha1.KubernetesComponent]string{v1alpha1.ComponentAPIServer: api}}
	}

	for name, c := range map[string]struct {
		nodes []upgrade.Node
		want  bool
	}{
		"nothing":                {},
		"one machine":            {[]upgrade.Node{node(version, version)}, true},
		"a worker":               {[]upgrade.Node{node(version, version), {Kubelet: version}}, true},
		"a part is not known":    {[]upgrade.Node{node(version, "")}, true},
		"a kubelet is older":     {[]upgrade.Node{node(version, version), {Kubelet: other}}, false},
		"a component is older":   {[]upgrade.Node{node(version, other)}, false},
		"another version":        {[]upgrade.Node{node(other, other)}, false},
		"a kubelet is not known": {[]upgrade.Node{{Name: "a"}}, false},
		"not written so":         {[]upgrade.Node{node("1.36.2", "")}, false},
	} {
		if got := (upgrade.Cluster{Nodes: c.nodes}).Runs(version); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}

	for _, text := range []string{"latest", "1.36.2", ""} {
		if (upgrade.Cluster{Nodes: []upgrade.Node{node(version, version)}}).Runs(text) {
			t.Errorf("%q is no version", text)
		}
	}
}
