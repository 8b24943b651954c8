package cli_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestUpgradeStatus: what machines run and do, what the rest waits for, and the exit codes.
func TestUpgradeStatus(t *testing.T) {
	s := newShellOf(t, "view")
	c := s.sample("old")
	s.unobserved(c)
	s.asked(c)
	s.runsVersions(c, talosV, kubernetes)

	if out, _, failed := s.run("upgrade", "status", "old"); failed != "" || !strings.HasPrefix(out, "old: no upgrade is left to do\n") {
		t.Errorf("%q, %q", out, failed)
	}

	s.runsVersions(c, talosV, "v1.34.1")

	if out, _, _ := s.run("upgrade", "status", "old"); !strings.HasPrefix(out, "old: the spec asks for other versions, and spec.upgrade does not") {
		t.Errorf("%q", out)
	}

	at := metav1.NewTime(wait.Now().Add(-30 * time.Hour).Truncate(time.Second))

	// A scheduler proves itself, and the worker waits for its slot.
	c.cp.Status.Upgrade = &v1alpha1.UpgradeStatus{
		KubernetesVersion: "v1.35.10", TargetKubernetes: "v1.36.2", StepsLeft: 2, Machines: []string{"old-cp"},
		Components: []v1alpha1.KubernetesComponent{
			v1alpha1.ComponentAPIServer, v1alpha1.ComponentControllerManager, v1alpha1.ComponentScheduler,
		},
	}
	c.worker.Status.Plan = &v1alpha1.PlanStatus{
		ID: "1234", Phase: v1alpha1.PlanAwaitingApproval, Message: "approval is required for plan 1234", CreatedAt: at,
		Machines: []v1alpha1.PlannedMachine{{Name: "old-w-0", Target: "b", Base: "a", State: v1alpha1.PlannedPending}},
	}
	c.machine[0].Status.ComponentVersions = &v1alpha1.ComponentVersions{
		APIServer: "v1.35.10", ControllerManager: "v1.35.10", Scheduler: "v1.35.10",
	}
	c.machine[0].Status.Change = &v1alpha1.MachineChange{
		ID: "1", Kind: v1alpha1.ChangeKubernetes, Base: "a", Target: "b", Cause: v1alpha1.CauseSpec, Phase: v1alpha1.ChangeSettling,
		Since: at, Message: "it waits for kube-scheduler to be ready",
	}
	s.runsVersions(c, talosV, "v1.34.1")

	want := "old: upgrading to Kubernetes v1.35.10 (Scheduler), the first of 2 steps left to Kubernetes v1.36.2; not yet done on old-cp\n" +
		c.worker.Name + ": plan 1234 is AwaitingApproval: approval is required for plan 1234\n\n" +
		"MACHINE ROLE TALOS APISERVER CONTROLLERMANAGER SCHEDULER KUBELET SINCE STATE\n" +
		"old-cp controlplane " + talosV + " v1.35.10 v1.35.10 v1.35.10 v1.34.1 30h Settling: it waits for kube-scheduler to be ready\n" +
		"old-w-0 worker " + talosV + " - - - v1.34.1-fat - -\n"

	out, _, failed := s.run("upgrade", "status", "old")
	if diff := cmp.Diff(squeeze(want), squeeze(out)); diff != "" || failed != "" {
		t.Errorf("%q: %s", failed, diff)
	}

	var state struct {
		Upgrade  v1alpha1.UpgradeStatus
		Machines []struct {
			Name, State string
			Since       metav1.Time
		}
	}

	out, _, _ = s.run("upgrade", "status", "old", "-o", "json")
	if err := json.Unmarshal([]byte(out), &state); err != nil || state.Upgrade.StepsLeft != 2 || len(state.Machines) != 2 ||
		state.Machines[0].State != "Settling" || !state.Machines[0].Since.Equal(&at) {
		t.Errorf("%v: %s", err, out)
	}

	c.cp.Status.Upgrade.StepsLeft = 1
	s.update(c)

	if out, _, _ := s.run("upgrade", "status", "old"); !strings.Contains(out, "v1.35.10 (Scheduler), the last step; not yet done on old-cp\n") {
		t.Errorf("%q", out)
	}

	for text, point := range map[string][2]string{
		"can be called off by setting kubernetesVersion to v1.34.1; not yet done on old-cp\n":               {"Ahead", "v1.34.1"},
		"can be called off by setting kubernetesVersion to the version of before; not yet done on old-cp\n": {"Ahead", ""},
		"the last step; it can no longer be called off; not yet done on old-cp\n":                           {"Passed", "v1.35.10"},
		"the last step; not yet done on old-cp\n":                                                           {"", "v1.34.1"},
	} {
		c.cp.Status.Upgrade.PointOfNoReturn, c.cp.Status.Upgrade.KubernetesFrom = v1alpha1.PointOfNoReturn(point[0]), point[1]
		s.update(c)

		if out, _, _ := s.run("upgrade", "status", "old"); !strings.Contains(out, text) {
			t.Errorf("%q", out)
		}

		if out, _, _ := s.run("upgrade", "status", "old", "-o", "json"); point[0] != "" && !strings.Contains(out, `"pointOfNoReturn": "`+point[0]+`"`) {
			t.Errorf("%s", out)
		}
	}

	s.installing(c)

	if _, _, failed := s.run("upgrade", "status", "old", "--watch", "-o", "json"); !strings.Contains(failed, "--watch prints text only") {
		t.Errorf("%q", failed)
	}

	s.watched(c)
}

// installing: what an installer has printed last is shown after what its machine does.
func (s *shell) installing(c *sample) {
	s.t.Helper()

	before := c.machine[1].Status.Change
	c.machine[1].Status.Change = &v1alpha1.MachineChange{
		ID: "2", Kind: v1alpha1.ChangeTalos, Base: "a", Target: "b", Cause: v1alpha1.CauseSpec, Phase: v1alpha1.ChangeApplying,
		Since: metav1.NewTime(wait.Now().Truncate(time.Second)), Message: "installing installer:b", Progress: "copying kernel",
	}
	s.runsVersions(c, talosV, "v1.34.1")

	if out, _, _ := s.run("upgrade", "status", "old"); !strings.Contains(out, " Applying: installing installer:b: copying kernel\n") {
		s.t.Errorf("%q", out)
	}

	if out, _, _ := s.run("upgrade", "status", "old", "-o", "json"); !strings.Contains(out, `"progress": "copying kernel"`) {
		s.t.Errorf("%s", out)
	}

	c.machine[1].Status.Change = before
	s.runsVersions(c, talosV, "v1.34.1")
}

// unobserved: a spec that the operator has not observed may ask for an upgrade, so it is not said that none is left,
// and --watch goes on.
func (s *shell) unobserved(c *sample) {
	s.t.Helper()
	s.runsVersions(c, talosV, kubernetes)

	const title = "old: TalosControlPlane old has not been reconciled since its spec changed\n"
	if out, _, _ := s.run("upgrade", "status", "old"); !strings.HasPrefix(out, title) {
		s.t.Errorf("%q", out)
	}

	short, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
	defer cancel()

	if out, _, failed := s.runWith(short, "upgrade", "status", "old", "--watch"); failed == "" {
		s.t.Errorf("it has ended: %q", out)
	}
}

// watched: in a pipe each change is a line, and the command ends with the upgrade.
func (s *shell) watched(c *sample) {
	s.t.Helper()

	type result struct{ out, failed string }

	ended := make(chan result, 1)

	go func() {
		out, _, failed := s.run("upgrade", "status", "old", "--watch")
		ended <- result{out, failed}
	}()

	c.machine[0].Status.Change, c.worker.Status.Plan = nil, nil
	s.runsVersions(c, talosV, kubernetes)

	c.cp.Status.Upgrade = nil
	s.update(c)

	got := <-ended
	if got.failed != "" || !strings.Contains(got.out, "old: no upgrade is left to do\n") ||
		!strings.Contains(got.out, "old-w-0: Talos "+talosV) || strings.Contains(got.out, "MACHINE") {
		s.t.Errorf("%q, %q", got.out, got.failed)
	}
}
