package taloscontrolplane

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/test/pki"
)

// TestCheckedUpgrades: only an upgrade of Kubernetes that has not begun is checked, and only one to another minor.
func TestCheckedUpgrades(t *testing.T) {
	const old, wanted = "v1.35.1", "v1.36.2"

	applying := &v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Phase: v1alpha1.ChangeApplying}
	failed := &v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Phase: v1alpha1.ChangeFailed}
	pending := &v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Phase: v1alpha1.ChangePending}
	a, w := kubernetesMachine("a", old, old, old, nil), kubernetesMachine("w", "", "", old, nil)

	type machines = []v1alpha1.TalosMachine

	for name, c := range map[string]struct {
		version  string
		machines machines
		policy   v1alpha1.RemovedAPIPolicy
		target   string
		checked  bool
	}{
		"not begun":                      {version: wanted, machines: machines{a, w}, checked: true},
		"refused explicitly":             {version: wanted, machines: machines{a, w}, policy: v1alpha1.RemovedAPIsRefuse, checked: true},
		"ignored":                        {version: wanted, machines: machines{a, w}, policy: v1alpha1.RemovedAPIsIgnore},
		"a patch release":                {version: "v1.35.9", machines: machines{a, w}},
		"no version":                     {machines: machines{a, w}},
		"begun":                          {version: wanted, machines: machines{kubernetesMachine("a", wanted, old, old, nil), w}},
		"is being sent":                  {version: wanted, machines: machines{kubernetesMachine("a", old, old, old, applying), w}},
		"is planned":                     {version: wanted, machines: machines{kubernetesMachine("a", old, old, old, pending), w}, checked: true},
		"has failed":                     {version: wanted, machines: machines{kubernetesMachine("a", old, old, old, failed), w}},
		"has failed for another target":  {version: wanted, machines: machines{kubernetesMachine("a", old, old, old, failed), w}, target: "v1.37.0", checked: true},
		"the version of one is not told": {version: wanted, machines: machines{kubernetesMachine("a", "unknown", "", old, nil), w}},
		"a machine is missing":           {version: wanted, machines: machines{w}},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Spec.KubernetesVersion = wanted
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic, RemovedAPIs: c.policy}
		cp.Status.ObservedKubeVersion = old
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{TargetKubernetes: c.target}

		if c.target == "" {
			cp.Status.Upgrade.TargetKubernetes = wanted
		}

		next := &v1alpha1.UpgradeStatus{KubernetesVersion: c.version, TargetKubernetes: wanted}

		var want []string
		if c.checked {
			want = []string{"1.35", "1.36"}
		}

		if got := minorsOf(cp, next, []v1alpha1.MachineEntry{{Name: "a"}}, c.machines); !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}

	if got := minorsOf(&v1alpha1.TalosControlPlane{}, nil, nil, nil); got != nil {
		t.Errorf("nothing to do: %q", got)
	}
}

// TestRefusedUpgrade: nothing of an upgrade that may not begin is left in the status for a machine to follow, and what is
// remembered stays.
func TestRefusedUpgrade(t *testing.T) {
	next := &v1alpha1.UpgradeStatus{
		ObservedGeneration: 7, TargetKubernetes: "v1.36.2", KubernetesVersion: "v1.36.2", KubernetesBegun: "v1.36.2",
		KubernetesFrom: "v1.35.1", Components: []v1alpha1.KubernetesComponent{v1alpha1.ComponentAPIServer},
		Machines: []string{"a"}, StepsLeft: 2, Message: "something else",
	}
	was := &v1alpha1.UpgradeStatus{KubernetesBegun: "v1.35.1", KubernetesFrom: "v1.34.1", Approved: true}
	want := &v1alpha1.UpgradeStatus{ObservedGeneration: 7, TargetKubernetes: "v1.36.2", StepsLeft: 2, Message: "no"}

	if diff := cmp.Diff(want, refused(next, nil, "no")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	want.KubernetesBegun, want.KubernetesFrom, want.Approved = "v1.35.1", "v1.34.1", true

	if diff := cmp.Diff(want, refused(next, was, "no")); diff != "" {
		t.Errorf("after another one, -want +got:\n%s", diff)
	}

	if got := refused(next, nil, strings.Repeat("é", 1000)).Message; len(got) > longestMessage {
		t.Errorf("a message of %d bytes", len(got))
	}
}

// TestCheckWithoutAPI: a cluster that does not respond is no evidence: the upgrade does not begin, and the check is soon
// repeated. An upgrade of Talos goes on without its hints.
func TestCheckWithoutAPI(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	clock := testclock.NewFakePassiveClock(now)

	bundle, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}

	r := &Reconciler{Clock: clock, Workloads: &workload.Clients{Clock: clock}}
	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic}
	s := newScope(cp)
	s.held = &clusterstate.Held{State: &clusterstate.State{Bundle: bundle}}

	machines := []v1alpha1.TalosMachine{kubernetesMachine("a", "v1.35.1", "v1.35.1", "v1.35.1", nil)}
	next := &v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2", Components: []v1alpha1.KubernetesComponent{v1alpha1.ComponentAPIServer}}

	const want = "insufficient evidence that Kubernetes v1.36.2 removes nothing in use: no API server of the cluster responds; "

	if got := r.preflight(t.Context(), s, next, machines); got.KubernetesVersion != "" || !strings.HasPrefix(got.Message, want) {
		t.Errorf("%+v", got)
	}

	// What was allowed before and waits for something else is not withdrawn for that.
	cp.Status.Upgrade = next
	if got := r.preflight(t.Context(), s, next, machines); got.KubernetesVersion != "v1.36.2" {
		t.Errorf("withdrawn: %+v", got)
	}

	cp.Status.Upgrade = nil

	last, fresh := r.preflights.get(s.key(), "0/v1.36.2", now)
	if !fresh || last.until.Sub(now) != preflightRetry {
		t.Errorf("checked again in %s", last.until.Sub(now))
	}

	if got := r.preflight(t.Context(), s, nil, machines); got != nil {
		t.Errorf("nothing to do: %+v", got)
	}

	if last, fresh = r.preflights.get(s.key(), "0/v1.36.2", now); fresh {
		t.Errorf("the check is kept although there is no upgrade: %+v", last)
	}

	talos := &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.10"}
	if got := r.preflight(t.Context(), s, talos, machines); got.TalosVersion != "v1.13.10" || got.Message+got.Obstacles != "" {
		t.Errorf("Talos: %+v", got)
	}
}
