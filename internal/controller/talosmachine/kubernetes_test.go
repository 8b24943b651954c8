package talosmachine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// kubelet asks for kubelets of a version, as a control plane does once each other component runs it.
func (e *env) kubelet(version string) {
	e.Helper()
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.KubernetesVersion = version
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic}
	})

	cp := &v1alpha1.TalosControlPlane{}
	e.Get(cp, cluster)
	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{
		ObservedGeneration: cp.Generation, TargetKubernetes: version, KubernetesVersion: version, KubernetesBegun: version,
		Components: []v1alpha1.KubernetesComponent{v1alpha1.ComponentKubelet},
	}

	if err := e.Admin.Status().Update(e.Context(), cp); err != nil {
		e.Fatal(err)
	}
}

// TestKubernetesAfterWindow: a kubelet whose image is pulled for longer than the maintenance window is not replaced
// outside of it.
func TestKubernetesAfterWindow(t *testing.T) {
	const next = "v1.36.3"

	e := found(t, 1, 1)
	at := e.Clock.Now().UTC()

	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Rollout.RebootPolicy = v1alpha1.RebootWindow
		cp.Spec.Rollout.Windows = []v1alpha1.MaintenanceWindow{{
			Schedule: fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour()), Duration: metav1.Duration{Duration: time.Hour},
		}}
	})

	e.kubelet(next)

	c := e.planned("w-0")
	if c.Kind != v1alpha1.ChangeKubernetes || !strings.HasSuffix(c.Image, ":"+next) {
		t.Fatalf("planned: %+v", c)
	}

	e.grant("w-0", false)
	e.until("w-0", "it pulls", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Intent != nil && m.Status.Intent.Step == v1alpha1.StepPull
	})
	e.sleep(2 * time.Hour)

	m := e.until("w-0", "it waits for another window", func(m *v1alpha1.TalosMachine) bool {
		return strings.Contains(m.Status.Change.Message, "waiting for the next maintenance window")
	})
	if m.Status.Change.ID == c.ID || m.Status.Change.Phase != v1alpha1.ChangePending || e.runs("w-0", next) {
		t.Error(show(m))
	}
}
