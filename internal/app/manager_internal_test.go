package app

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
)

// TestLeaseTellsVersion: talos-operator version --operator reads the version from the Lease. A label may not have a plus.
func TestLeaseTellsVersion(t *testing.T) {
	for version, want := range map[string]map[string]string{
		"":              nil,
		"dev":           {VersionLabel: "dev"},
		"v0.1.0":        {VersionLabel: "v0.1.0"},
		"chart/v0.2.0":  nil,
		"v0.1.0-":       nil,
		"v0.1.0+dirty1": {VersionLabel: "v0.1.0_dirty1"},
	} {
		got := managerOptions(nil, Options{Version: version}, logr.Discard()).LeaderElectionLabels
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", version, diff)
		}
	}
}
