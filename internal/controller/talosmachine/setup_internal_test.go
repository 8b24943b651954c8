package talosmachine

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestControlPlaneFirst: machines of the control plane are reconciled before workers, each in the order of the list.
func TestControlPlaneFirst(t *testing.T) {
	var machines []v1alpha1.TalosMachine

	for _, name := range []string{"w-0", "cp-1", "w-1", "cp-0", "w-2"} {
		m := v1alpha1.TalosMachine{}
		m.Namespace, m.Name = "clusters", name

		if name[0] == 'w' {
			m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "workers"}
		}

		machines = append(machines, m)
	}

	var got []string
	for _, r := range controlPlaneFirst(machines) {
		got = append(got, r.String())
	}

	want := []string{"clusters/cp-1", "clusters/cp-0", "clusters/w-0", "clusters/w-1", "clusters/w-2"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestTold: a component of Kubernetes that workers do not have wakes the control-plane machines alone; everything else
// that an upgrade says wakes both.
func TestTold(t *testing.T) {
	at := func(components ...v1alpha1.KubernetesComponent) *v1alpha1.UpgradeStatus {
		return &v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2", ObservedGeneration: 1, Components: components}
	}
	api, kubelet := at(v1alpha1.ComponentAPIServer), at(v1alpha1.ComponentAPIServer, v1alpha1.ComponentKubelet)
	replanned := at(v1alpha1.ComponentAPIServer)
	replanned.ObservedGeneration = 2

	for name, c := range map[string]struct {
		before, after         *v1alpha1.UpgradeStatus
		controlPlane, workers bool
	}{
		"nothing":            {api, api, false, false},
		"it begins":          {nil, api, true, true},
		"the next component": {api, at(v1alpha1.ComponentAPIServer, v1alpha1.ComponentScheduler), true, false},
		"kubelets":           {api, kubelet, true, true},
		"the next version":   {kubelet, api, true, true},
		"another spec":       {api, replanned, true, true},
		"it ends":            {kubelet, nil, true, true},
		"another Talos":      {nil, &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9"}, true, true},
	} {
		before, after := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosControlPlane{}
		before.Status.Upgrade, after.Status.Upgrade = c.before, c.after
		e := event.UpdateEvent{ObjectOld: before, ObjectNew: after}

		if got := told(false).Update(e); got != c.controlPlane {
			t.Errorf("%s: control-plane machines: %t", name, got)
		}

		if got := told(true).Update(e); got != c.workers {
			t.Errorf("%s: workers: %t", name, got)
		}
	}
}
