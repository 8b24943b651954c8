package kubernetescluster

import (
	"testing"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestFingerprints: each machine of a template gets the fingerprint at its own place of the list, and the machine list
// of the group has it; an empty text, and a list that is too short, stand for machines without one.
func TestFingerprints(t *testing.T) {
	const first, third = "pnduMqbUZ/sQyDW1o4kP6c1u1PoB2gRQu8KEV38guAM=", "snduMqbUZ/sQyDW1o4kP6c1u1PoB2gRQu8KEV38guAM="

	c := &vitistackv1alpha1.KubernetesCluster{}
	c.Name = "c"
	c.Spec.ControlPlane.Replicas = 5
	c.Spec.ControlPlane.MachineTemplate.Spec.Provider = vitistackv1alpha1.Provider{
		Name: vitistackv1alpha1.ProviderStatic, Addresses: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"},
		MaintenanceFingerprints: []string{first, "", third, ""},
	}

	for i, e := range newTopology(c).controlPlane().Spec.Machines {
		if want := []string{first, "", third, "", ""}[i]; e.MaintenanceFingerprint != want {
			t.Errorf("%s has the fingerprint %q, want %q", e.Name, e.MaintenanceFingerprint, want)
		}
	}
}
