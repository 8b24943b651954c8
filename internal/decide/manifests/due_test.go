package manifests_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestDue: manifests are compared once each machine runs the version that an upgrade has brought.
func TestDue(t *testing.T) {
	const next = "v1.37.1"

	noted := func(v string) *v1alpha1.ManifestsStatus { return &v1alpha1.ManifestsStatus{KubernetesVersion: v} }
	applied := &v1alpha1.ManifestsStatus{KubernetesVersion: version, Applied: true}
	step := func(v string) *v1alpha1.UpgradeStatus { return &v1alpha1.UpgradeStatus{KubernetesVersion: v} }
	runs := func(v ...string) (out upgrade.Cluster) {
		for _, kubelet := range v {
			out.Nodes = append(out.Nodes, upgrade.Node{Kubelet: kubelet})
		}

		return out
	}

	const apply, report = v1alpha1.ManifestsApply, v1alpha1.ManifestsReport

	for name, c := range map[string]struct {
		was    *v1alpha1.ManifestsStatus
		next   *v1alpha1.UpgradeStatus
		runs   upgrade.Cluster
		policy v1alpha1.ManifestPolicy
		want   string // the version of the status
		due    bool
	}{
		"no upgrade":                      {runs: runs(version), policy: apply},
		"an upgrade begins":               {next: step(version), runs: runs("v1.35.1"), want: version},
		"it goes on":                      {was: noted(version), next: step(version), runs: runs(version, "v1.35.1"), want: version},
		"a kubelet has not proved itself": {was: noted(version), next: step(version), runs: runs(version), want: version},
		"it ends":                         {was: noted(version), runs: runs(version, version), policy: apply, want: version, due: true},
		"it ends, to be reported":         {was: noted(version), runs: runs(version), policy: report, want: version, due: true},
		"by default it is reported":       {was: noted(version), runs: runs(version), want: version, due: true},
		"Talos comes next":                {was: noted(version), next: &v1alpha1.UpgradeStatus{TalosVersion: "v1.14.0"}, runs: runs(version), policy: apply, want: version, due: true},
		"the next version waits":          {was: noted(version), next: step(next), runs: runs(version), policy: apply, want: version, due: true},
		"applied, the next does not wait": {was: applied, next: step(next), runs: runs(version), policy: apply, want: next},
		"applied, and compared":           {was: applied, runs: runs(version), policy: apply, want: version, due: true},
		"the next version does not wait":  {was: noted(version), next: step(next), runs: runs(version), policy: report, want: next},
		"the next version has begun":      {was: noted(version), next: step(next), runs: runs(version, next), policy: apply, want: next},
		"called off":                      {was: noted(version), next: step("v1.35.1"), runs: runs(version, "v1.35.1"), policy: apply, want: "v1.35.1"},
		"upgraded by other means":         {was: noted(version), runs: runs(next), policy: apply},
		"no machine is left":              {was: noted(version), policy: apply},
	} {
		got, due := manifests.Due(c.was, c.next, c.runs, c.policy)
		if due != c.due || (got == nil) != (c.want == "") || got != nil && got.KubernetesVersion != c.want {
			t.Errorf("%s: %+v, %t", name, got, due)
		}
	}
}

// TestStatus: the objects that differ are named, at most 16, and stay while they cannot be compared.
func TestStatus(t *testing.T) {
	var found manifests.Outcome
	for i := range 20 {
		found.Differences = append(found.Differences, manifests.Difference{Key: manifests.Key{Kind: "ConfigMap", Namespace: "n", Name: string(rune('a' + i))}})
	}

	got := manifests.Status(&v1alpha1.ManifestsStatus{KubernetesVersion: version, Message: "old"}, found, "", "")
	if got.Differing != 20 || len(got.Objects) != 16 || got.Objects[0] != "ConfigMap/n/a" || !strings.HasPrefix(got.Message, "20 objects differ") {
		t.Errorf("%+v", got)
	}

	later := manifests.Status(got, manifests.Outcome{}, "", "cp-0 is unreachable")
	if later.Differing != 20 || len(later.Objects) != 16 || later.Message != "the bootstrap manifests of Kubernetes v1.36.2 are not compared: cp-0 is unreachable" {
		t.Errorf("%+v", later)
	}

	// What was applied differs no more; what is to be deleted waits for what is refused.
	found.Differences[1].Action, found.Refused = manifests.Delete, []manifests.Refusal{{Key: found.Differences[2].Key, Reason: "Invalid"}}

	left := manifests.Status(got, found, v1alpha1.ManifestsApply, "")
	if want := []string{"ConfigMap/n/b", "ConfigMap/n/c"}; left.Differing != 2 || !slices.Equal(left.Objects, want) || left.Message != found.Waits(version) || left.Applied {
		t.Errorf("%+v", left)
	}
}

// TestPolicy: while machines are given another Talos, manifests are compared, and neither applied nor waited for.
func TestPolicy(t *testing.T) {
	const apply, compare = v1alpha1.ManifestsApply, v1alpha1.ManifestsReport

	talos, kube := &v1alpha1.UpgradeStatus{TalosVersion: "v1.14.0"}, &v1alpha1.UpgradeStatus{KubernetesVersion: "v1.37.1"}
	waits := &v1alpha1.UpgradeStatus{Message: "waiting for the versions of cp-0"}

	for name, c := range map[string]struct {
		spec       v1alpha1.ManifestPolicy
		next, was  *v1alpha1.UpgradeStatus
		installing string
		applied    bool
		want       v1alpha1.ManifestPolicy
	}{
		"nothing else":                 {spec: apply, want: apply},
		"compared":                     {spec: compare, next: talos, want: compare},
		"Talos comes next":             {spec: apply, next: talos, want: compare},
		"Talos was on its way":         {spec: apply, was: talos, want: compare},
		"what comes next is not known": {spec: apply, next: waits, was: talos, want: compare},
		"Talos has to prove itself":    {spec: apply, next: waits, was: kube, installing: "cp-0", want: compare},
		"Kubernetes comes after Talos": {spec: apply, next: kube, was: talos, want: apply},
		"it waits for its manifests":   {spec: apply, was: kube, want: apply},
		"they were applied before":     {spec: apply, next: talos, applied: true, want: apply},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Manifests: c.spec}
		cp.Status.Upgrade, cp.Status.Manifests = c.was, &v1alpha1.ManifestsStatus{Applied: c.applied}

		if got := manifests.Policy(cp, c.next, c.installing); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestHeld: an upgrade that waits for manifests stays at its step, and keeps what it remembers.
func TestHeld(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Generation, cp.Spec.KubernetesVersion = 7, version

	got := manifests.Held(cp, nil, version, "waiting")
	if got.ObservedGeneration != 7 || got.KubernetesVersion != version || got.TargetKubernetes != version || got.StepsLeft != 1 ||
		got.Message != "waiting" || got.Components[len(got.Components)-1] != v1alpha1.ComponentKubelet {
		t.Errorf("%+v", got)
	}

	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{KubernetesBegun: version, Approved: true}

	got = manifests.Held(cp, &v1alpha1.UpgradeStatus{Target: "v1.14.0", TargetKubernetes: "v1.37.1", StepsLeft: 2}, version, "")
	if got.KubernetesBegun != version || !got.Approved || got.Target != "v1.14.0" || got.TargetKubernetes != "v1.37.1" || got.StepsLeft != 3 {
		t.Errorf("%+v", got)
	}

	// Each machine runs the version, unless one was taken back.
	for was, want := range map[v1alpha1.PointOfNoReturn]v1alpha1.PointOfNoReturn{
		v1alpha1.PointOfNoReturnAhead: v1alpha1.PointOfNoReturnPassed, v1alpha1.PointOfNoReturnPassed: v1alpha1.PointOfNoReturnPassed, "": "",
	} {
		cp.Status.Upgrade.PointOfNoReturn = was

		if got := manifests.Held(cp, nil, version, ""); got.PointOfNoReturn != want {
			t.Errorf("%q: %q", was, got.PointOfNoReturn)
		}
	}
}

// TestHeldBy: an upgrade whose manifests are refused has a reason for as long as nothing else was found out.
func TestHeldBy(t *testing.T) {
	const is = v1alpha1.ReasonManifestsRefused

	refuses := manifests.Outcome{Refused: []manifests.Refusal{{Reason: "Invalid"}}}
	before, other := &v1alpha1.UpgradeStatus{Reason: is}, &v1alpha1.UpgradeStatus{Reason: v1alpha1.ReasonInsufficientDiskSpace}

	for name, c := range map[string]struct {
		was     *v1alpha1.UpgradeStatus
		found   manifests.Outcome
		applies bool
		problem string
		want    string
	}{
		"refused":               {nil, refuses, true, "", is},
		"only compared":         {before, refuses, false, "", ""},
		"no longer":             {before, manifests.Outcome{}, true, "", ""},
		"unknown":               {nil, manifests.Outcome{}, true, "off", ""},
		"unknown since then":    {before, manifests.Outcome{}, true, "off", is},
		"unknown, not before":   {other, manifests.Outcome{}, true, "off", ""},
		"unknown, not any more": {before, manifests.Outcome{}, false, "off", ""},
	} {
		if got := manifests.HeldBy(c.was, c.found, c.applies, c.problem); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
