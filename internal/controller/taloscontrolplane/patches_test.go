package taloscontrolplane_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/patchsource"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestPatchesOfOneVersion: no machine begins before each of them was compared with the version of a patch that there is
// now.
func TestPatchesOfOneVersion(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)
	e.Create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "open"}, Data: map[string]string{"k": "machine: {}"},
	})
	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{{Kind: v1alpha1.ConfigPatchFromConfigMap, Name: "open", Key: "k"}}
	})

	now, err := patchsource.For(t.Context(), e.Admin, cp, nil, e.talosMachine(0))
	if err != nil {
		t.Fatal(err)
	}

	noticed := func(m *v1alpha1.TalosMachine) {
		pending(m)
		m.Status.PatchesVersion = now.Version
	}

	e.show(cp, 0, noticed)
	e.show(cp, 1, noticed)
	e.show(cp, 2, func(m *v1alpha1.TalosMachine) { m.Status.PatchesVersion = "older" })
	e.step(cp)

	if got := e.granted(3); got != "" || !strings.Contains(cp.Status.Plan.Message, "waiting for cp-2") {
		t.Errorf("%q may begin: %+v", got, cp.Status.Plan)
	}

	e.show(cp, 2, noticed)
	e.step(cp)

	if got := e.granted(3); got != "cp-1" {
		t.Errorf("%q may begin: %+v", got, cp.Status.Plan)
	}
}
