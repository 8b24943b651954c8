package app

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestClusters: the lines of each controller name the cluster, and its passes count among those of the cluster.
func TestClusters(t *testing.T) {
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: map[string]string{vitistackv1alpha1.ClusterNameLabel: "of-machine"},
		}
	}
	ref := func(kind string) v1alpha1.ObjectReference { return v1alpha1.ObjectReference{Name: "of-" + kind} }

	schedule := &v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: at("o")}
	schedule.Spec.BackupTemplate.Spec.ControlPlaneRef = ref("schedule")

	objects := []client.Object{
		&vitistackv1alpha1.Machine{ObjectMeta: at("o")},
		&v1alpha1.TalosMachine{ObjectMeta: at("o"), Spec: v1alpha1.TalosMachineSpec{ControlPlaneRef: ref("talosMachine")}},
		&v1alpha1.TalosWorker{ObjectMeta: at("o"), Spec: v1alpha1.TalosWorkerSpec{ControlPlaneRef: ref("worker")}},
		&v1alpha1.TalosEtcdBackup{ObjectMeta: at("o"), Spec: v1alpha1.TalosEtcdBackupSpec{ControlPlaneRef: ref("backup")}},
		schedule,
		&v1alpha1.TalosEtcdRestore{ObjectMeta: at("o"), Spec: v1alpha1.TalosEtcdRestoreSpec{ControlPlaneRef: ref("restore")}},
	}

	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}

	of := newClusters(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build())

	for want, cluster := range map[string]func(reconcile.Request) string{
		"of-machine": of.machine, "of-talosMachine": of.talosMachine, "of-worker": of.worker, "of-backup": of.backup,
		"of-schedule": of.schedule, "of-restore": of.restore,
	} {
		req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "o"}}
		if got := cluster(req); got != want || inNamespace(cluster)(req) != "ns/"+want {
			t.Errorf("%q, want %q", got, want)
		}

		req.Name = "gone"
		if got := inNamespace(cluster)(req); got != "" {
			t.Errorf("of an object that is gone: %q", got)
		}
	}
}
