package shard

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// Names of kinds that others belong to.
const (
	clusterKind = "KubernetesCluster"
	planeKind   = "TalosControlPlane"
	groupKind   = "TalosWorker"
)

// kind is one kind of object that carries the label.
type kind struct {
	group  schema.GroupVersion
	object func() client.Object
	list   func() client.ObjectList
}

func kindOf[O client.Object, L client.ObjectList](
	group schema.GroupVersion, object func() O, list func() L,
) kind {
	return kind{group, func() client.Object { return object() }, func() client.ObjectList { return list() }}
}

// of makes an empty T.
func of[T any]() *T { return new(T) }

// kinds are those that carry the label, by name.
var kinds = map[string]kind{
	clusterKind: kindOf(vitistackv1alpha1.GroupVersion, of[vitistackv1alpha1.KubernetesCluster],
		of[vitistackv1alpha1.KubernetesClusterList]),
	"Machine": kindOf(vitistackv1alpha1.GroupVersion, of[vitistackv1alpha1.Machine],
		of[vitistackv1alpha1.MachineList]),
	planeKind: kindOf(v1alpha1.GroupVersion, of[v1alpha1.TalosControlPlane], of[v1alpha1.TalosControlPlaneList]),
	groupKind: kindOf(v1alpha1.GroupVersion, of[v1alpha1.TalosWorker], of[v1alpha1.TalosWorkerList]),
	"TalosMachine": kindOf(v1alpha1.GroupVersion, of[v1alpha1.TalosMachine],
		of[v1alpha1.TalosMachineList]),
	"TalosEtcdBackup": kindOf(v1alpha1.GroupVersion, of[v1alpha1.TalosEtcdBackup], of[v1alpha1.TalosEtcdBackupList]),
	"TalosEtcdBackupSchedule": kindOf(v1alpha1.GroupVersion, of[v1alpha1.TalosEtcdBackupSchedule],
		of[v1alpha1.TalosEtcdBackupScheduleList]),
	"TalosEtcdRestore": kindOf(v1alpha1.GroupVersion, of[v1alpha1.TalosEtcdRestore], of[v1alpha1.TalosEtcdRestoreList]),
	"TalosUpgrade":     kindOf(v1alpha1.GroupVersion, of[v1alpha1.TalosUpgrade], of[v1alpha1.TalosUpgradeList]),
	"KubernetesUpgrade": kindOf(v1alpha1.GroupVersion, of[v1alpha1.KubernetesUpgrade],
		of[v1alpha1.KubernetesUpgradeList]),
}

// Kinds returns an empty object of each kind that carries the label.
func Kinds() []client.Object {
	out := make([]client.Object, 0, len(kinds))
	for _, k := range kinds {
		out = append(out, k.object())
	}

	return out
}

// named returns the kind of an object or a list, empty for one that carries no label.
func named(o runtime.Object) string {
	switch o.(type) {
	case *vitistackv1alpha1.KubernetesCluster, *vitistackv1alpha1.KubernetesClusterList:
		return clusterKind
	case *vitistackv1alpha1.Machine, *vitistackv1alpha1.MachineList:
		return "Machine"
	case *v1alpha1.TalosControlPlane, *v1alpha1.TalosControlPlaneList:
		return planeKind
	case *v1alpha1.TalosWorker, *v1alpha1.TalosWorkerList:
		return groupKind
	case *v1alpha1.TalosMachine, *v1alpha1.TalosMachineList:
		return "TalosMachine"
	case *v1alpha1.TalosEtcdBackup, *v1alpha1.TalosEtcdBackupList:
		return "TalosEtcdBackup"
	case *v1alpha1.TalosEtcdBackupSchedule, *v1alpha1.TalosEtcdBackupScheduleList:
		return "TalosEtcdBackupSchedule"
	case *v1alpha1.TalosEtcdRestore, *v1alpha1.TalosEtcdRestoreList:
		return "TalosEtcdRestore"
	case *v1alpha1.TalosUpgrade, *v1alpha1.TalosUpgradeList:
		return "TalosUpgrade"
	case *v1alpha1.KubernetesUpgrade, *v1alpha1.KubernetesUpgradeList:
		return "KubernetesUpgrade"
	}

	return ""
}

// ref names an object in the namespace of the one that refers to it.
type ref struct{ kind, name string }

// parent is the object whose shard another one has; false for a root, which is a cluster by itself.
func parent(o client.Object) (ref, bool) {
	if r := metav1.GetControllerOfNoCopy(o); r != nil {
		if k, ok := kinds[r.Kind]; ok && k.group.String() == r.APIVersion {
			return ref{r.Kind, r.Name}, true
		}
	}

	name := ""

	switch o := o.(type) {
	case *vitistackv1alpha1.Machine:
		name := o.Labels[vitistackv1alpha1.ClusterNameLabel]

		return ref{clusterKind, name}, name != ""
	case *v1alpha1.TalosWorker:
		name = o.Spec.ControlPlaneRef.Name
	case *v1alpha1.TalosMachine:
		name = o.Spec.ControlPlaneRef.Name
	case *v1alpha1.TalosEtcdBackup:
		name = o.Spec.ControlPlaneRef.Name
	case *v1alpha1.TalosEtcdBackupSchedule:
		name = o.Spec.BackupTemplate.Spec.ControlPlaneRef.Name
	case *v1alpha1.TalosEtcdRestore:
		name = o.Spec.ControlPlaneRef.Name
	case *v1alpha1.TalosUpgrade:
		name = o.Spec.ControlPlaneRef.Name
	case *v1alpha1.KubernetesUpgrade:
		name = o.Spec.ControlPlaneRef.Name
	}

	return ref{planeKind, name}, name != ""
}
