package taloscontrolplane

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
)

// TestImpossibleImage: a control plane that is about to be created is refused if no factory builds its image. One that
// runs is not: its machines are refused one by one.
func TestImpossibleImage(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec = v1alpha1.TalosControlPlaneSpec{
		TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://10.0.0.1:6443",
		Machines: []v1alpha1.MachineEntry{{Name: "cp-0", Address: "10.0.0.1"}},
	}

	if err := checkSpec(cp, clusterstate.BundleConfig{}, ""); err != nil {
		t.Fatal(err)
	}

	cp.Spec.ClusterImage = &v1alpha1.ImageOptions{Platform: "aws", SecureBoot: new(true)}

	err := checkSpec(cp, clusterstate.BundleConfig{}, "")
	if failure.Reason(err) != v1alpha1.ReasonInvalidSpec || !strings.Contains(err.Error(), "spec.clusterImage.secureBoot") {
		t.Errorf("got %v", err)
	}

	if err := checkSpec(cp, desired.BundleConfig(cp), ""); err != nil {
		t.Errorf("one that runs is refused: %v", err)
	}
}
