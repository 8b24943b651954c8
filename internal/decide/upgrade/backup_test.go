package upgrade_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestBackupBeforeStep: another minor of Kubernetes waits for a backup, and nothing else of it does. Where none is
// demanded and no schedule takes any, that is said of each step that would be held.
func TestBackupBeforeStep(t *testing.T) {
	const says = "goes on without a backup"

	for name, c := range map[string]struct {
		of        upgrade.Component
		from, to  string
		needs     bool
		demanded  bool
		schedules int
		without   string
	}{
		"a minor":               {of: upgrade.Kubernetes, from: "v1.35.1", to: "v1.36.2", needs: true, without: says},
		"demanded":              {of: upgrade.Kubernetes, from: "v1.35.1", to: "v1.36.2", needs: true, demanded: true},
		"scheduled":             {of: upgrade.Kubernetes, from: "v1.35.1", to: "v1.36.2", needs: true, schedules: 1},
		"a patch":               {of: upgrade.Kubernetes, from: "v1.36.1", to: "v1.36.2"},
		"taken back":            {of: upgrade.Kubernetes, from: "v1.36.2", to: "v1.35.1"},
		"what is not known":     {of: upgrade.Kubernetes, from: "unknown", to: "v1.36.2", needs: true, without: says},
		"not written so before": {of: upgrade.Kubernetes, from: "1.36.1", to: "v1.36.2", needs: true, without: says},
		"not written so":        {of: upgrade.Kubernetes, from: "v1.36.1", to: "1.36.2", needs: true, without: says},
		"Talos":                 {of: upgrade.Talos, from: "v1.12.4", to: "v1.13.9", without: says},
		"a patch of Talos":      {of: upgrade.Talos, from: "v1.13.8", to: "v1.13.9", without: says},
		"Talos with schedules":  {of: upgrade.Talos, from: "v1.12.4", to: "v1.13.9", schedules: 2},
	} {
		if got := upgrade.NeedsBackup(c.of, c.from, c.to); got != c.needs {
			t.Errorf("%s: needs %t", name, got)
		}

		got := upgrade.WithoutBackup(c.of, c.from, c.to, c.demanded, c.schedules)
		if !strings.Contains(got, c.without) || c.without == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
