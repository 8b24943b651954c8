package machineconfig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TestSplitSecrets: settings may stand in a spec; whatever could be a secret may not, down to single fields.
func TestSplitSecrets(t *testing.T) {
	t.Parallel()

	const (
		labels = "machine:\n    nodeLabels:\n        a: b\n"
		mirror = "apiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: docker.io\nendpoints:\n    - url: https://m.example.com\n"
	)

	for name, tt := range map[string]struct {
		patch        string
		open, secret bool
	}{
		"labels":          {labels, true, false},
		"deletion":        {"machine:\n    nodeLabels:\n        $patch: delete\n", true, false},
		"mirror":          {mirror, true, false},
		"password":        {"apiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: m\nusername: u\npassword: p\n", false, true},
		"environment":     {"machine:\n    env:\n        PROXY: http://p\n", false, true},
		"user in a URL":   {strings.Replace(mirror, "m.example", "u:p@m.example", 1), false, true},
		"file":            {"machine:\n    files:\n        - content: x\n          path: /var/x\n", false, true},
		"a key of a pair": {"machine:\n    wireguard:\n        privateKey: x\n", false, true},
		"unknown kind":    {"apiVersion: v9\nkind: NewConfig\nsetting: x\n", false, true},
		"long text":       {"machine:\n    sysctls:\n        a: " + strings.Repeat("x", 300) + "\n", false, true},
		"lines":           {"machine:\n    sysctls:\n        a: |\n            x\n            y\n", false, true},
		"both": {
			"machine:\n    env:\n        TOKEN: t\n    nodeLabels:\n        a: b\n", true, true,
		},
	} {
		open, secret := machineconfig.SplitSecrets([]string{tt.patch})
		if len(open) > 0 != tt.open || len(secret) > 0 != tt.secret {
			t.Errorf("%s: open %q, secret %q", name, open, secret)
		}

		if tt.open && tt.secret {
			if d := cmp.Diff([]string{labels}, open); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
	}
}
