package manifests_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
)

// TestOutcome: objects are named once, sorted, and never with their content.
func TestOutcome(t *testing.T) {
	var o manifests.Outcome

	if o.Report(version) != "" || o.Waits(version) != "" {
		t.Error("nothing differs")
	}

	for _, name := range []string{"d", "b", "a", "c"} {
		o.Differences = append(o.Differences, manifests.Difference{Key: manifests.Key{Kind: "ConfigMap", Namespace: "n", Name: name}})
	}

	o.Refused = []manifests.Refusal{
		{Key: manifests.Key{Kind: "ConfigMap", Namespace: "n", Name: "a"}, Reason: "Invalid", Message: "content"},
		{Key: manifests.Key{Kind: "Secret", Name: "s"}, Reason: "Forbidden", Message: "content"},
	}

	const report = "5 objects differ from the bootstrap manifests of Kubernetes v1.36.2: ConfigMap/n/a, ConfigMap/n/b, ConfigMap/n/c and 2 more; " +
		"set upgrade.manifests to Apply, or see talos-operator upgrade manifests"
	if got := o.Report(version); got != report {
		t.Error(got)
	}

	const waits = "the API server refuses bootstrap manifests of Kubernetes v1.36.2, which are retried: ConfigMap/n/a (Invalid), Secret/s (Forbidden); " +
		"see talos-operator upgrade manifests, or set upgrade.manifests to Report"
	if got := o.Waits(version); got != waits {
		t.Error(got)
	}

	if a, b := o.Refused[0].Shown(), o.Refused[1].Shown(); a != "content" || b != "Forbidden" {
		t.Errorf("%s, %s", a, b)
	}

	o = manifests.Outcome{Refused: o.Refused[:1]}
	if got := o.Report(version); !strings.HasPrefix(got, "1 object differs ") {
		t.Error(got)
	}
}

// TestUnchanged: what stays as it is although the manifests have it otherwise is said, and does not end unnoticed. An
// image of a container that others own differs.
func TestUnchanged(t *testing.T) {
	const (
		image    = `DaemonSet/n/p.spec.template.spec.containers[name="p"].image (kubectl-set)`
		left     = "fields that other managers own are left to them: "
		report   = "1 object differs from the bootstrap manifests of Kubernetes v1.36.2: DaemonSet/n/p; set upgrade.manifests to Apply, or see talos-operator upgrade manifests; "
		withheld = "ConfigMap/n/a: not deleted without evidence that no control-plane machine has it among its manifests: cp-1: no answer"
	)

	p := manifests.Key{Group: "apps", Kind: "DaemonSet", Namespace: "n", Name: "p"}
	images := []manifests.Left{{Key: p, Manager: "kubectl-set", Path: `.spec.template.spec.containers[name="p"].image`}}
	replicas := []manifests.Left{{Key: p, Manager: "hpa", Path: ".spec.replicas"}}
	stays := manifests.Outcome{Withheld: []manifests.Key{{Kind: "ConfigMap", Namespace: "n", Name: "a"}}, Uncertain: "cp-1: no answer"}
	changed := []manifests.Difference{{Key: p, Action: manifests.Change}}

	const apply, compare = v1alpha1.ManifestsApply, v1alpha1.ManifestsReport

	for name, c := range map[string]struct {
		found     manifests.Outcome
		policy    v1alpha1.ManifestPolicy
		was       bool
		message   string // empty: no status is left
		differing int32
		applied   bool
	}{
		"nothing, compared":        {policy: compare},
		"nothing, applied":         {policy: apply},
		"everything was applied":   {found: manifests.Outcome{Differences: changed}, policy: apply},
		"an image, compared":       {manifests.Outcome{Left: images}, compare, false, report + left + image, 1, false},
		"an image, applied":        {manifests.Outcome{Left: images}, apply, false, left + image, 1, true},
		"later":                    {manifests.Outcome{Left: images, Differences: changed}, apply, true, left + image, 1, true},
		"the image was given back": {found: manifests.Outcome{Differences: changed}, policy: apply, was: true},
		"no longer to be applied":  {manifests.Outcome{Left: images}, compare, true, report + left + image, 1, false},
		"another field":            {manifests.Outcome{Left: replicas}, compare, false, left + "DaemonSet/n/p.spec.replicas (hpa)", 0, false},
		"withheld, compared":       {stays, compare, false, withheld, 0, false},
		"withheld, applied":        {stays, apply, false, withheld, 0, false},
	} {
		got := manifests.Status(&v1alpha1.ManifestsStatus{KubernetesVersion: version, Applied: c.was}, c.found, c.policy, "")

		switch {
		case (got == nil) != (c.message == ""):
			t.Errorf("%s: %+v", name, got)
		case got != nil && (got.Message != c.message || got.Differing != c.differing || got.Applied != c.applied):
			t.Errorf("%s: %+v", name, got)
		}
	}
}
