package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/render"
	"github.com/talos-operator/talos-operator/internal/talconfig/spec"
)

// TestObjectsOfTalconfigs: an API server accepts the objects of each talconfig.yaml of the test data.
func TestObjectsOfTalconfigs(t *testing.T) {
	s := newShell(t)
	fleets := filepath.Join("..", "talconfig", "spec", "testdata", "fleets")

	raw, err := os.ReadFile(filepath.Join("..", "machineconfig", "testdata", "secrets.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	bundle, err := clusterstate.ParseBundle(raw)
	if err != nil {
		t.Fatal(err)
	}

	keys := func() ([]age.Identity, error) {
		text, err := os.ReadFile(filepath.Join(fleets, "files", "age.txt"))
		if err != nil {
			return nil, err
		}

		return age.ParseIdentities(strings.NewReader(string(text)))
	}

	paths, err := filepath.Glob(filepath.Join(fleets, "*.yaml"))
	if err != nil || len(paths) < 40 {
		t.Fatal(paths, err)
	}

	for _, path := range paths {
		if filepath.Base(path) == "talenv.yaml" {
			continue
		}

		fleet, err := talconfig.Load(talconfig.Options{Path: path, Keys: keys})
		if err != nil {
			t.Fatal(err)
		}

		files, err := render.Nodes(fleet, render.Options{Secrets: bundle.Secrets()})
		if err != nil {
			t.Fatal(err)
		}

		cluster, err := spec.Make(fleet, spec.Options{
			Namespace: s.ns, Files: files, Bundle: bundle, Now: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC),
		})
		if err != nil {
			t.Fatal(err)
		}

		for _, o := range cluster.Objects() {
			if err := s.client.Create(t.Context(), o.(client.Object), client.DryRunAll); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}
