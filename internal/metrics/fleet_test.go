package metrics_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestFleet: the values are those of the statuses, a condition that is unknown is not one that is false, and what the
// object does not have is not told.
func TestFleet(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, vitistackv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}

	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	cluster := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: named("c")}
	cluster.Status.Phase = vitistackv1alpha1.PhaseProvisioning

	plane := &v1alpha1.TalosControlPlane{ObjectMeta: named("c")}
	plane.Spec.TalosVersion, plane.Status.ObservedKubeVersion = "v1.13.9", "v1.36.2"
	plane.Status.Replicas, plane.Status.ReadyReplicas, plane.Status.EtcdMembers = 3, 2, 4
	plane.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse},
		{Type: v1alpha1.ConditionEtcdHealthy, Status: metav1.ConditionUnknown},
		{Type: v1alpha1.ConditionBootstrapped, Status: metav1.ConditionTrue},
	}

	workers := &v1alpha1.TalosWorker{ObjectMeta: named("c-web")}
	workers.Spec.ControlPlaneRef.Name, workers.Status.Replicas, workers.Status.ReadyReplicas = "c", 5, 1
	workers.Status.Plan = &v1alpha1.PlanStatus{
		Phase: v1alpha1.PlanStopped, Machines: []v1alpha1.PlannedMachine{{Name: "1"}, {Name: "2"}},
	}

	machine := &v1alpha1.TalosMachine{ObjectMeta: named("m")}
	machine.Spec.ControlPlaneRef.Name, machine.Spec.Role = "c", v1alpha1.RoleWorker
	machine.Status.Stage, machine.Status.TalosVersion, machine.Status.KubeletVersion = "running", "v1.13.8", "v1.36.1"
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}

	silent := &v1alpha1.TalosMachine{ObjectMeta: named("silent")}
	silent.Spec.ControlPlaneRef.Name, silent.Spec.Role = "c", v1alpha1.RoleWorker

	elected := make(chan struct{})
	close(elected)

	own, _ := registered(t, fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, plane, workers, machine, silent).Build(),
		elected)

	var got []string

	for _, line := range series(t, own) {
		for _, prefix := range []string{"cluster_", "control_plane_", "group_", "rollout_", "machine_"} {
			if strings.HasPrefix(line, "talos_operator_"+prefix) {
				got = append(got, strings.TrimPrefix(line, "talos_operator_"))
			}
		}
	}

	want := []string{
		"cluster_phase c ns Provisioning 1",
		"control_plane_condition EtcdHealthy c ns -1",
		"control_plane_condition Ready c ns 0",
		"control_plane_etcd_members c ns 4",
		"control_plane_info c v1.36.2 ns v1.13.9 1",
		"group_machines c  ns 3",
		"group_machines c c-web ns 5",
		"group_ready_machines c  ns 2",
		"group_ready_machines c c-web ns 1",
		"machine_call_duration_seconds c m ns 0.02",
		"machine_condition Reachable c m ns 1",
		"machine_info c  silent ns worker   1",
		"machine_info c v1.36.1 m ns worker running v1.13.8 1",
		"rollout_machines_left c c-web ns Stopped 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
