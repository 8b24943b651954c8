package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// runsVersions shows a sample as one that runs, with a worker that has a kubelet with more files.
func (s *shell) runsVersions(c *sample, talos, kubernetes string) {
	s.t.Helper()

	c.cp.Status.ObservedKubeVersion = kubernetes
	s.update(c)

	for i, m := range c.machine {
		m.Status.TalosVersion, m.Status.KubeletVersion = talos, kubernetes
		if i > 0 {
			m.Status.KubeletVersion += "-fat"
		}

		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionConfigured, Status: metav1.ConditionTrue, Reason: "Test", Message: "said by the test",
		})

		if err := s.client.Status().Update(s.t.Context(), m); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestUpgradePlan: the path, its formats and its exit codes, and what cannot be planned.
func TestUpgradePlan(t *testing.T) {
	s := newShellOf(t, "view")
	c := s.sample("old")

	if _, _, failed := s.run("upgrade", "plan", "old"); !strings.Contains(failed, "no machine is known") {
		t.Errorf("nothing is configured: %s", failed)
	}

	s.runsVersions(c, "", kubernetes)

	if _, _, failed := s.run("upgrade", "plan", "old"); !strings.Contains(failed, "its version of Talos is not known yet") {
		t.Errorf("nothing has reported: %s", failed)
	}

	s.runsVersions(c, talosV, kubernetes)

	if out, _, failed := s.run("upgrade", "plan", "old"); failed != "" || out != "old runs Talos "+talosV+" with Kubernetes "+kubernetes+" already.\n" {
		t.Errorf("%q, %q", out, failed)
	}

	s.runsVersions(c, "v1.11.6", "v1.34.1")

	out, _, failed := s.run("upgrade", "plan", "old", "--talos", "v1.13.9", "--kubernetes", "v1.35.8", "--via", "v1.12.9")
	want := "old: from Talos v1.11.6 with Kubernetes v1.34.1 to Talos v1.13.9 with Kubernetes v1.35.8 in 3 steps, 4 reboots, about 19m (assumed)\n\n" +
		"STEP COMPONENT FROM TO MACHINES REBOOTS REASON\n" +
		"1 Talos v1.11.6 v1.12.9 old-cp, old-w-0 2 minor by minor\n" +
		"2 Talos v1.12.9 v1.13.9 old-cp, old-w-0 2 the target\n" +
		"3 Kubernetes v1.34.1 v1.35.8 old-cp, old-w-0 0 the target\n\n" +
		"Until its kubelets begin, a step of Kubernetes can be called off by setting kubernetesVersion to the version in its column FROM; afterwards, it cannot.\n"

	if diff := cmp.Diff(squeeze(want), squeeze(out)); diff != "" || failed != "" {
		t.Errorf("%q: %s", failed, diff)
	}

	out, _, _ = s.run("upgrade", "plan", "old", "--talos", "v1.13.9", "--kubernetes", "v1.35.8", "-o", "json")

	var result struct {
		Steps   []upgrade.Step
		Reboots int
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || len(result.Steps) != 3 || result.Reboots != 4 {
		t.Errorf("%v: %s", err, out)
	}

	// A machine that waits in maintenance mode runs the Talos of its boot medium.
	c.machine[1].Status.TalosVersion = "v1.13.10"
	meta.SetStatusCondition(&c.machine[1].Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConfigured, Status: metav1.ConditionFalse, Reason: "Test", Message: "said by the test",
	})

	if err := s.client.Status().Update(t.Context(), c.machine[1]); err != nil {
		t.Fatal(err)
	}

	out, _, failed = s.run("upgrade", "plan", "old", "--talos", "v1.12.9", "--kubernetes", "v1.34.1")
	if !strings.Contains(out, "in 1 step, 1 reboot, about 4m (assumed)\n") || !strings.HasSuffix(out, "\nNot part of the cluster now: old-w-0\n") {
		t.Errorf("%q, %q", out, failed)
	}

	for part, args := range map[string][]string{
		"older than v1.11.6, which runs already":                       {"--talos", "v1.10.9", "--kubernetes", "v1.34.1"},
		"the nearest that can be reached is Talos v1.12.9 with":        {"--talos", "v1.12.9", "--kubernetes", "v1.36.3"},
		`"latest" is not a version`:                                    {"--via", "latest"},
		"unknown output format \"table\": use json or yaml":            {"-o", "table"},
		"no KubernetesCluster or TalosControlPlane young in namespace": {},
	} {
		name := "old"
		if len(args) == 0 {
			name = "young"
		}

		if out, _, failed := s.run(append([]string{"upgrade", "plan", name}, args...)...); !strings.Contains(failed, part) {
			t.Errorf("%v: %q, %q; want %q", args, out, failed, part)
		}
	}
}

// TestUpgradeManifests: what cannot be compared is trouble, and no difference.
func TestUpgradeManifests(t *testing.T) {
	s := newShell(t)
	s.sample("old")

	for name, want := range map[string]string{
		"missing": "no KubernetesCluster or TalosControlPlane missing", "old": "reading the bootstrap manifests of Kubernetes",
	} {
		out, _, failed := s.run("upgrade", "manifests", name)
		if out != "" || !strings.Contains(failed, want) {
			t.Errorf("%s: %q, %q", name, out, failed)
		}
	}
}
