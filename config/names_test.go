package config_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestNamesFitLabels: the names of control planes and groups are the values of labels of what belongs to them, so those
// that are too long for that are refused when they are created, and not by each controller later.
func TestNamesFitLabels(t *testing.T) {
	ns, admin := api.Namespace(t), api.Admin(t)

	for length, refused := range map[int]bool{63: false, 64: true} {
		of := metav1.ObjectMeta{Namespace: ns, Name: strings.Repeat("x", length)}

		for _, o := range []client.Object{
			&v1alpha1.TalosControlPlane{ObjectMeta: of, Spec: v1alpha1.TalosControlPlaneSpec{
				TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://10.0.0.1:6443",
				Machines: []v1alpha1.MachineEntry{{Name: "cp-0", Address: "10.0.0.1"}},
			}},
			&v1alpha1.TalosWorker{ObjectMeta: of, Spec: v1alpha1.TalosWorkerSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: "prod"},
			}},
		} {
			err := admin.Create(t.Context(), o, client.DryRunAll)
			if refused != apierrors.IsInvalid(err) || !refused && err != nil {
				t.Errorf("a %T with a name of %d characters: %v", o, length, err)
			}
		}
	}
}
