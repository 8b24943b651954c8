package conformance

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/talos-operator/talos-operator/test/loopback"
)

// TestConformance takes lab nodes through the recorded states. It is the promise of the lab: alike, not similar.
func TestConformance(t *testing.T) {
	result, err := Run(t.Context(), t.Output(), Options{
		Dir: t.TempDir(), Assets: assets(t), Subnet: netip.MustParsePrefix(loopback.Subnet(t) + ".0/24"), Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}

	// Six recordings of 74 calls, five of 167 types.
	if result.Failed > 0 || result.Passed < 74+3*336+2*334+5*2*167 {
		t.Errorf("%d passed, %d failed", result.Passed, result.Failed)
	}
}

// assets finds the folder with etcd and kube-apiserver.
func assets(t *testing.T) string {
	t.Helper()

	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		root, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}

		for ; root != "/"; root = filepath.Dir(root) {
			if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
				break
			}
		}

		dir = filepath.Join(root, ".bin", "kube")
	}

	for _, name := range []string{"etcd", "etcdutl", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatalf("%v: run make kube first", err)
		}
	}

	return dir
}
