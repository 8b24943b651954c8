package talosworker

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestImpossibleImage: workers for which no factory builds an image are refused, also where one part of it is asked for
// by their cluster.
func TestImpossibleImage(t *testing.T) {
	w, cp := &v1alpha1.TalosWorker{}, &v1alpha1.TalosControlPlaneSpec{TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2"}
	w.Spec.Machines = []v1alpha1.MachineEntry{{Name: "w-0", Address: "10.0.0.2"}}
	w.Spec.Install = &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{Platform: "aws"}}

	if err := checkSpec(w, cp); err != nil {
		t.Fatal(err)
	}

	cp.ClusterImage = &v1alpha1.ImageOptions{SecureBoot: new(true)}

	if err := checkSpec(w, cp); failure.Reason(err) != v1alpha1.ReasonInvalidSpec || !strings.Contains(err.Error(), "spec.install.secureBoot") {
		t.Errorf("got %v", err)
	}
}
