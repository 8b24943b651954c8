package upgrade_test

import (
	"errors"
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// FuzzPlan: versions are refused with a problem, or have a way that ends where it should, never goes back and names only
// versions.
func FuzzPlan(f *testing.F) {
	f.Add("v1.12.9", "v1.34.1", "v1.13.9", "v1.36.3", "v1.35.1")
	f.Add("v1.13.9", "v1.36.2", "v1.13.9-rc.0+a", "v1.18446744073709551615.0", "v1.13.9")
	f.Add("1.13.9", "v2.0.0", "", "", "latest")
	f.Add("v1.13.9+\n", "v1.36.2", "v1.13.10", "", "")

	f.Fuzz(func(t *testing.T, talos, kubernetes, toTalos, toKubernetes, via string) {
		target := upgrade.Target{Talos: toTalos, Kubernetes: toKubernetes}

		steps, err := upgrade.Plan(runs(talos, kubernetes), target, via)
		if refused := (*upgrade.Refusal)(nil); err != nil {
			if !errors.As(err, &refused) || refused.Problem == "" {
				t.Errorf("unclassified: %v", err)
			}

			return
		}

		last := map[upgrade.Component]string{upgrade.Talos: talos, upgrade.Kubernetes: kubernetes}

		for _, s := range steps {
			if upgrade.Newer(last[s.Component], s.To) || !upgrade.IsVersion(s.To) || len(s.Machines) == 0 {
				t.Errorf("a step from %s to %s of %v", s.From, s.To, s.Machines)
			}

			last[s.Component] = s.To
		}

		if upgrade.Newer(target.Talos, last[upgrade.Talos]) || upgrade.Newer(target.Kubernetes, last[upgrade.Kubernetes]) {
			t.Errorf("the way to %v ends at %v", target, last)
		}
	})
}
