package upgrade_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestJoins: a machine that joins has nothing that is newer than an API server.
func TestJoins(t *testing.T) {
	of := func(components ...v1alpha1.KubernetesComponent) *v1alpha1.UpgradeStatus {
		return &v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2", KubernetesFrom: "v1.35.1", Components: components}
	}
	runs := func(versions ...string) []upgrade.Node {
		var out []upgrade.Node

		for _, v := range versions {
			out = append(out, upgrade.Node{Components: map[v1alpha1.KubernetesComponent]string{v1alpha1.ComponentAPIServer: v}})
		}

		return out
	}

	for name, c := range map[string]struct {
		upgrade  *v1alpha1.UpgradeStatus
		nodes    []upgrade.Node
		observed string
		want     string
	}{
		"the first machine":             {want: "v1.36.2"},
		"what is observed":              {observed: "v1.35.1", want: "v1.35.1"},
		"what is observed, and runs":    {nodes: runs("v1.35.1", "v1.35.1"), observed: "v1.35.1", want: "v1.35.1"},
		"an upgrade of Talos":           {upgrade: &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9"}, observed: "v1.35.1", want: "v1.35.1"},
		"API servers":                   {upgrade: of(v1alpha1.ComponentAPIServer), observed: "v1.36.2", want: "v1.35.1"},
		"kubelets, at last":             {of(v1alpha1.ComponentAPIServer, v1alpha1.ComponentKubelet), nil, "v1.36.2", "v1.36.2"},
		"another API server is older":   {nodes: runs("v1.36.2", "v1.35.1"), observed: "v1.36.2", want: "v1.35.1"},
		"none is observed yet":          {nodes: runs("v1.35.1"), want: "v1.35.1"},
		"a version that is not known":   {nodes: runs("", "v1.36.2"), observed: "v1.36.2", want: "v1.36.2"},
		"a tag that is no version":      {nodes: runs("1.35.1"), observed: "v1.36.2", want: "v1.36.2"},
		"API servers that are upgraded": {upgrade: of(v1alpha1.ComponentAPIServer), nodes: runs("v1.36.2"), want: "v1.35.1"},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Spec.KubernetesVersion, cp.Status.Upgrade = "v1.36.2", c.upgrade

		if got := upgrade.Joins(cp, c.nodes, c.observed); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestJoinsTalos: a machine that joins is installed with the version that the path has reached.
func TestJoinsTalos(t *testing.T) {
	of := func(version string) *v1alpha1.UpgradeStatus { return &v1alpha1.UpgradeStatus{TalosVersion: version} }

	for name, c := range map[string]struct {
		policy  v1alpha1.UpgradePolicy
		upgrade *v1alpha1.UpgradeStatus
		want    string
	}{
		"no upgrade":               {v1alpha1.UpgradeAutomatic, nil, "v1.13.9"},
		"on the way":               {v1alpha1.UpgradeAutomatic, of("v1.12.4"), "v1.12.4"},
		"the last step":            {v1alpha1.UpgradeAutomatic, of("v1.13.9"), "v1.13.9"},
		"the path waits":           {v1alpha1.UpgradeAutomatic, of(""), "v1.13.9"},
		"the spec has gone back":   {v1alpha1.UpgradeAutomatic, of("v1.14.1"), "v1.13.9"},
		"upgrades are reported":    {v1alpha1.UpgradeReport, of("v1.12.4"), "v1.13.9"},
		"an upgrade of Kubernetes": {v1alpha1.UpgradeAutomatic, &v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2"}, "v1.13.9"},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Spec.TalosVersion, cp.Status.Upgrade = "v1.13.9", c.upgrade
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: c.policy}

		if got := upgrade.JoinsTalos(cp); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
