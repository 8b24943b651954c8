package taloscontrolplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// TestExamplesOfControlPlanes: each example of a TalosControlPlane is accepted as it is, patches included.
func TestExamplesOfControlPlanes(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}

	checked := 0

	for _, file := range files {
		manifests, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		for doc := range strings.SplitSeq(string(manifests), "\n---\n") {
			if !strings.Contains(doc, "\nkind: TalosControlPlane\n") {
				continue
			}

			checked++

			cp := &v1alpha1.TalosControlPlane{}
			if err := yaml.UnmarshalStrict([]byte(doc), cp); err != nil {
				t.Errorf("%s: %v", file, err)

				continue
			}

			if err := checkSpec(cp, clusterstate.BundleConfig{}, ""); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}

	if checked < 3 {
		t.Errorf("%d examples of control planes, want at least 3", checked)
	}
}
