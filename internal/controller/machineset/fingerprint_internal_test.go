package machineset

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// schemed is a client that provides only a scheme.
type schemed struct {
	client.Client

	scheme *runtime.Scheme
}

func (s schemed) Scheme() *runtime.Scheme { return s.scheme }

// TestFingerprint: the maintenance fingerprint in the machine list is copied to the TalosMachine, and its change
// updates the TalosMachine.
func TestFingerprint(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	g := Group{Owner: &v1alpha1.TalosControlPlane{}, ControlPlane: "c"}
	g.Owner.SetName("c")

	want, err := g.machine(v1alpha1.MachineEntry{Name: "cp-0", MaintenanceFingerprint: "f"}, schemed{scheme: scheme})
	if err != nil || want.Spec.MaintenanceFingerprint != "f" {
		t.Fatalf("the TalosMachine expects %q, error %v", want.Spec.MaintenanceFingerprint, err)
	}

	have := want.DeepCopy()
	have.Spec.MaintenanceFingerprint = "another"

	if matches(have, want) {
		t.Error("a machine with another fingerprint is left as it is")
	}
}
