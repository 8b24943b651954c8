// Package v1alpha1 holds the API of talos-operator.io: control planes, worker groups and machines of Talos Linux
// Kubernetes clusters.
//
// +kubebuilder:object:generate=true
// +groupName=talos-operator.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "talos-operator.io", Version: "v1alpha1"}
	// SchemeBuilder collects the functions that add this package's kinds to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(
		GroupVersion,
		&TalosControlPlane{}, &TalosControlPlaneList{},
		&TalosWorker{}, &TalosWorkerList{},
		&TalosMachine{}, &TalosMachineList{},
		&TalosEtcdBackup{}, &TalosEtcdBackupList{},
		&TalosEtcdBackupSchedule{}, &TalosEtcdBackupScheduleList{},
		&TalosEtcdRestore{}, &TalosEtcdRestoreList{},
		&TalosUpgrade{}, &TalosUpgradeList{},
		&KubernetesUpgrade{}, &KubernetesUpgradeList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)

	return nil
}
