package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/history"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// step is something that happens in a minute, and what the records say after it.
type step struct {
	do   func(*world)
	want string
}

func plans(talos, kubernetes, message string) func(*world) {
	return func(w *world) { w.plan(talos, kubernetes, message) }
}

func over(w *world) { w.cp.Status.Upgrade = nil }

func TestRuns(t *testing.T) {
	const (
		begun  = "c-talos-1 v1.12.4>v1.13.9 Running 0/3 (a v1.12.4 Pending, b v1.12.4 Pending, w v1.12.4 Pending)"
		failed = "c-talos-1 v1.12.4>v1.13.9 Stopped 0/3 (a v1.12.4 Failed 0s, b v1.12.4 Pending, w v1.12.4 Pending) a failed: it boots what it ran"
		kube   = "c-kubernetes-1 v1.34.3>v1.35.10 Running 0/3 (a v1.34.3 InProgress, b v1.34.3 Pending, w v1.34.3 Pending)"
	)

	breaks := func(w *world) { w.changes("a", v1alpha1.ChangeFailed, "it boots what it ran") }
	newSchematic := v1alpha1.FieldChange{Field: upgrade.FieldSchematic, Old: "", New: schematic}
	noSchematic := v1alpha1.FieldChange{Field: upgrade.FieldSchematic, Old: schematic, New: ""}

	for name, steps := range map[string][]step{
		"nothing to do":                  {{over, ""}},
		"what is only reported":          {{func(w *world) { w.cp.Spec.Upgrade, w.cp.Status.Upgrade = nil, nil }, ""}},
		"a path that waits begins none":  {{plans("", "", "no path"), ""}},
		"a plan of another spec":         {{func(w *world) { w.plan(newTalos, "", ""); w.cp.Generation = 2 }, ""}},
		"each machine has it":            {{func(w *world) { w.runsTalos(newTalos, "a", "b", "w"); w.plan(newTalos, "", "") }, ""}},
		"a worker that is not installed": {{func(w *world) { w.machines["w"].Status.Conditions = nil; w.plan(newTalos, "", "") }, "c-talos-1 v1.12.4>v1.13.9 Running 0/2 (a v1.12.4 Pending, b v1.12.4 Pending)"}},
		"a machine that leaves": {
			{plans(newTalos, "", ""), begun},
			{func(w *world) { w.machines["w"].DeletionTimestamp = &metav1.Time{Time: w.now} }, "c-talos-1 v1.12.4>v1.13.9 Running 0/2 (a v1.12.4 Pending, b v1.12.4 Pending)"},
		},
		"a machine that is ahead": {{func(w *world) { w.runsTalos("v1.13.10", "w"); w.plan(newTalos, "", "") }, "c-talos-1 v1.12.4>v1.13.9 Running 1/3 (a v1.12.4 Pending, b v1.12.4 Pending, w  Done)"}},
		"to the end": {
			{plans(newTalos, "", ""), begun},
			{func(w *world) { w.changes("a", v1alpha1.ChangeDraining, "") }, "c-talos-1 v1.12.4>v1.13.9 Running 0/3 (a v1.12.4 InProgress, b v1.12.4 Pending, w v1.12.4 Pending)"},
			{func(w *world) { w.machines["a"].Status.TalosVersion = newTalos }, "c-talos-1 v1.12.4>v1.13.9 Running 0/3 (a v1.12.4 InProgress, b v1.12.4 Pending, w v1.12.4 Pending)"},
			{func(w *world) { w.runsTalos(newTalos, "a") }, "c-talos-1 v1.12.4>v1.13.9 Running 1/3 (a v1.12.4 Done 2m0s, b v1.12.4 Pending, w v1.12.4 Pending)"},
			{func(w *world) { w.changes("w", v1alpha1.ChangeApplying, ""); w.runsTalos(newTalos, "b") }, "c-talos-1 v1.12.4>v1.13.9 Running 2/3 (a v1.12.4 Done 2m0s, b v1.12.4 Done, w v1.12.4 InProgress)"},
			// All machines have it, and the control plane has not planned anew.
			{func(w *world) { w.runsTalos(newTalos, "w") }, "c-talos-1 v1.12.4>v1.13.9 Running 3/3 (a v1.12.4 Done 2m0s, b v1.12.4 Done, w v1.12.4 Done 1m0s)"},
			{over, "c-talos-1 v1.12.4>v1.13.9 Succeeded 3/3 (a v1.12.4 Done 2m0s, b v1.12.4 Done, w v1.12.4 Done 1m0s)"},
			{func(w *world) { w.runsTalos(oldTalos, "a") }, "c-talos-1 v1.12.4>v1.13.9 Succeeded 3/3 (a v1.12.4 Done 2m0s, b v1.12.4 Done, w v1.12.4 Done 1m0s)"},
		},
		"the plan is over before the last machine is healthy": {
			{plans(newTalos, "", ""), begun},
			{func(w *world) {
				w.runsTalos(newTalos, "a", "b", "w")
				w.changes("w", v1alpha1.ChangeSettling, "")
				over(w)
			}, "c-talos-1 v1.12.4>v1.13.9 Running 2/3 (a v1.12.4 Done, b v1.12.4 Done, w v1.12.4 InProgress)"},
			{func(w *world) { w.changes("w", v1alpha1.ChangeFailed, "not healthy") }, "c-talos-1 v1.12.4>v1.13.9 Stopped 2/3 (a v1.12.4 Done, b v1.12.4 Done, w v1.12.4 Failed 1m0s) w failed: not healthy"},
			{func(w *world) { w.runsTalos(newTalos, "w") }, "c-talos-1 v1.12.4>v1.13.9 Succeeded 3/3 (a v1.12.4 Done, b v1.12.4 Done, w v1.12.4 Done 2m0s)"},
		},
		"one version after the other": {
			{plans("v1.12.12", "", ""), "c-talos-1 v1.12.4>v1.12.12 Running 0/3 (a v1.12.4 Pending, b v1.12.4 Pending, w v1.12.4 Pending)"},
			{func(w *world) { w.runsTalos("v1.12.12", "a", "b", "w"); w.plan(newTalos, "", "") }, "c-talos-1 v1.12.4>v1.12.12 Succeeded 3/3 (a v1.12.4 Done, b v1.12.4 Done, w v1.12.4 Done)\n" +
				"c-talos-2 v1.12.12>v1.13.9 Running 0/3 (a v1.12.12 Pending, b v1.12.12 Pending, w v1.12.12 Pending)"},
		},
		"what it waits for": {
			{plans(newTalos, "", ""), begun},
			{func(w *world) {
				w.cp.Status.Plan = &v1alpha1.PlanStatus{Phase: v1alpha1.PlanAwaitingApproval, Message: "approve 1"}
			}, strings.Replace(begun, "Running", "Waiting", 1) + " approve 1"},
			{func(w *world) { w.cp.Status.Plan.Phase = v1alpha1.PlanRollingOut }, begun},
			{func(w *world) {
				w.changes("b", v1alpha1.ChangePending, "etcd")
				w.changes("a", v1alpha1.ChangePending, "a window")
			}, strings.Replace(begun, "Running", "Waiting", 1) + " a: a window"},
			{plans("", "", "no path"), strings.Replace(begun, "Running", "Waiting", 1) + " no path"},
		},
		"called off": {
			{plans(newTalos, "", ""), begun},
			{over, strings.Replace(begun, "Running", "CalledOff", 1) + " the spec no longer asks for Talos v1.13.9"},
		},
		"no longer automatic": {
			{plans(newTalos, "", ""), begun},
			{func(w *world) { over(w); w.cp.Spec.Upgrade.Talos = "" }, strings.Replace(begun, "Running", "CalledOff", 1) + " spec.upgrade.talos is no longer Automatic"},
		},
		"called off while a machine installs": {
			{plans(newTalos, "", ""), begun},
			{func(w *world) { w.changes("a", v1alpha1.ChangeApplying, ""); over(w) }, "c-talos-1 v1.12.4>v1.13.9 Running 0/3 (a v1.12.4 InProgress, b v1.12.4 Pending, w v1.12.4 Pending)"},
			{func(w *world) { w.runsTalos(oldTalos, "a") }, strings.Replace(begun, "Running", "CalledOff", 1) + " the spec no longer asks for Talos v1.13.9"},
		},
		"a failure is retried": {
			{plans(newTalos, "", ""), begun},
			{breaks, failed},
			{func(w *world) { w.changes("a", v1alpha1.ChangeApplying, "") }, "c-talos-1 v1.12.4>v1.13.9 Running 0/3 (a v1.12.4 InProgress, b v1.12.4 Pending, w v1.12.4 Pending)"},
		},
		"a failure, and another version": {
			{plans(newTalos, "", ""), begun},
			{breaks, failed},
			{plans("v1.13.10", "", ""), strings.Replace(failed, "Stopped 0/3", "Failed 0/3", 1)[:strings.Index(failed, " a failed")-1] +
				" the cluster is brought to Talos v1.13.10 instead; a failed: it boots what it ran\n" +
				"c-talos-2 v1.12.4>v1.13.10 Running 0/3 (a v1.12.4 Pending, b v1.12.4 Pending, w v1.12.4 Pending)"},
		},
		"a failure whose change is gone before the plan is": {
			{plans(newTalos, "", ""), begun},
			{breaks, failed},
			{func(w *world) { w.machines["a"].Status.Change = nil }, failed},
			{func(w *world) { w.changes("a", v1alpha1.ChangePending, "") }, begun},
			{func(w *world) { w.runsTalos(newTalos, "a") }, "c-talos-1 v1.12.4>v1.13.9 Running 1/3 (a v1.12.4 Done, b v1.12.4 Pending, w v1.12.4 Pending)"},
		},
		"a failure that another version replaces at once": {
			{plans(newTalos, "", ""), begun},
			{func(w *world) { breaks(w); w.machines["a"].Status.TalosVersion = newTalos }, failed},
			{func(w *world) {
				w.changes("a", v1alpha1.ChangePending, "", v1alpha1.FieldChange{Field: upgrade.FieldTalos, New: "v1.13.10"})
				w.plan("v1.13.10", "", "")
			}, strings.Replace(failed, "Stopped 0/3", "Failed 0/3", 1)[:strings.Index(failed, " a failed")-1] +
				" the cluster is brought to Talos v1.13.10 instead; a failed: it boots what it ran\n" +
				"c-talos-2 v1.12.4>v1.13.10 Running 0/3 (a v1.13.9 Pending, b v1.12.4 Pending, w v1.12.4 Pending)"},
		},
		"manifests after Kubernetes": {
			{plans("", newKube, ""), strings.Replace(kube, "InProgress", "Pending", 1)},
			{func(w *world) { w.runsKubernetes(newKube, "a", "b", "w"); w.plan("", newKube, "waiting for manifests") }, "c-kubernetes-1 v1.34.3>v1.35.10 Waiting 3/3 (a v1.34.3 Done, b v1.34.3 Done, w v1.34.3 Done) waiting for manifests"},
			{over, "c-kubernetes-1 v1.34.3>v1.35.10 Succeeded 3/3 (a v1.34.3 Done, b v1.34.3 Done, w v1.34.3 Done)"},
		},
		"Kubernetes": {
			{func(w *world) { w.plan("", newKube, ""); w.replaces("a", v1alpha1.ChangeApplying, newKube+"-slim", "") }, kube},
			// The API server is done, other components are not.
			{func(w *world) {
				w.machines["a"].Status.Change = nil
				w.machines["a"].Status.ComponentVersions.APIServer = newKube
			}, kube},
			{func(w *world) { w.replaces("a", v1alpha1.ChangeSettling, newKube, "") }, kube},
			{func(w *world) { w.replaces("a", v1alpha1.ChangeFailed, newKube, "no image") }, strings.Replace(strings.Replace(kube, "Running", "Stopped", 1), "InProgress", "Failed 3m0s", 1) + " a failed: no image"},
			{func(w *world) { w.runsKubernetes(newKube, "a") }, "c-kubernetes-1 v1.34.3>v1.35.10 Running 1/3 (a v1.34.3 Done 4m0s, b v1.34.3 Pending, w v1.34.3 Pending)"},
			{func(w *world) { w.runsKubernetes(newKube, "b", "w"); w.runsKubernetes("v1.36.2", "a"); over(w) }, "c-kubernetes-1 v1.34.3>v1.35.10 Succeeded 3/3 (a v1.34.3 Done 4m0s, b v1.34.3 Done, w v1.34.3 Done)"},
		},
		"Kubernetes is taken back": {
			{func(w *world) { w.plan("", newKube, ""); w.machines["a"].Status.ComponentVersions.APIServer = newKube }, kube},
			{plans("", oldKube, ""), strings.Replace(kube, "Running", "CalledOff", 1) + " the cluster is brought to Kubernetes v1.34.3 instead\n" +
				"c-kubernetes-2 v1.35.10>v1.34.3 Running 2/3 (a v1.35.10 InProgress, b  Done, w  Done)"},
			{func(w *world) { w.machines["a"].Status.ComponentVersions.APIServer = oldKube; over(w) }, strings.Replace(kube, "Running", "CalledOff", 1) + " the cluster is brought to Kubernetes v1.34.3 instead\n" +
				"c-kubernetes-2 v1.35.10>v1.34.3 Succeeded 3/3 (a v1.35.10 Done 1m0s, b  Done, w  Done)"},
		},
		"a version that is not known is not there": {
			{func(w *world) {
				w.plan("", newKube, "")
				w.runsKubernetes(newKube, "a", "b")
				w.machines["a"].Status.ComponentVersions = nil
			}, "c-kubernetes-1 v1.34.3>v1.35.10 Running 1/3 (a  InProgress, b  Done, w v1.34.3 Pending)"},
		},
		"another schematic": {
			{func(w *world) { w.changes("a", v1alpha1.ChangePending, "", newSchematic); w.planSchematics() }, "c-talos-1 v1.12.4>v1.12.4 Running 0/1 (a v1.12.4 Pending)"},
			{func(w *world) {
				w.changes("a", v1alpha1.ChangeRebooting, "", newSchematic)
				w.changes("w", v1alpha1.ChangePending, "", newSchematic)
			}, "c-talos-1 v1.12.4>v1.12.4 Running 0/2 (a v1.12.4 InProgress, w v1.12.4 Pending)"},
			// A configuration comes first on the other one.
			{func(w *world) {
				w.runsTalos(oldTalos, "a")
				w.machines["a"].Status.WorkingSystem = upgrade.SystemHash(oldTalos, schematic)
				w.machines["w"].Status.Change = &v1alpha1.MachineChange{Kind: v1alpha1.ChangeConfig, Phase: v1alpha1.ChangePending}
			}, "c-talos-1 v1.12.4>v1.12.4 Running 1/2 (a v1.12.4 Done 1m0s, w v1.12.4 Pending)"},
			{func(w *world) {
				w.runsTalos(oldTalos, "w")
				w.machines["w"].Status.WorkingSystem = upgrade.SystemHash(oldTalos, schematic)
			}, "c-talos-1 v1.12.4>v1.12.4 Succeeded 2/2 (a v1.12.4 Done 1m0s, w v1.12.4 Done)"},
		},
		"no schematic any more": {
			{func(w *world) { w.changes("a", v1alpha1.ChangePending, "", noSchematic); w.planSchematics() }, "c-talos-1 v1.12.4>v1.12.4 Running 0/1 (a v1.12.4 Pending)"},
			{func(w *world) {
				w.changes("a", v1alpha1.ChangeRebooting, "", noSchematic)
				w.changes("w", v1alpha1.ChangePending, "", newSchematic) // that is not what the run brings
			}, "c-talos-1 v1.12.4>v1.12.4 Running 0/1 (a v1.12.4 InProgress)"},
			{func(w *world) {
				w.machines["w"].Status.Change = nil
				w.runsTalos(oldTalos, "a")
				w.machines["a"].Status.WorkingSystem = upgrade.SystemHash(oldTalos, "")
			}, "c-talos-1 v1.12.4>v1.12.4 Succeeded 1/1 (a v1.12.4 Done 1m0s)"},
		},
		"no schematic any more, called off": {
			{func(w *world) { w.changes("a", v1alpha1.ChangeRebooting, "", noSchematic); w.planSchematics() }, "c-talos-1 v1.12.4>v1.12.4 Running 0/1 (a v1.12.4 InProgress)"},
			{func(w *world) { w.runsTalos(oldTalos, "a"); over(w) }, "c-talos-1 v1.12.4>v1.12.4 CalledOff 0/1 (a v1.12.4 Pending) the spec no longer asks for Talos v1.12.4 without a schematic"},
		},
		"another schematic, called off": {
			{func(w *world) { w.changes("a", v1alpha1.ChangeRebooting, "", newSchematic); w.planSchematics() }, "c-talos-1 v1.12.4>v1.12.4 Running 0/1 (a v1.12.4 InProgress)"},
			{func(w *world) { w.runsTalos(oldTalos, "a"); over(w) }, "c-talos-1 v1.12.4>v1.12.4 CalledOff 0/1 (a v1.12.4 Pending) the spec no longer asks for Talos v1.12.4 with schematic " + schematic},
		},
		"a schematic that no step brings": {
			{func(w *world) { w.changes("a", v1alpha1.ChangePending, "", newSchematic); over(w) }, ""},
		},
		"a schematic of a machine that is not selected": {
			{func(w *world) {
				w.cp.Spec.Upgrade.MachineSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "1"}}
				w.machines["w"].Labels = map[string]string{"ring": "1"}
				w.changes("a", v1alpha1.ChangePending, "", noSchematic)
				w.changes("w", v1alpha1.ChangePending, "", newSchematic)
				w.planSchematics()
			}, "c-talos-1 v1.12.4>v1.12.4 Running 0/1 (w v1.12.4 Pending)"},
		},
		"two schematics in one step": {
			{func(w *world) {
				w.changes("a", v1alpha1.ChangePending, "", newSchematic)
				w.changes("w", v1alpha1.ChangePending, "", noSchematic)
				w.planSchematics()
			}, "c-talos-1 v1.12.4>v1.12.4 Running 0/1 (a v1.12.4 Pending)"},
			{func(w *world) {
				w.runsTalos(oldTalos, "a")
				w.machines["a"].Status.WorkingSystem = upgrade.SystemHash(oldTalos, schematic)
			}, "c-talos-1 v1.12.4>v1.12.4 Succeeded 1/1 (a v1.12.4 Done)\nc-talos-2 v1.12.4>v1.12.4 Running 0/1 (w v1.12.4 Pending)"},
		},
		"a schematic after a version": {
			{plans(newTalos, "", ""), begun},
			{
				func(w *world) { w.runsTalos(newTalos, "a", "b", "w"); over(w) },
				"c-talos-1 v1.12.4>v1.13.9 Succeeded 3/3 (a v1.12.4 Done, b v1.12.4 Done, w v1.12.4 Done)",
			},
		},
		"a schematic that waits": {
			{func(w *world) { w.changes("a", v1alpha1.ChangePending, "", newSchematic); w.planSchematics() }, "c-talos-1 v1.12.4>v1.12.4 Running 0/1 (a v1.12.4 Pending)"},
			{plans("", "", "the disk is full"), "c-talos-1 v1.12.4>v1.12.4 Waiting 0/1 (a v1.12.4 Pending) the disk is full"},
		},
		"a version with a schematic": {
			{func(w *world) {
				w.plan(newTalos, "", "")
				w.changes("a", v1alpha1.ChangeDraining, "", v1alpha1.FieldChange{Field: upgrade.FieldTalos, New: newTalos}, newSchematic)
			}, "c-talos-1 v1.12.4>v1.13.9 Running 0/3 (a v1.12.4 InProgress, b v1.12.4 Pending, w v1.12.4 Pending)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()

			for i, s := range steps {
				s.do(w)
				w.settle()
				w.settle()

				if diff := cmp.Diff(s.want, w.String()); diff != "" {
					t.Fatalf("step %d: %s", i, diff)
				}

				w.now = w.now.Add(time.Minute)
			}
		})
	}
}

// TestConditions: Complete is true of a success alone, and what needs a person is stalled.
func TestConditions(t *testing.T) {
	for name, c := range map[string]struct {
		do              func(*world)
		complete        metav1.ConditionStatus
		reason, message string
		present         string
	}{
		"running": {func(*world) {}, metav1.ConditionFalse, v1alpha1.ReasonUpgrading, "0 of 3 machines run Talos v1.13.9", v1alpha1.ConditionReconciling},
		"waiting": {plans("", "", "no path"), metav1.ConditionFalse, v1alpha1.ReasonUpgradeWaiting, "0 of 3 machines run Talos v1.13.9: no path", v1alpha1.ConditionReconciling},
		"stopped": {func(w *world) { w.changes("a", v1alpha1.ChangeFailed, "no") }, metav1.ConditionFalse, v1alpha1.ReasonUpgradeStopped, "0 of 3 machines run Talos v1.13.9: a failed: no", v1alpha1.ConditionStalled},
		"success": {func(w *world) { w.runsTalos(newTalos, "a", "b", "w"); over(w) }, metav1.ConditionTrue, v1alpha1.ReasonUpgraded, "3 of 3 machines run Talos v1.13.9", ""},
		"called":  {over, metav1.ConditionFalse, v1alpha1.ReasonUpgradeCalledOff, "0 of 3 machines run Talos v1.13.9: the spec no longer asks for Talos v1.13.9", ""},
		"failed":  {func(w *world) { w.changes("a", v1alpha1.ChangeFailed, "no"); over(w) }, metav1.ConditionFalse, v1alpha1.ReasonUpgradeFailed, "0 of 3 machines run Talos v1.13.9: the spec no longer asks for Talos v1.13.9; a failed: no", v1alpha1.ConditionStalled},
		"refused": {func(w *world) {
			plans(newTalos, "", "refused: a")(w)
			w.cp.Status.Upgrade.Reason = v1alpha1.ReasonManifestsRefused
		}, metav1.ConditionFalse, v1alpha1.ReasonManifestsRefused, "0 of 3 machines run Talos v1.13.9: refused: a", v1alpha1.ConditionReconciling},
		"refused, of another version": {func(w *world) {
			plans("", newKube, "refused: a")(w)
			w.cp.Status.Upgrade.Reason = v1alpha1.ReasonManifestsRefused
			w.changes("a", v1alpha1.ChangeApplying, "")
		}, metav1.ConditionFalse, v1alpha1.ReasonUpgrading, "0 of 3 machines run Talos v1.13.9", v1alpha1.ConditionReconciling},
		"too long": {plans("", "", strings.Repeat("x", 1024)), metav1.ConditionFalse, v1alpha1.ReasonUpgradeWaiting, "0 of 3 machines run Talos v1.13.9: " + strings.Repeat("x", 962) + "…", v1alpha1.ConditionReconciling},
	} {
		w := newWorld()
		w.plan(newTalos, "", "")
		w.settle()
		began := w.now
		w.now = w.now.Add(time.Minute)
		c.do(w)
		w.settle()

		st := w.runs[upgrade.Talos][0].Status

		got := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionComplete)
		if got == nil || got.Status != c.complete || got.Reason != c.reason || got.Message != c.message {
			t.Errorf("%s: %+v", name, got)
		}

		if at := w.now; got != nil && c.complete == metav1.ConditionTrue != got.LastTransitionTime.Time.Equal(at) {
			t.Errorf("%s: since %s", name, got.LastTransitionTime)
		}

		for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
			if is := meta.IsStatusConditionTrue(st.Conditions, kind); is != (kind == c.present) {
				t.Errorf("%s: %s is %v", name, kind, is)
			}
		}

		if !st.StartTime.Time.Equal(began) {
			t.Errorf("%s: began at %s", name, st.StartTime)
		}
	}
}

// TestPointOfNoReturn: a run of Kubernetes tells whether it can be called off, and one that takes a version back does not.
func TestPointOfNoReturn(t *testing.T) {
	const ahead, passed = v1alpha1.PointOfNoReturnAhead, v1alpha1.PointOfNoReturnPassed

	begun := func(version string, point v1alpha1.PointOfNoReturn) func(*world) {
		return func(w *world) {
			w.plan("", version, "")
			w.cp.Status.Upgrade.KubernetesBegun, w.cp.Status.Upgrade.PointOfNoReturn = version, point
		}
	}
	api := func(version string) func(*world) {
		return func(w *world) { w.machines["a"].Status.ComponentVersions.APIServer = version }
	}
	ended := func(w *world) { w.runsKubernetes(newKube, "a", "b", "w"); over(w) }

	for name, c := range map[string]struct {
		do   []func(*world)
		want []v1alpha1.PointOfNoReturn
	}{
		"begins":                           {[]func(*world){begun(newKube, ahead)}, []v1alpha1.PointOfNoReturn{ahead}},
		"kubelets are next":                {[]func(*world){begun(newKube, ahead), begun(newKube, passed)}, []v1alpha1.PointOfNoReturn{passed}},
		"versions are unknown":             {[]func(*world){begun(newKube, passed), plans("", "", "waiting")}, []v1alpha1.PointOfNoReturn{passed}},
		"ended":                            {[]func(*world){begun(newKube, passed), ended}, []v1alpha1.PointOfNoReturn{passed}},
		"ended, and the rest was not seen": {[]func(*world){begun(newKube, ahead), ended}, []v1alpha1.PointOfNoReturn{passed}},
		"it becomes unknown":               {[]func(*world){begun(newKube, ahead), begun(newKube, "")}, []v1alpha1.PointOfNoReturn{""}},
		"and known again":                  {[]func(*world){begun(newKube, ahead), begun(newKube, ""), begun(newKube, ahead)}, []v1alpha1.PointOfNoReturn{ahead}},
		"the path waits":                   {[]func(*world){begun(newKube, ahead), plans("", "", "waiting")}, []v1alpha1.PointOfNoReturn{""}},
		"another version has passed it": {[]func(*world){begun(newKube, ahead), func(w *world) {
			plans("", "", "waiting")(w)
			w.cp.Status.Upgrade.KubernetesBegun, w.cp.Status.Upgrade.PointOfNoReturn = oldKube, passed
		}}, []v1alpha1.PointOfNoReturn{""}},
		"called off, and still said to be ahead": {[]func(*world){begun(newKube, ahead), func(w *world) {
			w.plan(newTalos, "", "")
			w.cp.Status.Upgrade.KubernetesBegun, w.cp.Status.Upgrade.PointOfNoReturn = newKube, ahead
		}}, []v1alpha1.PointOfNoReturn{""}},
		"passed, and unknown": {[]func(*world){begun(newKube, passed), begun(newKube, "")}, []v1alpha1.PointOfNoReturn{passed}},
		"called off before":   {[]func(*world){begun(newKube, ahead), over}, []v1alpha1.PointOfNoReturn{""}},
		"ended after it":      {[]func(*world){begun(newKube, passed), over}, []v1alpha1.PointOfNoReturn{passed}},
		"taken back": {
			[]func(*world){begun(newKube, ahead), api(newKube), begun(oldKube, "")}, []v1alpha1.PointOfNoReturn{"", ""},
		},
		"taken back to the end": {
			[]func(*world){begun(newKube, ahead), api(newKube), begun(oldKube, ""), func(w *world) { api(oldKube)(w); over(w) }},
			[]v1alpha1.PointOfNoReturn{"", ""},
		},
	} {
		w := newWorld()

		for _, do := range c.do {
			do(w)
			w.settle()
			w.settle()
		}

		var got []v1alpha1.PointOfNoReturn
		for _, run := range w.runs[upgrade.Kubernetes] {
			got = append(got, run.Status.PointOfNoReturn)
		}

		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}

	w := newWorld()
	w.plan(newTalos, "", "")
	w.cp.Status.Upgrade.PointOfNoReturn = passed
	w.settle()

	if point := w.runs[upgrade.Talos][0].Status.PointOfNoReturn; point != "" {
		t.Errorf("Talos: %q", point)
	}
}

// TestLongList: the counts are those of all machines, and the list has those that matter.
func TestLongList(t *testing.T) {
	w := newWorld()

	for i := range 150 {
		w.add(fmt.Sprintf("w-%03d", i))
	}

	w.plan(newTalos, "", "")
	w.changes("w-149", v1alpha1.ChangeFailed, "no")
	w.changes("w-148", v1alpha1.ChangeRebooting, "")
	w.runsTalos(newTalos, "w-147", "w-146")
	w.settle()

	st := w.runs[upgrade.Talos][0].Status
	if st.Progress != "2/153" || st.Total != 153 || st.Done != 2 || st.Failed != 1 || len(st.Machines) != 100 {
		t.Errorf("%s, %d, %d, %d, %d machines", st.Progress, st.Total, st.Done, st.Failed, len(st.Machines))
	}

	for i, name := range []string{"w-146", "w-147", "w-148", "w-149"} {
		if got := st.Machines[96+i].Name; got != name {
			t.Errorf("%s instead of %s", got, name)
		}
	}
}

// TestKept: the newest finished runs are kept, by their numbers and not as texts.
func TestKept(t *testing.T) {
	w, ended := newWorld(), metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

	for i := range 12 {
		w.runs[upgrade.Talos] = append(w.runs[upgrade.Talos], history.Run{
			Name: history.Name("c", upgrade.Talos, 12-i), Status: v1alpha1.UpgradeRunStatus{CompletionTime: &ended},
		})
	}

	if out := w.next(upgrade.Talos); !slices.Equal(out.Delete, []string{"c-talos-1", "c-talos-2"}) || out.Update != nil || out.Create != nil {
		t.Errorf("%+v", out)
	}

	w.plan(newTalos, "", "")

	if out := w.next(upgrade.Talos); out.Create == nil || out.Create.Name != "c-talos-13" || !out.Settles() {
		t.Errorf("%+v", out)
	}
}

func TestNumber(t *testing.T) {
	for name, want := range map[string]int{
		"c-talos-1": 1, "c-talos-20": 20, "c-talos-0": 0, "c-talos--1": 0, "c-talos-": 0, "c-kubernetes-3": 0, "d-talos-3": 0,
		"c-talos-talos-3": 0, "": 0,
	} {
		if got := history.Number(name, "c", upgrade.Talos); got != want {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// TestPhaseOf: what is planned, and the phase of a version, without a record.
func TestPhaseOf(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*world)
		planned string
		phase   v1alpha1.UpgradeRunPhase
	}{
		"planned":      {func(w *world) { w.plan(newTalos, "", "") }, oldTalos + " " + newTalos, v1alpha1.UpgradeRunRunning},
		"waits":        {func(w *world) { w.plan(newTalos, "", "later") }, oldTalos + " " + newTalos, v1alpha1.UpgradeRunWaiting},
		"another":      {func(w *world) { w.plan("v1.13.8", "", "") }, oldTalos + " v1.13.8", v1alpha1.UpgradeRunCalledOff},
		"unclear":      {func(w *world) { w.plan("", "", "why") }, "", v1alpha1.UpgradeRunWaiting},
		"called off":   {func(*world) {}, "", v1alpha1.UpgradeRunCalledOff},
		"is installed": {func(w *world) { w.changes("a", v1alpha1.ChangeDraining, "") }, "", v1alpha1.UpgradeRunRunning},
		"failed":       {func(w *world) { w.changes("a", v1alpha1.ChangeFailed, "why") }, "", v1alpha1.UpgradeRunFailed},
		"done": {func(w *world) {
			for _, m := range w.machines {
				m.Status.TalosVersion = newTalos
			}
		}, "", v1alpha1.UpgradeRunSucceeded},
		"done, and the next one is unclear": {func(w *world) {
			w.plan("", "", "why")

			for _, m := range w.machines {
				m.Status.TalosVersion = newTalos
			}
		}, "", v1alpha1.UpgradeRunSucceeded},
		"only the schematic": {func(w *world) {
			w.changes("a", v1alpha1.ChangeDraining, "", v1alpha1.FieldChange{Field: upgrade.FieldSchematic, New: schematic})
		}, "", v1alpha1.UpgradeRunCalledOff},
		"a step of schematics": {func(w *world) {
			w.changes("a", v1alpha1.ChangeDraining, "", v1alpha1.FieldChange{Field: upgrade.FieldSchematic, New: schematic})
			w.planSchematics()
		}, oldTalos + " " + oldTalos, v1alpha1.UpgradeRunCalledOff},
	} {
		w := newWorld()
		c.change(w)

		in := w.input(upgrade.Talos)

		planned := ""
		if p := in.Planned(); p != nil {
			planned = p.From + " " + p.To
		}

		if phase := in.PhaseOf(oldTalos, newTalos); planned != c.planned || phase != c.phase {
			t.Errorf("%s: %q, %s", name, planned, phase)
		}
	}
}

// TestPhaseOfSchematics: a step that brings schematics goes on as long as a machine wants one.
func TestPhaseOfSchematics(t *testing.T) {
	other := v1alpha1.FieldChange{Field: upgrade.FieldSchematic, New: schematic}
	none := v1alpha1.FieldChange{Field: upgrade.FieldSchematic, Old: schematic}

	for name, c := range map[string]struct {
		change func(*world)
		phase  v1alpha1.UpgradeRunPhase
		brings bool
	}{
		"one wants it":                  {func(w *world) { w.changes("a", v1alpha1.ChangePending, "", other); w.planSchematics() }, v1alpha1.UpgradeRunRunning, true},
		"one loses it":                  {func(w *world) { w.changes("a", v1alpha1.ChangeRebooting, "", none); w.planSchematics() }, v1alpha1.UpgradeRunRunning, true},
		"has failed":                    {func(w *world) { w.changes("a", v1alpha1.ChangeFailed, "why", other); w.planSchematics() }, v1alpha1.UpgradeRunStopped, true},
		"waits":                         {func(w *world) { w.changes("a", v1alpha1.ChangePending, "", other); w.plan("", "", "the disk is full") }, v1alpha1.UpgradeRunWaiting, true},
		"done":                          {over, v1alpha1.UpgradeRunSucceeded, false},
		"done, and the next is unclear": {func(w *world) { w.plan("", "", "why") }, v1alpha1.UpgradeRunSucceeded, false},
		"done, and Kubernetes comes":    {func(w *world) { w.plan("", newKube, "") }, v1alpha1.UpgradeRunSucceeded, false},
		"a version":                     {func(w *world) { w.changes("a", v1alpha1.ChangePending, ""); w.plan(newTalos, "", "") }, v1alpha1.UpgradeRunSucceeded, false},
		"rolled back": {func(w *world) {
			w.machines["a"].Status.Conditions = append(w.machines["a"].Status.Conditions,
				metav1.Condition{Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReverted})
		}, v1alpha1.UpgradeRunCalledOff, false},
	} {
		w := newWorld()
		c.change(w)

		in := w.input(upgrade.Talos)
		if phase := in.PhaseOf(oldTalos, oldTalos); phase != c.phase {
			t.Errorf("%s: %s", name, phase)
		}

		if got := in.Brings(oldTalos, oldTalos, w.machines["a"]) != nil; got != c.brings {
			t.Errorf("%s: %t", name, got)
		}
	}
}
