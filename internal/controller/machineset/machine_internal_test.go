package machineset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestMachineOfEntry: what the machine list says about one machine reaches its TalosMachine.
func TestMachineOfEntry(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	g := Group{
		Owner:        &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}},
		ControlPlane: "c", DeletionPolicy: v1alpha1.DeletionReset,
	}
	entry := v1alpha1.MachineEntry{
		Name: "cp-0", Address: "10.0.0.1", MaintenanceFingerprint: "f", Network: &v1alpha1.MachineNetwork{Hostname: "h"},
		Drain:       &v1alpha1.DrainOptions{Timeout: &metav1.Duration{Duration: time.Minute}, OnTimeout: v1alpha1.DrainSkip},
		NodeOptions: v1alpha1.NodeOptions{NodeLabels: map[string]string{"rack": "1"}, ConfigPatches: []string{"machine: {}"}},
	}

	m, err := g.machine(entry, fake.NewClientBuilder().WithScheme(scheme).Build())
	if err != nil {
		t.Fatal(err)
	}

	want := v1alpha1.TalosMachineSpec{
		ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}, Role: v1alpha1.RoleControlPlane, Address: entry.Address,
		MaintenanceFingerprint: "f", Network: entry.Network, DeletionPolicy: v1alpha1.DeletionReset, Drain: entry.Drain,
		NodeOptions: entry.NodeOptions,
	}
	if diff := cmp.Diff(want, m.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
