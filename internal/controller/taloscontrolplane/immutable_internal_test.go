package taloscontrolplane

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
)

// TestKubePrismOfTheCluster: an object that is created again for a cluster keeps the port that the manifests of the
// cluster name, which no rule about updates guards. A state that does not tell it allows any.
func TestKubePrismOfTheCluster(t *testing.T) {
	of := func(k *v1alpha1.KubePrism) *v1alpha1.TalosControlPlane {
		cp := &v1alpha1.TalosControlPlane{Spec: v1alpha1.TalosControlPlaneSpec{KubePrism: k}}
		cp.Spec.TalosVersion, cp.Spec.KubernetesVersion = "v1.13.9", "v1.36.2"

		return cp
	}
	other, off := &v1alpha1.KubePrism{Port: 7446}, &v1alpha1.KubePrism{Enabled: new(false), Port: 7446}

	for name, c := range map[string]struct {
		made, now *v1alpha1.KubePrism
		refused   bool
	}{
		"the same":             {other, other, false},
		"the default":          {nil, &v1alpha1.KubePrism{Port: 7445}, false},
		"left out":             {other, nil, true},
		"another":              {nil, other, true},
		"off":                  {other, off, true},
		"on":                   {off, other, true},
		"off without the port": {off, &v1alpha1.KubePrism{Enabled: new(false)}, false},
	} {
		made := desired.BundleConfig(of(c.made))

		err := checkChanges(of(c.now), made, "")
		if refused := err != nil; refused != c.refused || refused && !strings.Contains(err.Error(), "spec.kubePrism") {
			t.Errorf("%s: %v", name, err)
		}

		made.KubePrism = ""
		if err := checkChanges(of(c.now), made, ""); err != nil {
			t.Errorf("%s, not recorded: %v", name, err)
		}
	}
}
