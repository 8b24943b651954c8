package upgrade_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// runs is a cluster of three machines.
func runs(talos, kubernetes string) upgrade.Cluster {
	return upgrade.Cluster{Kubernetes: kubernetes, Nodes: []upgrade.Node{
		{Name: "w-0", Talos: talos, Kubelet: kubernetes},
		{Name: "cp-1", ControlPlane: true, Talos: talos, Kubelet: kubernetes},
		{Name: "cp-0", ControlPlane: true, Talos: talos, Kubelet: kubernetes},
	}}
}

// lines prints steps, one in each line: component, version, machines.
func lines(steps []upgrade.Step) []string {
	var out []string
	for _, s := range steps {
		out = append(out, fmt.Sprintf("%s %s>%s %s %d", s.Component, s.From, s.To, strings.Join(s.Machines, ","), s.Reboots))
	}

	return out
}

const all = "cp-0,cp-1,w-0"

func TestPlan(t *testing.T) {
	mixed := runs("v1.13.9", "v1.36.3")
	mixed.Nodes[0].Talos, mixed.Nodes[1].Talos = "v1.12.9", "v1.13.10"

	behind := runs("v1.13.9", "v1.36.3")
	behind.Nodes[0].Kubelet = "v1.34.1"

	silent, mute, away := runs("v1.13.9", "v1.36.3"), runs("v1.13.9", "v1.36.3"), runs("v1.13.9", "v1.36.3")
	silent.Nodes[0].Talos, mute.Nodes[0].Kubelet, away.Kubernetes = "", "", ""

	// The names of its workers come before those of the control plane.
	named := runs("v1.13.9", "v1.36.3")
	named.Nodes[0].Name = "a-0"

	patch := runs("v1.13.9", "v1.36.3")
	patch.Nodes[0].Kubelet = "v1.36.1"

	// A worker whose Talos has no kubelet as new as the API servers.
	outdated := runs("v1.13.9", "v1.36.3")
	outdated.Nodes[0].Talos, outdated.Nodes[0].Kubelet = "v1.12.9", "v1.35.1"

	far := runs("v1.13.9", "v1.30.1")
	far.Nodes[0].Talos = "v1.11.6"

	old := runs("v1.12.9", "v1.31.5")
	old.Nodes[0].Kubelet = "v1.30.14"

	for name, tc := range map[string]struct {
		cluster upgrade.Cluster
		target  upgrade.Target
		via     []string
		want    []string
		refused string
		nearest upgrade.Target
	}{
		"nothing to do": {cluster: runs("v1.13.9", "v1.36.3"), target: upgrade.Target{Talos: "v1.13.9", Kubernetes: "v1.36.3"}},
		"no target": {
			cluster: runs("v1.13.9", "v1.36.3"), target: upgrade.Target{},
		},
		"a patch release": {
			cluster: runs("v1.13.7", "v1.36.3"), target: upgrade.Target{Talos: "v1.13.9"},
			want: []string{"Talos v1.13.7>v1.13.9 " + all + " 3"},
		},
		"two minors of Talos": {
			cluster: runs("v1.11.2", "v1.34.1"), target: upgrade.Target{Talos: "v1.13.9"},
			want: []string{"Talos v1.11.2>v1.12.12 " + all + " 3", "Talos v1.12.12>v1.13.9 " + all + " 3"},
		},
		"by way of a named release": {
			cluster: runs("v1.11.2", "v1.34.1"), target: upgrade.Target{Talos: "v1.13.9"}, via: []string{"v1.12.9"},
			want: []string{"Talos v1.11.2>v1.12.9 " + all + " 3", "Talos v1.12.9>v1.13.9 " + all + " 3"},
		},
		"etcd 3.5 to 3.6": {
			cluster: runs("v1.10.2", "v1.33.1"), target: upgrade.Target{Talos: "v1.11.6"},
			want: []string{"Talos v1.10.2>v1.10.9 " + all + " 3", "Talos v1.10.9>v1.11.6 " + all + " 3"},
		},
		"etcd 3.5.26 runs": {
			cluster: runs("v1.10.9", "v1.33.1"), target: upgrade.Target{Talos: "v1.11.6"},
			want: []string{"Talos v1.10.9>v1.11.6 " + all + " 3"},
		},
		"a named release with an etcd that is too old": {
			cluster: runs("v1.10.2", "v1.33.1"), target: upgrade.Target{Talos: "v1.11.6"}, via: []string{"v1.10.8"},
			refused: "v1.10.8 cannot be the release on the way: Talos 1.11 has etcd 3.6",
		},
		"Kubernetes by two minors": {
			cluster: runs("v1.13.9", "v1.34.1"), target: upgrade.Target{Kubernetes: "v1.36.3"},
			want: []string{"Kubernetes v1.34.1>v1.35.10 " + all + " 0", "Kubernetes v1.35.10>v1.36.3 " + all + " 0"},
		},
		"Kubernetes needs a newer Talos": {
			cluster: runs("v1.11.6", "v1.33.1"), target: upgrade.Target{Talos: "v1.13.9", Kubernetes: "v1.36.3"},
			want: []string{
				"Talos v1.11.6>v1.12.12 " + all + " 3", "Talos v1.12.12>v1.13.9 " + all + " 3",
				"Kubernetes v1.33.1>v1.34.13 " + all + " 0", "Kubernetes v1.34.13>v1.35.10 " + all + " 0",
				"Kubernetes v1.35.10>v1.36.3 " + all + " 0",
			},
		},
		"Talos waits for Kubernetes": {
			cluster: runs("v1.11.6", "v1.29.1"), target: upgrade.Target{Talos: "v1.13.9", Kubernetes: "v1.32.1"},
			want: []string{
				"Kubernetes v1.29.1>v1.30.14 " + all + " 0", "Talos v1.11.6>v1.12.12 " + all + " 3",
				"Kubernetes v1.30.14>v1.31.14 " + all + " 0", "Talos v1.12.12>v1.13.9 " + all + " 3",
				"Kubernetes v1.31.14>v1.32.1 " + all + " 0",
			},
		},
		"Kubernetes that this Talos does not have": {
			cluster: runs("v1.12.9", "v1.34.1"), target: upgrade.Target{Kubernetes: "v1.36.3"},
			refused: "Kubernetes v1.36.3 cannot follow", nearest: upgrade.Target{Talos: "v1.12.9", Kubernetes: "v1.35.10"},
		},
		"Talos that does not have this Kubernetes": {
			cluster: runs("v1.11.6", "v1.29.1"), target: upgrade.Target{Talos: "v1.12.9"},
			refused: "Talos v1.12.9 cannot follow",
		},
		"a Talos of the future": {
			cluster: runs("v1.13.9", "v1.36.3"), target: upgrade.Target{Talos: "v1.99.0"}, refused: "is known to this operator",
			nearest: upgrade.Target{},
		},
		"a way back of Talos":      {cluster: mixed, target: upgrade.Target{Talos: "v1.13.9"}, refused: "older than v1.13.10"},
		"a way back of Kubernetes": {cluster: runs("v1.13.9", "v1.36.3"), target: upgrade.Target{Kubernetes: "v1.35.8"}, refused: "older than v1.36.3"},
		"machines that lag behind": {
			cluster: mixed, target: upgrade.Target{},
			want: []string{"Talos v1.12.9>v1.13.10 cp-0,w-0 2"},
		},
		"a kubelet that lags behind": {
			cluster: behind, target: upgrade.Target{},
			want: []string{"Kubernetes v1.34.1>v1.36.3 w-0 0"},
		},
		"a kubelet that lags behind, and a target": {
			cluster: behind, target: upgrade.Target{Kubernetes: "v1.36.6"},
			want: []string{"Kubernetes v1.34.1>v1.36.3 w-0 0", "Kubernetes v1.36.3>v1.36.6 " + all + " 0"},
		},
		"a kubelet that the next Talos does not have": {
			cluster: old, target: upgrade.Target{Talos: "v1.13.9"},
			want: []string{"Kubernetes v1.30.14>v1.31.5 w-0 0", "Talos v1.12.9>v1.13.9 " + all + " 3"},
		},
		"a named release of the last minor": {
			cluster: runs("v1.12.9", "v1.35.1"), target: upgrade.Target{Talos: "v1.13.9"}, via: []string{"v1.13.2"},
			want: []string{"Talos v1.12.9>v1.13.2 " + all + " 3", "Talos v1.13.2>v1.13.9 " + all + " 3"},
		},
		"two named releases of one minor": {
			cluster: runs("v1.11.6", "v1.34.1"), target: upgrade.Target{Talos: "v1.13.9"}, via: []string{"v1.12.9", "v1.12.8"},
			refused: "v1.12.9 and v1.12.8 are of the same minor",
		},
		"the nearest is not older than a machine": {
			cluster: mixed, target: upgrade.Target{Talos: "v1.14.0", Kubernetes: "v1.36.6"}, refused: "cannot follow",
			nearest: upgrade.Target{Talos: "v1.13.10", Kubernetes: "v1.36.6"},
		},
		"as far as releases are known": {
			cluster: runs("v1.12.9", "v1.35.1"), target: upgrade.Target{Talos: "v1.15.0"}, refused: "no release of Talos v1.14 is known",
			nearest: upgrade.Target{Talos: "v1.13.10", Kubernetes: "v1.35.1"},
		},
		"the nearest is the last that can be reached": {
			cluster: runs("v1.13.9", "v1.34.1"), target: upgrade.Target{Talos: "v1.14.0", Kubernetes: "v1.36.6"}, refused: "cannot follow",
			nearest: upgrade.Target{Talos: "v1.13.9", Kubernetes: "v1.36.6"},
		},
		"what some machines run is not offered": {
			cluster: mixed, target: upgrade.Target{Talos: "v1.14.0"},
			refused: "Talos v1.14.0 cannot follow: upgrades to version 1.14.0 are not supported", nearest: upgrade.Target{},
		},
		"a Kubernetes of the future": {
			cluster: runs("v1.13.9", "v1.35.1"), target: upgrade.Target{Kubernetes: "v1.38.0"},
			refused: "no release of Kubernetes v1.37 is known to this operator",
			nearest: upgrade.Target{Talos: "v1.13.9", Kubernetes: "v1.36.6"},
		},
		"control plane first": {
			cluster: named, target: upgrade.Target{Talos: "v1.13.10"}, want: []string{"Talos v1.13.9>v1.13.10 cp-0,cp-1,a-0 3"},
		},
		"a kubelet that lags behind by a patch": {
			cluster: patch, target: upgrade.Target{}, want: []string{"Kubernetes v1.36.1>v1.36.3 w-0 0"},
		},
		"a kubelet that lags behind by a patch, and a target": {
			cluster: patch, target: upgrade.Target{Kubernetes: "v1.36.6"}, want: []string{"Kubernetes v1.36.3>v1.36.6 " + all + " 0"},
		},
		"kubelets before Talos": {
			cluster: behind, target: upgrade.Target{Talos: "v1.13.10"},
			want: []string{"Kubernetes v1.34.1>v1.36.3 w-0 0", "Talos v1.13.9>v1.13.10 " + all + " 3"},
		},
		"Talos before kubelets that it does not have": {
			cluster: outdated, target: upgrade.Target{},
			want: []string{"Talos v1.12.9>v1.13.9 w-0 1", "Kubernetes v1.35.1>v1.36.3 w-0 0"},
		},
		"Kubernetes that the newest Talos does not have": {
			cluster: far, target: upgrade.Target{Kubernetes: "v1.30.14"},
			refused: "Talos v1.13.9 cannot follow: version of Kubernetes 1.30.1 is too old to be used with Talos 1.13.9, and " +
				"Kubernetes v1.30.14 cannot follow",
		},
		"the target is not on the way": {
			cluster: runs("v1.12.9", "v1.35.3"), target: upgrade.Target{Talos: "v1.13.9"}, via: []string{"v1.13.9"},
			refused: "v1.13.9 is not on the way from Talos v1.12.9 to v1.13.9",
		},
		"another major": {
			cluster: runs("v1.13.9", "v1.36.3"), target: upgrade.Target{Talos: "v2.0.0"}, refused: `"v2.0.0" is not a version`,
		},
		"a machine that has not reported": {cluster: silent, target: upgrade.Target{Talos: "v1.13.9"}, refused: "machine w-0: its version of Talos is not known yet"},
		"a kubelet that has not reported": {cluster: mute, refused: "machine w-0: its version of Kubernetes is not known yet"},
		"no API server has":               {cluster: away, refused: "the API servers: its version of Kubernetes is not known yet"},
		"no machine":                      {refused: "no machine is known"},
		"not a version":                   {cluster: runs("v1.13.9", "v1.36.3"), target: upgrade.Target{Talos: "1.13.9"}, refused: `"1.13.9" is not a version`},
		"not a version on the way":        {cluster: runs("v1.13.9", "v1.36.3"), via: []string{"latest"}, refused: `"latest" is not a version`},
		"not on the way": {
			cluster: runs("v1.12.9", "v1.35.3"), target: upgrade.Target{Talos: "v1.13.9"}, via: []string{"v1.11.2"},
			refused: "v1.11.2 is not on the way from Talos v1.12.9 to v1.13.9",
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := upgrade.Plan(tc.cluster, tc.target, tc.via...)

			var refusal *upgrade.Refusal

			switch {
			case tc.refused == "" && err != nil:
				t.Fatal(err)
			case tc.refused != "" && (!errors.As(err, &refusal) || !strings.Contains(err.Error(), tc.refused)):
				t.Fatalf("steps %v, error %v; want %q", lines(steps), err, tc.refused)
			case tc.refused != "" && refusal.Nearest != tc.nearest:
				t.Fatalf("the nearest is %+v, want %+v", refusal.Nearest, tc.nearest)
			}

			if diff := cmp.Diff(tc.want, lines(steps)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}

			for _, s := range steps {
				if s.Reason == "" {
					t.Errorf("%s %s has no reason", s.Component, s.To)
				}
			}
		})
	}
}

func version(t *rapid.T, first, last int, label string) string {
	return fmt.Sprintf("v1.%d.%d", rapid.IntRange(first, last).Draw(t, label+" minor"), rapid.IntRange(0, 14).Draw(t, label+" patch"))
}

// TestPath: whatever runs and whatever the target, a path ends with the target, goes minor by minor and never back, passes etcd
// 3.5.26 before etcd 3.6, and no machine ever has a Talos that does not support its kubelet or the API servers. The
// nearest target of a refusal can be reached.
func TestPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster := rapid.Custom(drawCluster).Filter(func(c upgrade.Cluster) bool { return unsupported(c) == nil }).Draw(t, "running")
		target := upgrade.Target{Talos: version(t, 9, 14, "target of Talos"), Kubernetes: version(t, 28, 37, "target of Kubernetes")}

		steps, err := upgrade.Plan(cluster, target)
		if err == nil {
			walk(t, cluster, target, steps)

			return
		}

		var refusal *upgrade.Refusal
		if !errors.As(err, &refusal) || refusal.Problem == "" {
			t.Fatalf("refused without a reason: %v", err)
		}

		if refusal.Nearest != (upgrade.Target{}) {
			steps, err := upgrade.Plan(cluster, refusal.Nearest)
			if err != nil || len(steps) == 0 {
				t.Fatalf("the nearest target %s cannot be reached: %v", refusal.Nearest, err)
			}

			walk(t, cluster, refusal.Nearest, steps)
		}
	})
}

// drawCluster returns a cluster in the middle of an upgrade: machines with two minors of Talos and of the kubelet.
func drawCluster(t *rapid.T) upgrade.Cluster {
	talos, kubernetes := rapid.IntRange(9, 13).Draw(t, "minor of Talos"), rapid.IntRange(28, 36).Draw(t, "minor of Kubernetes")

	c := runs(version(t, talos, talos, "Talos"), version(t, kubernetes, kubernetes, "API server"))
	for i := range c.Nodes {
		if rapid.IntRange(0, 3).Draw(t, "ahead") == 0 {
			c.Nodes[i].Talos = version(t, talos, min(talos+1, 13), "Talos of a machine")
		}

		if rapid.IntRange(0, 3).Draw(t, "behind") == 0 {
			if kubelet := version(t, kubernetes-1, kubernetes, "kubelet"); semver.MustParse(kubelet[1:]).LT(semver.MustParse(c.Kubernetes[1:])) {
				c.Nodes[i].Kubelet = kubelet
			}
		}
	}

	return c
}

// unsupported says which machine has a Talos that does not support what runs on it.
func unsupported(c upgrade.Cluster) error {
	for _, n := range c.Nodes {
		if err := errors.Join(supported(n.Talos, c.Kubernetes), supported(n.Talos, n.Kubelet)); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}

	return nil
}

// walk takes the steps of a path on the machines.
func walk(t *rapid.T, c upgrade.Cluster, target upgrade.Target, steps []upgrade.Step) {
	c.Nodes = slices.Clone(c.Nodes)

	for _, s := range steps {
		to := parsed(t, s.To)
		if s.Component == upgrade.Kubernetes {
			api := parsed(t, c.Kubernetes)
			if to.LT(api) || to.Minor > api.Minor+1 {
				t.Fatalf("API servers go from %s to %s: %v", api, to, lines(steps))
			}

			c.Kubernetes = s.To
		}

		for i := range c.Nodes {
			n := &c.Nodes[i]

			version := &n.Kubelet
			if s.Component == upgrade.Talos {
				version = &n.Talos
			}

			from := parsed(t, *version)
			if from.LT(to) != slices.Contains(s.Machines, n.Name) {
				t.Fatalf("the step to %s %s has the machines %v, and %s has %s", s.Component, to, s.Machines, n.Name, from)
			}

			if from.GTE(to) {
				continue
			}

			*version = s.To

			switch {
			case s.Component == upgrade.Kubernetes:
			case to.Minor > from.Minor+1:
				t.Fatalf("%s goes from Talos %s to %s: %v", n.Name, from, to, lines(steps))
			case from.Minor == 10 && to.Minor == 11 && from.Patch < 9:
				t.Fatalf("on %s etcd 3.6 follows an etcd before 3.5.26: %v", n.Name, lines(steps))
			}
		}

		if err := unsupported(c); err != nil {
			t.Fatalf("after %s %s: %v: %v", s.Component, s.To, err, lines(steps))
		}
	}

	for _, n := range c.Nodes {
		if n.Talos != target.Talos || n.Kubelet != target.Kubernetes || c.Kubernetes != target.Kubernetes {
			t.Fatalf("it ends with %+v and API servers %s, not with %s: %v", n, c.Kubernetes, target, lines(steps))
		}
	}
}

func parsed(t *rapid.T, text string) semver.Version {
	v, err := semver.ParseTolerant(text)
	if err != nil {
		t.Fatal(err)
	}

	return v
}

// supported asks the library for itself.
func supported(talos, kubernetes string) error {
	host, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: talos})
	if err != nil {
		return err
	}

	k, err := compatibility.ParseKubernetesVersion(kubernetes)
	if err != nil {
		return err
	}

	return k.SupportedWith(host)
}
