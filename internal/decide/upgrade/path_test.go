package upgrade_test

import (
	"errors"
	"fmt"
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

	silent := runs("v1.13.9", "v1.36.3")
	silent.Nodes[0].Talos = ""

	for name, tc := range map[string]struct {
		cluster upgrade.Cluster
		target  upgrade.Target
		via     []string
		want    []string
		refused string
		nearest upgrade.Target
	}{
		"nothing to do": {cluster: runs("v1.13.9", "v1.36.3"), target: upgrade.Target{Talos: "v1.13.9", Kubernetes: "v1.36.3"}},
		"nothing wanted": {
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
		},
		"a way back of Talos":      {cluster: mixed, target: upgrade.Target{Talos: "v1.13.9"}, refused: "older than v1.13.10"},
		"a way back of Kubernetes": {cluster: runs("v1.13.9", "v1.36.3"), target: upgrade.Target{Kubernetes: "v1.35.8"}, refused: "older than v1.36.3"},
		"machines that lag behind": {
			cluster: mixed, target: upgrade.Target{},
			want: []string{"Talos v1.12.9>v1.13.10 cp-0,w-0 2"},
		},
		"a kubelet that lags behind": {
			cluster: behind, target: upgrade.Target{},
			want: []string{"Kubernetes v1.36.3>v1.36.3 w-0 0"},
		},
		"a kubelet that lags behind, and a target": {
			cluster: behind, target: upgrade.Target{Kubernetes: "v1.36.6"},
			want: []string{"Kubernetes v1.36.3>v1.36.3 w-0 0", "Kubernetes v1.36.3>v1.36.6 " + all + " 0"},
		},
		"a machine that has not reported": {cluster: silent, target: upgrade.Target{Talos: "v1.13.9"}, refused: "machine w-0: its version of Talos is not known yet"},
		"no API server has":               {cluster: runs("v1.13.9", ""), refused: "the API servers: its version of Kubernetes is not known yet"},
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

// TestPath: whatever runs and is wanted, a path ends with the target, goes minor by minor and never back, passes etcd
// 3.5.26 before etcd 3.6, and never has a Talos that does not support the Kubernetes on it. The nearest target of a
// refusal can be reached.
func TestPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pair := rapid.Custom(func(t *rapid.T) [2]string {
			return [2]string{version(t, 9, 13, "Talos"), version(t, 28, 36, "Kubernetes")}
		}).Filter(func(p [2]string) bool { return supported(p[0], p[1]) == nil }).Draw(t, "running")
		cluster := runs(pair[0], pair[1])

		target := upgrade.Target{Talos: version(t, 9, 14, "wanted Talos"), Kubernetes: version(t, 28, 37, "wanted Kubernetes")}

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
				t.Fatalf("the nearest target cannot be reached: %v", err)
			}

			walk(t, cluster, refusal.Nearest, steps)
		}
	})
}

func walk(t *rapid.T, c upgrade.Cluster, target upgrade.Target, steps []upgrade.Step) {
	run := map[upgrade.Component]semver.Version{
		upgrade.Talos: parsed(t, c.Nodes[0].Talos), upgrade.Kubernetes: parsed(t, c.Kubernetes),
	}

	for _, s := range steps {
		from, to := run[s.Component], parsed(t, s.To)

		switch {
		case from.NE(parsed(t, s.From)) || to.LTE(from) || to.Minor > from.Minor+1:
			t.Fatalf("%s goes from %s to %s: %v", s.Component, from, to, lines(steps))
		case s.Component == upgrade.Talos && from.Minor == 10 && to.Minor == 11 && from.Patch < 9:
			t.Fatalf("etcd 3.6 follows an etcd before 3.5.26: %v", lines(steps))
		}

		run[s.Component] = to

		if err := supported("v"+run[upgrade.Talos].String(), "v"+run[upgrade.Kubernetes].String()); err != nil {
			t.Fatalf("after %s %s: %v: %v", s.Component, s.To, err, lines(steps))
		}
	}

	if run[upgrade.Talos].NE(parsed(t, target.Talos)) || run[upgrade.Kubernetes].NE(parsed(t, target.Kubernetes)) {
		t.Fatalf("it ends with %v, not with %v: %v", run, target, lines(steps))
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
