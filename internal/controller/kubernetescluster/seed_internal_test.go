package kubernetescluster

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// TestSeedFields: each parameter that the document of KubernetesCluster prints reaches the objects below it.
func TestSeedFields(t *testing.T) {
	text, err := os.ReadFile("../../app/testdata/seeds/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}

	c := &vitistackv1alpha1.KubernetesCluster{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		t.Fatal(err)
	}

	yes := true
	options := v1alpha1.NodeOptions{
		Install: &v1alpha1.InstallOptions{
			Disk: "/dev/sdb", Image: "ghcr.io/siderolabs/installer:v1.5.5", Bootloader: &yes, Wipe: &yes,
			ExtraKernelArgs: []string{"console=ttyS0"},
		},
		Kubelet: &v1alpha1.KubeletOptions{
			Image: "registry.example.org/kubelet:v1.28.3", ExtraArgs: map[string]string{"max-pods": "200"},
		},
	}

	// The networks are in two fields of the document; each one alone has to do.
	for name, change := range map[string]func(){
		"both": func() {},
		"top": func() {
			n := c.Spec.TalosConfig.Cluster.Network
			n.PodSubnets, n.ServiceSubnets = nil, nil
		},
		"talosConfig": func() { c.Spec.PodSubnets, c.Spec.ServiceSubnets, c.Spec.ClusterEndpoint = nil, nil, "" },
	} {
		before := c.DeepCopy()

		change()

		top := newTopology(c)
		plane := top.controlPlane().Spec

		want := v1alpha1.TalosControlPlaneSpec{
			ClusterName: "prod-cluster", TalosVersion: "v1.5.5", KubernetesVersion: "v1.28.3",
			Endpoint: "https://192.168.1.100:6443", CertSANs: []string{"api.example.org"},
			Network: v1alpha1.ClusterNetwork{
				PodSubnets: []string{"10.245.0.0/16"}, ServiceSubnets: []string{"10.97.0.0/16"}, DNSDomain: "prod.example.org",
			},
			BootstrapSecretsRef: &v1alpha1.ObjectReference{Name: "prod-cluster-bootstrap-secrets"},
			DeletionPolicy:      v1alpha1.DeletionPreserve, NodeOptions: options, Machines: plane.Machines,
		}
		if diff := cmp.Diff(want, plane); diff != "" || len(plane.Machines) != 3 {
			t.Errorf("%s: control plane (-want +got):\n%s", name, diff)
		}

		if groups := top.workers(); len(groups) != 1 || len(groups[0].Spec.Machines) != 2 ||
			!cmp.Equal(groups[0].Spec.NodeOptions, options) {
			t.Errorf("%s: workers %+v", name, groups)
		}

		for _, m := range top.machines() {
			settings := &vitistackv1alpha1.MachineTalosSettings{
				MachineType:     m.Labels[vitistackv1alpha1.RoleLabel],
				ClusterEndpoint: "https://192.168.1.100:6443", InstallDisk: "/dev/sdb",
			}
			if diff := cmp.Diff(settings, m.Spec.TalosConfig); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, m.Name, diff)
			}
		}

		c = before
	}
}
