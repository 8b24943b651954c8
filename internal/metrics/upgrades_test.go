package metrics_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// TestUpgrades: what is upgraded now, how much is left, and what machines do.
func TestUpgrades(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	plane := func(name string, u *v1alpha1.UpgradeStatus) *v1alpha1.TalosControlPlane {
		return &v1alpha1.TalosControlPlane{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Status:     v1alpha1.TalosControlPlaneStatus{Upgrade: u},
		}
	}
	machine := func(name string, c *v1alpha1.MachineChange) *v1alpha1.TalosMachine {
		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		m.Spec.ControlPlaneRef.Name, m.Status.Change = "c", c

		return m
	}

	record := func(name, owner string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{{
			UID: types.UID(owner), Controller: new(true),
		}}}
	}

	end := metav1.NewTime(time.Unix(100, 0))
	st := v1alpha1.UpgradeRunStatus{Phase: v1alpha1.UpgradeRunStopped, Total: 5, Done: 2, Failed: 1}
	over := v1alpha1.UpgradeRunStatus{Phase: v1alpha1.UpgradeRunSucceeded, Total: 5, Done: 5, CompletionTime: &end}
	spec := v1alpha1.UpgradeRunSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}}

	u := metrics.Upgrades{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		plane("rests", nil), plane("waits", &v1alpha1.UpgradeStatus{StepsLeft: 3}),
		plane("talos", &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9", StepsLeft: 1}),
		plane("c", &v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2", StepsLeft: 2, Components: []v1alpha1.KubernetesComponent{
			v1alpha1.ComponentAPIServer, v1alpha1.ComponentControllerManager,
		}}),
		// A control plane that was deleted and created again has open records twice, and a series once.
		&v1alpha1.KubernetesUpgrade{ObjectMeta: record("c-2", "c"), Spec: spec, Status: st},
		&v1alpha1.KubernetesUpgrade{ObjectMeta: record("c-1", "earlier"), Spec: spec, Status: st},
		&v1alpha1.KubernetesUpgrade{ObjectMeta: record("c-3", "c"), Spec: spec, Status: st},
		&v1alpha1.TalosUpgrade{ObjectMeta: record("c-1", "c"), Spec: spec, Status: over},
		&v1alpha1.TalosUpgrade{ObjectMeta: record("c-2", "c"), Spec: spec},
		machine("1", nil), machine("2", &v1alpha1.MachineChange{Phase: v1alpha1.ChangePending}),
		machine("3", &v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Phase: v1alpha1.ChangeSettling}),
		machine("4", &v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Phase: v1alpha1.ChangeSettling}),
	).Build()}

	want := []string{
		"talos_operator_machine_changes c Config ns Pending 1",
		"talos_operator_machine_changes c Kubernetes ns Settling 2",
		"talos_operator_upgrade_info  waits ns  1",
		"talos_operator_upgrade_info ControllerManager c ns v1.36.2 1",
		"talos_operator_upgrade_info Talos talos ns v1.13.9 1",
		"talos_operator_upgrade_run_machines Kubernetes c ns Done 4",
		"talos_operator_upgrade_run_machines Kubernetes c ns Failed 2",
		"talos_operator_upgrade_run_machines Kubernetes c ns Left 4",
		"talos_operator_upgrade_steps_left c ns 2",
		"talos_operator_upgrade_steps_left talos ns 1",
		"talos_operator_upgrade_steps_left waits ns 3",
	}
	if diff := cmp.Diff(want, series(t, u)); diff != "" {
		t.Error(diff)
	}
}
