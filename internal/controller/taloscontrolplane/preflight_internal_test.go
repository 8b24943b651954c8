package taloscontrolplane

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/test/pki"
)

// TestCheckedUpgrades: only an upgrade of Kubernetes that has not begun is checked.
func TestCheckedUpgrades(t *testing.T) {
	const old, wanted = "v1.35.1", "v1.36.2"

	change := func(phase v1alpha1.ChangePhase) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{ID: "one", Kind: v1alpha1.ChangeKubernetes, Phase: phase}
	}
	failed := change(v1alpha1.ChangeFailed)
	a, w := kubernetesMachine("a", old, old, old, nil), kubernetesMachine("w", "", "", old, nil)
	granted := func(id string) v1alpha1.TalosMachine {
		m := kubernetesMachine("a", old, old, old, change(v1alpha1.ChangePending))
		m.Spec.Change = &v1alpha1.ChangeGrant{ID: id}

		return m
	}

	type machines = []v1alpha1.TalosMachine

	for name, c := range map[string]struct {
		version  string
		machines machines
		target   string
		checked  bool
	}{
		"not begun":                      {version: wanted, machines: machines{a, w}, checked: true},
		"a patch release":                {version: "v1.35.9", machines: machines{a, w}, checked: true},
		"taken back":                     {version: "v1.34.9", machines: machines{a, w}},
		"no version":                     {machines: machines{a, w}},
		"begun":                          {version: wanted, machines: machines{kubernetesMachine("a", wanted, old, old, nil), w}},
		"is being sent":                  {version: wanted, machines: machines{kubernetesMachine("a", old, old, old, change(v1alpha1.ChangeApplying)), w}},
		"is planned":                     {version: wanted, machines: machines{kubernetesMachine("a", old, old, old, change(v1alpha1.ChangePending)), w}, checked: true},
		"may begin":                      {version: wanted, machines: machines{granted("one"), w}},
		"another change could begin":     {version: wanted, machines: machines{granted("two"), w}, checked: true},
		"has failed":                     {version: wanted, machines: machines{kubernetesMachine("a", old, old, old, failed), w}},
		"has failed for another target":  {version: wanted, machines: machines{kubernetesMachine("a", old, old, old, failed), w}, target: "v1.37.0", checked: true},
		"the version of one is not told": {version: wanted, machines: machines{kubernetesMachine("a", "unknown", "", old, nil), w}},
		"a machine is missing":           {version: wanted, machines: machines{w}},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Spec.KubernetesVersion = wanted
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic}
		cp.Status.ObservedKubeVersion = old
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{TargetKubernetes: cmp.Or(c.target, wanted)}

		next := &v1alpha1.UpgradeStatus{KubernetesVersion: c.version, TargetKubernetes: wanted}

		if _, got := notBegun(cp, next, []v1alpha1.MachineEntry{{Name: "a"}}, c.machines); got != c.checked {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestBegunTalos: an upgrade of Talos has begun once a machine runs the version or may begin with it.
func TestBegunTalos(t *testing.T) {
	const version = "v1.13.10"

	for name, c := range map[string]struct {
		edit func(*v1alpha1.TalosMachine)
		want bool
	}{
		"not begun":  {func(*v1alpha1.TalosMachine) {}, false},
		"runs it":    {func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = version }, true},
		"may begin":  {func(m *v1alpha1.TalosMachine) { m.Spec.Change = &v1alpha1.ChangeGrant{ID: "one"} }, true},
		"is drained": {func(m *v1alpha1.TalosMachine) { m.Status.Change.Phase = v1alpha1.ChangeDraining }, true},
		"another kind": {func(m *v1alpha1.TalosMachine) {
			m.Status.Change.Kind, m.Status.Change.Phase = v1alpha1.ChangeConfig, v1alpha1.ChangeApplying
		}, false},
		"is deleted": {func(m *v1alpha1.TalosMachine) {
			m.Status.TalosVersion, m.DeletionTimestamp = version, &metav1.Time{Time: time.Unix(0, 0)}
		}, false},
	} {
		m := kubernetesMachine("a", "v1.36.2", "v1.36.2", "v1.36.2", &v1alpha1.MachineChange{
			ID: "one", Kind: v1alpha1.ChangeTalos, Phase: v1alpha1.ChangePending,
		})
		c.edit(&m)

		next := &v1alpha1.UpgradeStatus{TalosVersion: version}
		if got := begunTalos(next, nil, []v1alpha1.TalosMachine{m}, true); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestBegunSchematics: a step that brings schematics has begun once a machine is given its own, and then stays so: between
// two machines none is.
func TestBegunSchematics(t *testing.T) {
	step := func(version string, pulls bool) *v1alpha1.UpgradeStatus {
		u := &v1alpha1.UpgradeStatus{TalosVersion: version, SchematicsOnly: true}
		if pulls {
			u.Pulling = &v1alpha1.UpgradeImages{TalosVersion: version}
		}

		return u
	}

	for name, c := range map[string]struct {
		was   *v1alpha1.UpgradeStatus
		phase v1alpha1.ChangePhase
		want  bool
		never bool
	}{
		"no images are pulled": {step("v1.13.10", false), v1alpha1.ChangePending, false, true},
		"with another spec": {
			&v1alpha1.UpgradeStatus{ObservedGeneration: 1, TalosVersion: "v1.13.10", SchematicsOnly: true},
			v1alpha1.ChangePending, false, false,
		},
		"not begun":             {nil, v1alpha1.ChangePending, false, false},
		"pulls":                 {step("v1.13.10", true), v1alpha1.ChangePending, false, false},
		"held":                  {step("", false), v1alpha1.ChangePending, false, false},
		"the version has begun": {&v1alpha1.UpgradeStatus{TalosVersion: "v1.13.10"}, v1alpha1.ChangePending, false, false},
		"is drained":            {step("v1.13.10", true), v1alpha1.ChangeDraining, true, false},
		"another one has ended": {step("v1.13.10", false), v1alpha1.ChangePending, true, false},
	} {
		m := kubernetesMachine("a", "v1.36.2", "v1.36.2", "v1.36.2", &v1alpha1.MachineChange{
			ID: "one", Kind: v1alpha1.ChangeTalos, Phase: c.phase,
		})
		m.Status.TalosVersion = "v1.13.10"

		if got := begunTalos(step("v1.13.10", false), c.was, []v1alpha1.TalosMachine{m}, !c.never); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
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
	want := &v1alpha1.UpgradeStatus{ObservedGeneration: 7, TargetKubernetes: "v1.36.2", StepsLeft: 2, Reason: "Why", Message: "no"}

	if text := diff.Diff(want, refused(next, nil, preflight{message: "no", reason: "Why"})); text != "" {
		t.Errorf("-want +got:\n%s", text)
	}

	want.KubernetesBegun, want.KubernetesFrom, want.Approved = "v1.35.1", "v1.34.1", true

	if text := diff.Diff(want, refused(next, was, preflight{message: "no", reason: "Why"})); text != "" {
		t.Errorf("after another one, -want +got:\n%s", text)
	}

	if got := refused(next, nil, preflight{message: strings.Repeat("é", 1000)}).Message; len(got) > longestMessage {
		t.Errorf("a message of %d bytes", len(got))
	}
}

// TestFullAndSilent: an upgrade that is refused for lack of space stays refused while the space of a machine is unknown: it
// may be the full one. Without that, an unknown one holds no upgrade of Talos.
func TestFullAndSilent(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

	bundle, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}

	nodes := talos.NewPool()
	t.Cleanup(nodes.Close)

	r := &Reconciler{Clock: testclock.NewFakePassiveClock(now), Nodes: nodes}
	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	s := newScope(cp)
	s.held = &clusterstate.Held{State: &clusterstate.State{Bundle: bundle}}

	silent := kubernetesMachine("a", "v1.35.1", "v1.35.1", "v1.35.1", nil)
	meta.SetStatusCondition(&silent.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConfigured, Status: metav1.ConditionTrue, Reason: "Test",
	})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	for name, c := range map[string]struct {
		was     *v1alpha1.UpgradeStatus
		refused bool
	}{
		"never checked":  {nil, false},
		"refused before": {&v1alpha1.UpgradeStatus{Reason: v1alpha1.ReasonInsufficientDiskSpace}, true},
		"held otherwise": {&v1alpha1.UpgradeStatus{Reason: v1alpha1.ReasonManifestsRefused}, false},
	} {
		cp.Status.Upgrade = c.was

		last, again := r.checkSpace(ctx, s, "Talos v1.13.10", []v1alpha1.TalosMachine{silent})
		if refused := last.reason == v1alpha1.ReasonInsufficientDiskSpace; refused != c.refused || (last.message != "") != c.refused {
			t.Errorf("%s: %+v", name, last)
		}

		if last.obstacles == "" || again != preflightRetry {
			t.Errorf("%s: obstacles %q, again in %s", name, last.obstacles, again)
		}
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

	nodes := talos.NewPool()
	t.Cleanup(nodes.Close)

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	r := &Reconciler{
		Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Clock: clock, Nodes: nodes,
		Workloads: &workload.Clients{Clock: clock},
	}
	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic, PrePull: v1alpha1.PrePullNever}
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

	const unknown = "the free space on /var (EPHEMERAL) of a is unknown: "

	version := &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.10"}
	if got := r.preflight(t.Context(), s, version, machines); got.TalosVersion != "v1.13.10" || got.Message != "" ||
		!strings.HasPrefix(got.Obstacles, unknown) {
		t.Errorf("Talos: %+v", got)
	}

	// A patch release needs no evidence, another minor does, also where its removals are ignored.
	cp.Spec.Upgrade.RemovedAPIs = v1alpha1.RemovedAPIsIgnore

	for version, refused := range map[string]bool{"v1.35.9": false, "v1.36.2": true} {
		next := &v1alpha1.UpgradeStatus{KubernetesVersion: version, Components: next.Components}

		got := r.preflight(t.Context(), s, next, machines)
		if refused != strings.Contains(got.Message, unknown) || refused != (got.KubernetesVersion == "") || got.Reason != "" {
			t.Errorf("%s: %+v", version, got)
		}
	}
}
