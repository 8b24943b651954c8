package kubernetescluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestImageOptions: the image of a cluster is that of each of its groups.
func TestImageOptions(t *testing.T) {
	want := v1alpha1.ImageOptions{
		Schematic: &v1alpha1.Schematic{Extensions: []string{"siderolabs/iscsi-tools"}}, SecureBoot: new(true),
		Factory: &v1alpha1.ImageFactory{Address: "https://factory.example"}, Platform: "nocloud", DropExtensions: []string{"*"},
	}

	c := &vitistackv1alpha1.KubernetesCluster{}
	c.Spec.TalosConfig = &vitistackv1alpha1.TalosConfig{Install: &vitistackv1alpha1.InstallConfig{ImageOptions: want}}

	if diff := cmp.Diff(want, topology{cluster: c}.nodeOptions().Install.ImageOptions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
