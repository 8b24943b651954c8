// Package v1alpha1 contains the API of vitistack.io: whole clusters, and the machines that infrastructure providers
// supply for them.
//
// +kubebuilder:object:generate=true
// +groupName=vitistack.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "vitistack.io", Version: "v1alpha1"}
	// SchemeBuilder collects the functions that add this package's kinds to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(
		GroupVersion,
		&KubernetesCluster{}, &KubernetesClusterList{},
		&Machine{}, &MachineList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)

	return nil
}
