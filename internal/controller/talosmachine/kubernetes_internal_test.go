package talosmachine

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestNotAsked: an API server that does not respond is what a machine waits for, in a sentence.
func TestNotAsked(t *testing.T) {
	err := failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "no API server of the cluster responds", nil)

	const want = "the Kubernetes API: no API server of the cluster responds"
	if got := notAsked(err); got != want {
		t.Errorf("it waits for %s", got)
	}
}

// TestJoinsWith: a machine that joins during an upgrade has no kubelet that is newer than an API server.
func TestJoinsWith(t *testing.T) {
	of := func(components ...v1alpha1.KubernetesComponent) *v1alpha1.UpgradeStatus {
		return &v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2", KubernetesFrom: "v1.35.1", Components: components}
	}

	for name, c := range map[string]struct {
		upgrade *v1alpha1.UpgradeStatus
		version string
	}{
		"no upgrade":        {nil, ""},
		"one of Talos":      {&v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9"}, ""},
		"API servers":       {of(v1alpha1.ComponentAPIServer), "v1.35.1"},
		"kubelets, at last": {of(v1alpha1.ComponentAPIServer, v1alpha1.ComponentKubelet), ""},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Status.Upgrade = c.upgrade

		if got := joinsWith(cp); got != c.version {
			t.Errorf("%s: %q", name, got)
		}
	}
}
