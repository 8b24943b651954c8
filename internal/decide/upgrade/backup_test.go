package upgrade_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestBackupBeforeStep: another minor of Kubernetes waits for a backup, and nothing else of it does. By default, each
// version of Talos waits for one, too.
func TestBackupBeforeStep(t *testing.T) {
	for name, c := range map[string]struct {
		of           upgrade.Component
		from, to     string
		needs, waits bool
	}{
		"a minor":               {upgrade.Kubernetes, "v1.35.1", "v1.36.2", true, true},
		"a patch":               {upgrade.Kubernetes, "v1.36.1", "v1.36.2", false, false},
		"taken back":            {upgrade.Kubernetes, "v1.36.2", "v1.35.1", false, false},
		"what is not known":     {upgrade.Kubernetes, "unknown", "v1.36.2", true, true},
		"not written so before": {upgrade.Kubernetes, "1.36.1", "v1.36.2", true, true},
		"not written so":        {upgrade.Kubernetes, "v1.36.1", "1.36.2", true, true},
		"Talos":                 {upgrade.Talos, "v1.12.4", "v1.13.9", false, true},
		"a patch of Talos":      {upgrade.Talos, "v1.13.8", "v1.13.9", false, true},
	} {
		if got := upgrade.NeedsBackup(c.of, c.from, c.to); got != c.needs {
			t.Errorf("%s: needs %t", name, got)
		}

		if got := upgrade.WaitsForBackup(c.of, c.from, c.to); got != c.waits {
			t.Errorf("%s: waits %t", name, got)
		}
	}
}
