package kubernetescluster

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestPortOfKubePrism: a static pod of a template cannot have the port of KubePrism in its cluster.
func TestPortOfKubePrism(t *testing.T) {
	pod := runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":` +
		`[{"name":"b","image":"c","ports":[{"containerPort":1,"hostPort":7446}]}]}}`)}

	c := &vitistackv1alpha1.KubernetesCluster{}
	c.Name = "c"
	c.Spec.TalosVersion, c.Spec.KubernetesVersion, c.Spec.ClusterEndpoint = "v1.13.9", "v1.36.2", "https://10.0.0.10:6443"
	c.Spec.ControlPlane.Replicas = 1
	c.Spec.ControlPlane.MachineTemplate.Spec.StaticPods = []runtime.RawExtension{pod}
	c.Spec.Workers = []vitistackv1alpha1.WorkerGroup{{Name: "web", Replicas: 1}}
	c.Spec.Workers[0].MachineTemplate.Spec.StaticPods = []runtime.RawExtension{pod}

	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	if err := newTopology(c).check(now); err != nil {
		t.Errorf("with the default: %v", err)
	}

	c.Spec.TalosConfig = &vitistackv1alpha1.TalosConfig{
		Cluster: &vitistackv1alpha1.ClusterTalosConfig{KubePrism: &v1alpha1.KubePrism{Port: 7446}},
	}

	err := newTopology(c).check(now)
	for _, at := range []string{"spec.controlPlane", "spec.workers[0]"} {
		want := at + ".machineTemplate.spec.staticPods[default/a].spec.containers[0].ports[0]: "
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
