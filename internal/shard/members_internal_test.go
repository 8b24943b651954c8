package shard

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestMembers: the objects of a cluster are those that the assigner gives its shard, each before what it belongs to.
func TestMembers(t *testing.T) {
	yes := true
	of := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }

	cluster := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: of("one")}
	cp, other := controlPlane("ns", "one", ""), controlPlane("ns", "two", "")
	cp.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: vitistackv1alpha1.GroupVersion.String(), Kind: clusterKind, Name: "one", Controller: &yes,
	}}

	group := &v1alpha1.TalosWorker{ObjectMeta: of("one-workers")}
	group.Spec.ControlPlaneRef.Name = "one"
	group.Spec.Spares = []v1alpha1.MachineEntry{{Name: "s", MachineRef: &v1alpha1.ObjectReference{Name: "spare"}}}

	worker := machineOf(cp, "one-w", "")
	worker.OwnerReferences[0].Kind, worker.OwnerReferences[0].Name = groupKind, group.Name

	made := &vitistackv1alpha1.Machine{ObjectMeta: of("made")}
	made.Labels = map[string]string{vitistackv1alpha1.ClusterNameLabel: "one"}
	spare := &vitistackv1alpha1.Machine{ObjectMeta: of("spare")}

	schedule := &v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: of("nightly")}
	schedule.Spec.BackupTemplate.Spec.ControlPlaneRef.Name = "one"
	backup, restore := &v1alpha1.TalosEtcdBackup{ObjectMeta: of("b")}, &v1alpha1.TalosEtcdRestore{ObjectMeta: of("r")}
	backup.Spec.ControlPlaneRef.Name, restore.Spec.ControlPlaneRef.Name = "one", "one"

	talos, kubernetes := &v1alpha1.TalosUpgrade{ObjectMeta: of("t")}, &v1alpha1.KubernetesUpgrade{ObjectMeta: of("k")}
	talos.Spec.ControlPlaneRef.Name, kubernetes.Spec.ControlPlaneRef.Name = "one", "one"

	unrelated := &vitistackv1alpha1.Machine{ObjectMeta: of("unrelated")}
	lost := &v1alpha1.TalosEtcdBackup{ObjectMeta: of("lost")}
	lost.Spec.ControlPlaneRef.Name = "gone"

	all := []client.Object{
		cluster, cp, other, group, worker, machineOf(cp, "one-1", ""), machineOf(other, "two-1", ""), made, spare, schedule,
		backup, restore, talos, kubernetes, unrelated, lost,
	}

	var got []string
	for _, o := range Members(all, cluster) {
		got = append(got, named(o)+"/"+o.GetName())
	}

	want := []string{
		"Machine/spare", "TalosMachine/one-w",
		"KubernetesUpgrade/k", "TalosEtcdBackup/b", "TalosEtcdBackupSchedule/nightly", "TalosEtcdRestore/r",
		"TalosMachine/one-1", "TalosUpgrade/t", "TalosWorker/one-workers",
		"Machine/made", "TalosControlPlane/one",
		"KubernetesCluster/one",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the objects of the cluster are\n%q, want\n%q", got, want)
	}

	if got := Members(all, other); len(got) != 2 || got[1] != client.Object(other) {
		t.Errorf("a cluster without a KubernetesCluster has %d objects", len(got))
	}
}
