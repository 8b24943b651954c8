package demo

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

const from, to = "v1.12.12", "v1.13.9"

func changing(kind v1alpha1.ChangeKind, phase v1alpha1.ChangePhase, message, version string) v1alpha1.TalosMachine {
	m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "cp-0"}}
	m.Status.TalosVersion = version
	m.Status.Change = &v1alpha1.MachineChange{Kind: kind, Phase: phase, Message: message}

	return m
}

func TestUpgradeText(t *testing.T) {
	idle := func(version string) v1alpha1.TalosMachine {
		return v1alpha1.TalosMachine{Status: v1alpha1.TalosMachineStatus{TalosVersion: version}}
	}

	for name, c := range map[string]struct {
		machine v1alpha1.TalosMachine
		want    string
	}{
		"not yet begun":           {machine: idle(from)},
		"waits for its slot":      {machine: changing(v1alpha1.ChangeTalos, v1alpha1.ChangePending, "", from)},
		"pulls":                   {changing(v1alpha1.ChangeTalos, v1alpha1.ChangePending, "pulling x", from), "pulling x"},
		"drains":                  {changing(v1alpha1.ChangeTalos, v1alpha1.ChangeDraining, "", from), "draining"},
		"reboots":                 {changing(v1alpha1.ChangeTalos, v1alpha1.ChangeRebooting, "", from), "installing Talos v1.13.9 and rebooting"},
		"is back":                 {changing(v1alpha1.ChangeTalos, v1alpha1.ChangeSettling, "", to), "has booted Talos v1.13.9, not yet healthy"},
		"has failed":              {changing(v1alpha1.ChangeTalos, v1alpha1.ChangeFailed, "no image", from), "Failed: no image"},
		"is done":                 {idle(to), "healthy with Talos v1.13.9"},
		"a configuration follows": {changing(v1alpha1.ChangeConfig, v1alpha1.ChangePending, "", to), "healthy with Talos v1.13.9"},
		"a configuration before":  {machine: changing(v1alpha1.ChangeConfig, v1alpha1.ChangePending, "", from)},
	} {
		if got := upgradeText(&c.machine, to); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestLines: etcd is of no interest before a machine begins, and a backup stands before what waits for it.
func TestLines(t *testing.T) {
	o := observation{
		backups:  []v1alpha1.TalosEtcdBackup{{ObjectMeta: metav1.ObjectMeta{Name: "before"}}},
		machines: []v1alpha1.TalosMachine{changing(v1alpha1.ChangeTalos, v1alpha1.ChangePending, "", from)},
	}
	meta.SetStatusCondition(&o.controlPlane.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionEtcdHealthy, Status: metav1.ConditionTrue, Reason: "Test", Message: "3 voting members agree",
	})

	check := func(want ...line) {
		t.Helper()

		if diff := cmp.Diff(want, o.lines(to), cmp.AllowUnexported(line{})); diff != "" {
			t.Error(diff)
		}
	}

	check(line{"backup", "taking a snapshot of etcd before the first machine reboots"})

	b := &o.backups[0]
	b.Status.StoredSize, b.Status.Location = new(resource.MustParse("4Ki")), "s3://backups/before"
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Test",
	})

	o.machines[0].Status.Change.Phase = v1alpha1.ChangeDraining

	check(line{"backup", "complete: 4.0 KiB in s3://backups/before"}, line{"cp-0", "draining"},
		line{"etcd", "3 voting members agree"})

	b.Status.Conditions = nil
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "Test", Message: "no bucket",
	})

	o.machines = nil

	check(line{"backup", "before has failed: no bucket"})
}

// TestEnded: only the run to the version ends the wait, and only with a success is it no error.
func TestEnded(t *testing.T) {
	run := func(to string, phase v1alpha1.UpgradeRunPhase) v1alpha1.TalosUpgrade {
		r := v1alpha1.TalosUpgrade{Spec: v1alpha1.UpgradeRunSpec{To: to}}
		r.Status.Phase = phase

		if phase == v1alpha1.UpgradeRunCalledOff {
			r.Status.CompletionTime = &metav1.Time{}
		}

		return r
	}

	for name, c := range map[string]struct {
		runs         []v1alpha1.TalosUpgrade
		done, failed bool
	}{
		"not recorded":    {},
		"running":         {runs: []v1alpha1.TalosUpgrade{run(to, v1alpha1.UpgradeRunRunning)}},
		"waiting":         {runs: []v1alpha1.TalosUpgrade{run(to, v1alpha1.UpgradeRunWaiting)}},
		"another version": {runs: []v1alpha1.TalosUpgrade{run(from, v1alpha1.UpgradeRunSucceeded)}},
		"succeeded": {
			runs: []v1alpha1.TalosUpgrade{run(from, v1alpha1.UpgradeRunStopped), run(to, v1alpha1.UpgradeRunSucceeded)}, done: true,
		},
		"stopped":    {runs: []v1alpha1.TalosUpgrade{run(to, v1alpha1.UpgradeRunStopped)}, failed: true},
		"called off": {runs: []v1alpha1.TalosUpgrade{run(to, v1alpha1.UpgradeRunCalledOff)}, failed: true},
	} {
		if done, err := (observation{runs: c.runs}).ended(to); done != c.done || (err != nil) != c.failed {
			t.Errorf("%s: done %v, error %v", name, done, err)
		}
	}
}
