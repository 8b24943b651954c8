package talosmachine_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/wait"
)

// handMade is a manual edit; its field is label.
const (
	handMade = "machine: {nodeLabels: {by: hand}}"
	label    = "machine.nodeLabels.by"
)

func drifted(m *v1alpha1.TalosMachine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionDrifted)
}

func policy(p v1alpha1.DriftPolicy) func(*v1alpha1.TalosControlPlaneSpec) {
	return func(s *v1alpha1.TalosControlPlaneSpec) { s.Drift = p }
}

// TestReport: an edit is reported with its fields and not changed while it exists.
func TestReport(t *testing.T) {
	e := found(t, 1, 1)
	e.edit("w-0", handMade)

	calls := e.mutations("w-0")
	m := e.until("w-0", "the edit shows", drifted)

	want := []v1alpha1.FieldChange{{Field: label, New: "hand"}}
	if diff := cmp.Diff(want, m.Status.Drift); diff != "" || m.Status.Change != nil {
		t.Errorf("drift (-want +got):\n%s\n%s", diff, show(m))
	}

	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonDrifted, label)
	e.sleep(time.Hour)

	if m, _, err := e.pass("w-0"); err != nil || !drifted(m) || m.Status.Change != nil || e.mutations("w-0") != calls {
		t.Errorf("%v: %s", err, show(m))
	}

	if m.Status.WorkingHash != m.Status.ConfigHash {
		t.Error("an edit counts as a config that worked")
	}

	// The edit is undone manually.
	e.edit("w-0", "machine: {nodeLabels: {by: {$patch: delete}}}")

	if m = e.until("w-0", "the edit is gone", done); drifted(m) || len(m.Status.Drift) > 0 {
		t.Errorf("%s, drift %+v", show(m), m.Status.Drift)
	}
}

// TestEditWhileLooking: an edit between the read of the configuration and the end of the reconciliation was not
// compared. It is detected by the reconciliations that it triggers.
func TestEditWhileLooking(t *testing.T) {
	e := found(t, 1, 1)
	e.until("w-0", "it is compared", done)

	version := func() string {
		s, _ := e.r.Watcher.Get(e.Namespace + "/w-0")

		return s.Watched.Config
	}

	e.Eventually("the stream tells of the config", func(context.Context) error { return wait.True(version() != "") })

	// The working configuration is written again, after the configuration was read.
	m := e.machine("w-0")
	m.Status.WorkingHash = ""
	e.UpdateStatus(m)
	e.Delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: configstore.SecretName("w-0")}})

	var once sync.Once

	e.Client.BeforeWrites(func(_ string, o client.Object) {
		if _, ok := o.(*corev1.Secret); ok {
			once.Do(func() {
				before := version()

				e.edit("w-0", handMade)
				e.Eventually("the stream tells of the edit", func(context.Context) error { return wait.True(version() != before) })
			})
		}
	})

	for range 3 {
		e.sleep(time.Second)

		if _, _, err := e.pass("w-0"); err != nil {
			t.Error(err)
		}
	}

	if m := e.machine("w-0"); !drifted(m) {
		t.Errorf("the edit does not show: %s", show(m))
	}
}

// TestEnforce: an edit is reverted once the group allows the machine to begin.
func TestEnforce(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(policy(v1alpha1.DriftEnforce))
	e.edit("w-0", handMade)

	c := e.planned("w-0")
	if c.Cause != v1alpha1.CauseDrift || !slices.Equal(c.Undoes, []string{label}) {
		t.Errorf("planned: %+v", c)
	}

	if !e.runs("w-0", "by: hand") {
		t.Error("undone without permission")
	}

	e.grant("w-0", false)
	e.until("w-0", "it is undone", done)

	if e.runs("w-0", "by: hand") {
		t.Error("it is still there")
	}
}

// TestAdopt: an edit is kept through later changes of the spec, as long as the Secret that stores it exists.
func TestAdopt(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(policy(v1alpha1.DriftAdopt))
	e.edit("w-0", handMade)

	m := e.until("w-0", "it is taken over", done)
	if !slices.Equal(m.Status.AdoptedFields, []string{label}) || drifted(m) {
		t.Errorf("adopted %v: %s", m.Status.AdoptedFields, show(m))
	}

	e.edit("w-0", "machine: {nodeLabels: {also: hand}}")
	e.until("w-0", "a second one is taken over", func(m *v1alpha1.TalosMachine) bool {
		return slices.Equal(m.Status.AdoptedFields, []string{"machine.nodeLabels.also", label})
	})

	e.restart()
	e.patchAll(immediate)

	if c := e.planned("w-0"); len(c.Undoes) > 0 || len(c.Fields) != 1 {
		t.Errorf("planned: %+v", c)
	}

	e.grant("w-0", false)
	e.until("w-0", "it is changed", done)

	if !e.runs("w-0", "by: hand") || !e.runs("w-0", "also: hand") || !e.runs("w-0", "shelf: seven") {
		t.Error("something is missing")
	}

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: configstore.SecretName("w-0")}}
	e.Delete(secret)

	e.patchAll("machine: {nodeLabels: {shelf: eight}}")

	m, _, err := e.pass("w-0")
	if err == nil || m.Status.Change != nil || !e.runs("w-0", "by: hand") {
		t.Errorf("without the Secret: %v: %s", err, show(m))
	}

	e.condition("w-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStateSecretInvalid, "w-0-config")
}

// TestKubePrismIsNotAdopted: another address of KubePrism than that of the cluster is no edit to keep, because patches
// cannot have it.
func TestKubePrismIsNotAdopted(t *testing.T) {
	e := found(t, 1, 1)
	e.Record(cluster, func(s *clusterstate.State) { s.BundleConfig.KubePrism = "7445" })
	e.rollout(policy(v1alpha1.DriftAdopt))
	e.edit("w-0", "machine: {features: {kubePrism: {port: 7446}}}")

	m, _, err := e.pass("w-0")
	for i := 0; i < 10 && err == nil; i++ {
		e.sleep(time.Second)

		m, _, err = e.pass("w-0")
	}

	if err == nil || len(m.Status.AdoptedFields) > 0 ||
		!strings.Contains(err.Error(), "cannot be adopted (no patch can change machine.features.kubePrism)") {
		t.Errorf("%v: %s", err, show(m))
	}
}

// TestAdoptedAndSick: an edit that makes a node unhealthy may be intended, but a machine is never reverted to it.
func TestAdoptedAndSick(t *testing.T) {
	e := found(t, 1, 1)
	worked := e.machine("w-0").Status.WorkingHash

	e.rollout(policy(v1alpha1.DriftAdopt))
	e.edit("w-0", sickening)

	e.until("w-0", "it is taken over", func(m *v1alpha1.TalosMachine) bool { return len(m.Status.AdoptedFields) > 0 })
	m := e.until("w-0", "it is sick", func(m *v1alpha1.TalosMachine) bool { return len(m.Status.UnmetConditions) > 0 })

	stored, err := e.r.Configs.Load(t.Context(), m)
	if err != nil || m.Status.WorkingHash != worked || strings.Contains(string(stored.Working), "container-runtime") {
		t.Errorf("a sick config counts as one that worked (%v)", err)
	}

	if len(stored.Adopted) != 1 {
		t.Errorf("adopted: %v", stored.Adopted)
	}
}

// TestUndoneWithReboot: a change that reverts an edit and reboots completes, even if the drain takes several
// reconciliations.
func TestUndoneWithReboot(t *testing.T) {
	e := found(t, 1, 1)
	e.edit("w-0", handMade)
	e.until("w-0", "the edit shows", drifted)
	e.patchAll(needsReboot)

	c := e.planned("w-0")
	if !slices.Equal(c.Undoes, []string{label}) || !c.Drain {
		t.Errorf("planned: %+v", c)
	}

	e.grant("w-0", true)
	e.nodes["cp-0"].Freeze(true)

	for range 2 {
		if m, _, err := e.pass("w-0"); err == nil || !in(v1alpha1.ChangeDraining)(m) || m.Status.Change.ID != c.ID || !drifted(m) {
			t.Errorf("%v: %s", err, show(m))
		}
	}

	e.nodes["cp-0"].Freeze(false)
	e.until("w-0", "it is changed", done)

	if e.runs("w-0", "by: hand") || !e.runs("w-0", "SHELF") {
		t.Error("not as wanted")
	}
}

// TestWithdrawnWhileDraining: a change is withdrawn after the node was drained for it, and an edit that is only reported
// remains: the node accepts pods again.
func TestWithdrawnWhileDraining(t *testing.T) {
	e := found(t, 1, 1)
	e.edit("w-0", handMade)
	e.until("w-0", "the edit shows", drifted)
	e.patchAll(needsReboot)
	e.planned("w-0")

	e.nodes["w-0"].Faults().Add(apid.Rule{Method: "ApplyConfiguration", Code: codes.Unavailable, Count: 1})
	e.grant("w-0", true)

	if m, _, err := e.pass("w-0"); err == nil || !e.cordoned("w-0") {
		t.Fatalf("%v: %s", err, show(m))
	}

	e.annotate("w-0", v1alpha1.ReconcileModeAnnotation, "DryRun")
	e.rollout(func(cp *v1alpha1.TalosControlPlaneSpec) { cp.ClusterConfigPatches = nil })

	for range 2 {
		if m, _, err := e.pass("w-0"); err != nil || !drifted(m) || !e.cordoned("w-0") {
			t.Errorf("in a dry run: cordoned %t, %v: %s", e.cordoned("w-0"), err, show(m))
		}
	}

	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		delete(m.Annotations, v1alpha1.ReconcileModeAnnotation)
	})
	e.until("w-0", "it is withdrawn", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change == nil && m.Status.Intent == nil && drifted(m)
	})

	if e.cordoned("w-0") || !e.runs("w-0", "by: hand") || e.runs("w-0", "SHELF") {
		t.Errorf("cordoned %t", e.cordoned("w-0"))
	}
}

// TestEditWhileDraining: an edit that is made after the approval is not reverted by the approved change.
func TestEditWhileDraining(t *testing.T) {
	e := found(t, 1, 1)
	e.patchAll(needsReboot)

	c := e.planned("w-0")

	e.grant("w-0", true)
	e.nodes["cp-0"].Freeze(true)

	if m, _, err := e.pass("w-0"); err == nil || !in(v1alpha1.ChangeDraining)(m) {
		t.Fatalf("%v: %s", err, show(m))
	}

	e.edit("w-0", handMade)
	e.nodes["cp-0"].Freeze(false)

	m := e.until("w-0", "another change is planned", in(v1alpha1.ChangePending))
	if m.Status.Change.ID == c.ID || m.Status.Change.Base == c.Base || !slices.Equal(m.Status.Change.Undoes, []string{label}) {
		t.Errorf("%s", show(m))
	}

	for range 3 {
		e.sleep(time.Minute)
		e.pass("w-0")
	}

	if !e.runs("w-0", "by: hand") || e.nodes["w-0"].Faults().Calls("Reboot") > 0 {
		t.Error("undone without approval")
	}

	if e.cordoned("w-0") {
		t.Error("cordoned while it waits for approval")
	}

	e.grant("w-0", true)
	e.until("w-0", "it is changed", done)

	if e.cordoned("w-0") {
		t.Error("still cordoned")
	}
}

// TestDryRunAdoptsNothing: a dry run reports an edit that would be adopted, writes nothing, and does not reconcile
// endlessly.
func TestDryRunAdoptsNothing(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(policy(v1alpha1.DriftAdopt))
	e.annotate("w-0", v1alpha1.ReconcileModeAnnotation, "DryRun")
	e.edit("w-0", handMade)
	e.until("w-0", "the edit shows", drifted)

	m, res, err := e.pass("w-0")
	if err != nil || !drifted(m) || len(m.Status.AdoptedFields) > 0 || res.RequeueAfter < 15*time.Second {
		t.Errorf("%v, %+v: %s", err, res, show(m))
	}
}

// TestPausedIsObserved: a paused machine that runs what an edited spec asks for is recorded as compared to that. A manual
// edit on it is reported, and nothing is done about it.
func TestPausedIsObserved(t *testing.T) {
	e := found(t, 1, 1)
	before := e.mutations("w-0")
	e.annotate("w-0", v1alpha1.PausedAnnotation, "true")

	compared := e.machine("w-0").Status.ComparedTo

	change(e, &v1alpha1.TalosWorker{}, group, func(g *v1alpha1.TalosWorker) {
		g.Spec.Drain = &v1alpha1.DrainOptions{OnTimeout: v1alpha1.DrainSkip}
	})
	e.until("w-0", "it is compared to the new spec", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.ComparedTo != compared
	})
	e.edit("w-0", handMade)

	edited := e.mutations("w-0")

	e.until("w-0", "the edit shows", drifted)
	e.sleep(condition.Bound)

	for range 2 {
		if m, _, err := e.pass("w-0"); err != nil || !drifted(m) || m.Status.Change != nil {
			t.Errorf("%v: %s", err, show(m))
		}
	}

	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonDrifted, "")
	e.condition("w-0", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")

	if got := e.mutations("w-0"); got != edited || edited == before {
		t.Errorf("%d mutating calls, %d by hand", got-before, edited-before)
	}
}
