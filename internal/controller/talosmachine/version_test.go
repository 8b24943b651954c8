package talosmachine_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// TestJoinsWithTheRunningVersion: a node that lost its disk comes back with the Kubernetes version that its cluster
// runs, and not with the one in the spec: a kubelet must not be newer than the API servers. One that was observed at
// another API server does not count where this one is older.
func TestJoinsWithTheRunningVersion(t *testing.T) {
	for name, observed := range map[string]string{"the same is observed": kubernetes, "a newer one is observed": "v1.36.8"} {
		t.Run(name, func(t *testing.T) { joinsWithTheRunningVersion(t, observed) })
	}
}

func joinsWithTheRunningVersion(t *testing.T, observed string) {
	t.Helper()

	e := found(t, 1, 1)
	e.Record(cluster, func(s *clusterstate.State) { s.ObservedKubeVersion = observed })

	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.KubernetesVersion = "v1.36.9"
	})

	if err := e.nodes["w-0"].WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := e.nodes["w-0"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	calls := e.mutations("w-0")
	e.until("w-0", "it has its config again", func(m *v1alpha1.TalosMachine) bool {
		return e.mutations("w-0") > calls && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable)
	})
	e.until("w-0", "it waits for the upgrade", func(m *v1alpha1.TalosMachine) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionUpToDate)

		return c != nil && c.Reason == v1alpha1.ReasonUpgradePending
	})

	if got := e.machine("w-0").Status.KubeletVersion; got != kubernetes {
		t.Errorf("the status reports kubelet %q", got)
	}

	if !e.runs("w-0", "kubelet:"+kubernetes) || e.runs("w-0", "v1.36.9") || e.runs("w-0", "v1.36.8") {
		t.Error("it joined with another version than the cluster runs")
	}
}

// TestJoinsOnThePath: a node that lost its disk while its cluster is upgraded over several versions of Talos is
// installed with the one that the path has reached, and not with that at its end.
func TestJoinsOnThePath(t *testing.T) {
	e := found(t, 1, 1)
	e.follow("v1.13.11", installer+"v1.13.11")
	e.step(newer, false)

	if err := e.nodes["w-0"].WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := e.nodes["w-0"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	m := e.until("w-0", "it runs the version of the path", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.TalosVersion == newer && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable)
	})

	if !e.runs("w-0", installer+newer) || e.runs("w-0", installer+"v1.13.11") {
		t.Errorf("its config names another installer; %s", show(m))
	}

	// The end of the path is another upgrade, and not a change of its config.
	for range 3 {
		e.pass("w-0")
	}

	if c := e.machine("w-0").Status.Change; c != nil {
		t.Errorf("it is changed once it has joined: %+v", c)
	}
}

// TestJoinsWithWhatItReads: what the version that a machine is installed with cannot read is refused before anything is
// sent, although the version at the end of the path can.
func TestJoinsWithWhatItReads(t *testing.T) {
	e := found(t, 1, 1)
	e.step("v1.12.4", false)
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	})
	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		m.Spec.Network = &v1alpha1.MachineNetwork{
			BlackholeRoutes: []v1alpha1.BlackholeRoute{{Network: "10.99.0.0/16"}},
		}
	})

	if err := e.nodes["w-0"].WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := e.nodes["w-0"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	calls := e.mutations("w-0")
	e.until("w-0", "it is refused", reason(v1alpha1.ConditionReady, v1alpha1.ReasonInvalidSpec))

	if got := e.mutations("w-0"); got != calls {
		t.Errorf("%d calls were made", got-calls)
	}
}
