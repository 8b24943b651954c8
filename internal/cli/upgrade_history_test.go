package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestUpgradeHistory: the runs of a cluster, and of no other, the newest first, with what they took.
func TestUpgradeHistory(t *testing.T) {
	s := newShellOf(t, "view")
	s.sample("old")

	if out, _, failed := s.run("upgrade", "history", "old"); failed != "" || out != "old has no recorded upgrades.\n" {
		t.Errorf("%q, %q", out, failed)
	}

	at := func(minutes int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 11, 25, 12, minutes, 0, 0, time.UTC)}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: s.ns, Name: name} }
	spec := func(cluster, from, to string) v1alpha1.UpgradeRunSpec {
		return v1alpha1.UpgradeRunSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}, From: from, To: to}
	}
	record := func(o client.Object, into *v1alpha1.UpgradeRunStatus, status v1alpha1.UpgradeRunStatus) {
		t.Helper()
		s.create(o)

		*into = status
		if err := s.client.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	talos := &v1alpha1.TalosUpgrade{ObjectMeta: meta("old-talos-1"), Spec: spec("old", "v1.12.4", "v1.13.9")}
	record(talos, &talos.Status, v1alpha1.UpgradeRunStatus{
		Phase: v1alpha1.UpgradeRunFailed, StartTime: at(0), CompletionTime: at(30), Total: 2, Done: 1, Failed: 1, Message: "called off",
		Machines: []v1alpha1.UpgradeRunMachine{
			{Name: "old-cp", From: "v1.12.4", State: v1alpha1.UpgradeMachineDone, StartedAt: at(0), CompletedAt: at(7)},
			{Name: "old-w-0", From: "v1.12.4", State: v1alpha1.UpgradeMachineFailed, StartedAt: at(10), CompletedAt: at(15), Message: "no boot"},
		},
	})

	schematic := &v1alpha1.TalosUpgrade{ObjectMeta: meta("old-talos-2"), Spec: spec("old", "v1.13.9", "v1.13.9")}
	schematic.Spec.Schematic = strings.Repeat("ab", 32)
	record(schematic, &schematic.Status, v1alpha1.UpgradeRunStatus{
		Phase: v1alpha1.UpgradeRunSucceeded, StartTime: at(40), CompletionTime: at(42), Total: 1, Done: 1,
	})

	removed := &v1alpha1.TalosUpgrade{ObjectMeta: meta("old-talos-3"), Spec: spec("old", "v1.13.9", "v1.13.9")}
	record(removed, &removed.Status, v1alpha1.UpgradeRunStatus{
		Phase: v1alpha1.UpgradeRunSucceeded, StartTime: at(50), CompletionTime: at(52), Total: 1, Done: 1,
	})

	kubernetes := &v1alpha1.KubernetesUpgrade{ObjectMeta: meta("old-kubernetes-1"), Spec: spec("old", "v1.35.1", "v1.36.2")}
	record(kubernetes, &kubernetes.Status, v1alpha1.UpgradeRunStatus{
		Phase: v1alpha1.UpgradeRunCalledOff, StartTime: at(35), CompletionTime: at(38), Total: 2,
		PointOfNoReturn: v1alpha1.PointOfNoReturnPassed,
		Machines:        []v1alpha1.UpgradeRunMachine{{Name: "old-cp", From: "v1.35.1", State: v1alpha1.UpgradeMachineInProgress, StartedAt: at(36)}},
	})

	s.create(&v1alpha1.TalosUpgrade{ObjectMeta: meta("other-talos-1"), Spec: spec("other", "v1.12.4", "v1.13.9")})

	want := "NAME COMPONENT FROM TO STATE DONE STARTED DURATION MESSAGE\n" +
		"old-talos-3 Talos v1.13.9 v1.13.9 (no schematic) Succeeded 1/1 2026-11-25T12:50:00Z 2m -\n" +
		"old-talos-2 Talos v1.13.9 v1.13.9 (schematic abababababab) Succeeded 1/1 2026-11-25T12:40:00Z 2m -\n" +
		"old-kubernetes-1 Kubernetes v1.35.1 v1.36.2 CalledOff 0/2 2026-11-25T12:35:00Z 3m -\n" +
		"MACHINE1old-talos-1 Talos v1.12.4 v1.13.9 Failed 1/2 2026-11-25T12:00:00Z 30m called off\nMACHINES2"
	first := " old-cp v1.35.1 InProgress 2026-11-25T12:36:00Z 2m -\n"
	rest := " old-cp v1.12.4 Done 2026-11-25T12:00:00Z 7m -\n old-w-0 v1.12.4 Failed 2026-11-25T12:10:00Z 5m no boot\n"

	for flag, in := range map[string]*strings.Replacer{
		"--machines=false": strings.NewReplacer("MACHINE1", "", "MACHINES2", ""),
		"--machines":       strings.NewReplacer("MACHINE1", first, "MACHINES2", rest),
	} {
		out, _, failed := s.run("upgrade", "history", "old", flag)
		if diff := cmp.Diff(squeeze(in.Replace(want)), squeeze(out)); diff != "" || failed != "" {
			t.Errorf("%s: %q: %s", flag, failed, diff)
		}
	}

	var history struct {
		Cluster string
		Runs    []struct {
			Name, Component, State, Duration, PointOfNoReturn string

			Machines []struct{ Name, State, Duration string }
		}
	}

	out, _, _ := s.run("upgrade", "history", "old", "-o", "json")
	if err := json.Unmarshal([]byte(out), &history); err != nil || history.Cluster != "old" || len(history.Runs) != 4 ||
		history.Runs[3].State != "Failed" || history.Runs[3].Duration != "30m" || len(history.Runs[3].Machines) != 2 ||
		history.Runs[3].Machines[1].Name != "old-w-0" || history.Runs[3].Machines[1].Duration != "5m" ||
		history.Runs[2].PointOfNoReturn != "Passed" || history.Runs[3].PointOfNoReturn != "" {
		t.Errorf("%v: %s", err, out)
	}
}
