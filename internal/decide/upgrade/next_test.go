package upgrade_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestNextVersionOfTalos: machines are upgraded to the next version of the path and not beyond, until each of them runs it.
func TestNextVersionOfTalos(t *testing.T) {
	cluster := func(kubernetes string, talos ...string) upgrade.Cluster {
		c := upgrade.Cluster{Kubernetes: kubernetes}
		for i, v := range talos {
			n := upgrade.Node{Name: string(rune('a' + i)), ControlPlane: i == 0, Talos: v, Kubelet: kubernetes}
			if n.ControlPlane {
				n.Components = map[v1alpha1.KubernetesComponent]string{
					v1alpha1.ComponentAPIServer: kubernetes, v1alpha1.ComponentScheduler: kubernetes,
					v1alpha1.ComponentControllerManager: kubernetes,
				}
			}

			c.Nodes = append(c.Nodes, n)
		}

		return c
	}

	for name, c := range map[string]struct {
		cluster  upgrade.Cluster
		target   upgrade.Target
		talos    string
		machines string
		waits    string
	}{
		"there already":  {cluster("v1.34.0", "v1.12.0", "v1.12.0"), upgrade.Target{Talos: "v1.12.0"}, "", "", ""},
		"one patch":      {cluster("v1.34.0", "v1.12.0", "v1.12.0"), upgrade.Target{Talos: "v1.12.1"}, "v1.12.1", "a b", ""},
		"one has it":     {cluster("v1.34.0", "v1.12.1", "v1.12.0"), upgrade.Target{Talos: "v1.12.1"}, "v1.12.1", "b", ""},
		"no further yet": {cluster("v1.33.0", "v1.12.9", "v1.11.6"), upgrade.Target{Talos: "v1.13.9"}, "", "", ""},
		"Kubernetes first": {
			cluster("v1.30.0", "v1.12.9", "v1.12.9"), upgrade.Target{Talos: "v1.13.9", Kubernetes: "v1.31.0"}, "", "a", "",
		},
		"only Kubernetes": {cluster("v1.33.0", "v1.12.0"), upgrade.Target{Talos: "v1.12.0", Kubernetes: "v1.34.0"}, "", "a", ""},
	} {
		got, err := upgrade.Next(c.cluster, c.target)
		if err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		if name == "no further yet" {
			// A machine of an older minor keeps the others from leaving theirs.
			if got.Talos == "v1.13.9" || !slices.Contains(got.Machines, "b") {
				t.Errorf("%s: %+v", name, got)
			}

			continue
		}

		if got.Talos != c.talos || strings.Join(got.Machines, " ") != c.machines || !strings.Contains(got.Waits, c.waits) ||
			(c.waits == "") != (got.Waits == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}

	var refusal *upgrade.Refusal
	if _, err := upgrade.Next(cluster("v1.34.0", "v1.12.0"), upgrade.Target{Talos: "v1.11.0"}); !errors.As(err, &refusal) {
		t.Errorf("a way back: %v", err)
	}
}
