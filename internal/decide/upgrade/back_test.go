package upgrade_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestTakesBack: what is rolled back, or called off, is no upgrade. Where the images do not tell, it is one.
func TestTakesBack(t *testing.T) {
	const image = "registry.k8s.io/kube-apiserver:"

	for name, c := range map[string]struct {
		kind           v1alpha1.ChangeKind
		cause          v1alpha1.ChangeCause
		old, new       string
		back, advances bool
	}{
		"Talos":                {v1alpha1.ChangeTalos, v1alpha1.CauseSpec, "v1.13.9", "v1.13.10", false, true},
		"Talos, rolled back":   {v1alpha1.ChangeTalos, v1alpha1.CauseRevert, "v1.13.10", "v1.13.9", true, false},
		"Kubernetes":           {v1alpha1.ChangeKubernetes, v1alpha1.CauseSpec, image + "v1.36.2", image + "v1.36.10", false, true},
		"called off":           {v1alpha1.ChangeKubernetes, v1alpha1.CauseSpec, image + "v1.36.10", image + "v1.36.2", true, false},
		"called off, builds":   {v1alpha1.ChangeKubernetes, v1alpha1.CauseSpec, image + "v1.36.10-slim", image + "v1.36.2-slim", true, false},
		"another build":        {v1alpha1.ChangeKubernetes, v1alpha1.CauseSpec, image + "v1.36.2-slim", image + "v1.36.2", false, true},
		"an unknown old one":   {v1alpha1.ChangeKubernetes, v1alpha1.CauseSpec, "", image + "v1.36.2", false, true},
		"no fields":            {v1alpha1.ChangeKubernetes, v1alpha1.CauseSpec, "", "", false, true},
		"a configuration":      {v1alpha1.ChangeConfig, v1alpha1.CauseSpec, image + "v1.36.10", image + "v1.36.2", false, false},
		"without a kind":       {"", v1alpha1.CauseSpec, "a", "b", false, false},
		"a rolled back config": {"", v1alpha1.CauseRevert, "b", "a", true, false},
	} {
		change := &v1alpha1.MachineChange{Kind: c.kind, Cause: c.cause}
		if c.new != "" {
			change.Fields = []v1alpha1.FieldChange{{Field: "cluster.apiServer.image", Old: c.old, New: c.new}}
		}

		if back, advances := upgrade.TakesBack(change), upgrade.Advances(change); back != c.back || advances != c.advances {
			t.Errorf("%s: %t, %t", name, back, advances)
		}
	}

	if upgrade.Advances(nil) {
		t.Error("no change")
	}
}
