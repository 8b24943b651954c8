package talosworker

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestImpossibleImage: workers that are about to be created are refused if no factory builds their image, also where one
// part of it is asked for by their cluster. Those that run are not: their machines are refused one by one.
func TestImpossibleImage(t *testing.T) {
	w, cp := &v1alpha1.TalosWorker{}, &v1alpha1.TalosControlPlaneSpec{TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2"}
	w.Spec.ControlPlaneRef.Name = "prod"
	w.Spec.Machines = []v1alpha1.MachineEntry{{Name: "w-0", Address: "10.0.0.2"}}
	w.Spec.Install = &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{Platform: "aws"}}

	if err := checkSpec(w, cp, true); err != nil {
		t.Fatal(err)
	}

	cp.ClusterImage = &v1alpha1.ImageOptions{SecureBoot: new(true)}

	err := checkSpec(w, cp, true)
	if failure.Reason(err) != v1alpha1.ReasonInvalidSpec || !strings.Contains(err.Error(), "TalosControlPlane prod: spec.clusterImage.secureBoot") {
		t.Errorf("got %v", err)
	}

	if err := checkSpec(w, cp, false); err != nil {
		t.Errorf("a group that runs is refused: %v", err)
	}
}
