package upgrade

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestEstimate: control-plane machines are upgraded one after the other, then workers within their budget after a
// canary; earlier upgrades that succeeded tell how long a machine takes.
func TestEstimate(t *testing.T) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	after := func(d time.Duration) *time.Time { return new(at.Add(d)) }
	machine := func(took time.Duration) upgradeRunMachine {
		return upgradeRunMachine{UpgradeRunMachine: v1alpha1.UpgradeRunMachine{
			State: v1alpha1.UpgradeMachineDone, StartedAt: &metav1.Time{Time: at}, CompletedAt: &metav1.Time{Time: at.Add(took)},
		}}
	}
	run := func(component upgrade.Component, state v1alpha1.UpgradeRunPhase, took time.Duration, machines ...upgradeRunMachine) upgradeRun {
		return upgradeRun{Component: component, State: state, StartedAt: &at, CompletedAt: after(took), Machines: machines}
	}

	c := &session.Cluster{ControlPlane: &v1alpha1.TalosControlPlane{}, Workers: make([]v1alpha1.TalosWorker, 2)}
	c.ControlPlane.Spec.Machines = []v1alpha1.MachineEntry{{Name: "cp-0"}, {Name: "cp-1"}, {Name: "cp-2"}}
	c.Workers[0].Spec.Machines = make([]v1alpha1.MachineEntry, 11)
	c.Workers[0].Spec.Rollout = &v1alpha1.RolloutOptions{MaxUnavailable: new(intstr.FromInt32(5))}
	c.Workers[1].Spec.Machines = make([]v1alpha1.MachineEntry, 2)

	all := []string{"cp-0", "cp-1", "cp-2", "w-0", "w-1"}
	talos, kubernetes := upgrade.Step{Component: upgrade.Talos, Machines: all}, upgrade.Step{Component: upgrade.Kubernetes, Machines: all}

	for name, tc := range map[string]struct {
		runs    []upgradeRun
		steps   []upgrade.Step
		want    time.Duration
		assumed bool
	}{
		"nothing to do":              {nil, nil, 0, true},
		"Talos, assumed":             {nil, []upgrade.Step{talos}, (3 + 3) * 4 * time.Minute, true},
		"Kubernetes, assumed":        {nil, []upgrade.Step{kubernetes}, 3*2*time.Minute + 6*30*time.Second, true},
		"a control plane alone":      {nil, []upgrade.Step{{Component: upgrade.Talos, Machines: all[:3]}}, 12 * time.Minute, true},
		"both, twice":                {nil, []upgrade.Step{talos, kubernetes, talos, kubernetes}, 2 * (24 + 9) * time.Minute, true},
		"an earlier one has failed":  {[]upgradeRun{run(upgrade.Talos, v1alpha1.UpgradeRunFailed, time.Hour, machine(time.Minute))}, []upgrade.Step{talos}, 24 * time.Minute, true},
		"earlier ones of Kubernetes": {[]upgradeRun{run(upgrade.Kubernetes, v1alpha1.UpgradeRunSucceeded, 7*time.Minute), run(upgrade.Kubernetes, v1alpha1.UpgradeRunSucceeded, time.Hour)}, []upgrade.Step{kubernetes, kubernetes}, 14 * time.Minute, true},
		"an earlier one of Talos":    {[]upgradeRun{run(upgrade.Talos, v1alpha1.UpgradeRunSucceeded, time.Hour, machine(time.Minute), machine(2*time.Minute), machine(time.Hour))}, []upgrade.Step{talos}, 12 * time.Minute, false},
	} {
		pace := paceOf(c, upgradeHistory{Runs: tc.runs})
		if got := pace.estimate(tc.steps); got != tc.want || pace.assumed != tc.assumed {
			t.Errorf("%s: %s, assumed %t, want %s, %t", name, got, pace.assumed, tc.want, tc.assumed)
		}
	}
}
