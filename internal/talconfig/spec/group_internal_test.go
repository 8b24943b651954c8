package spec

import (
	"fmt"
	"testing"

	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talconfig"
)

// TestManyWorkers: a group has at most 600 machines.
func TestManyWorkers(t *testing.T) {
	machine := &talosv1alpha1.MachineConfig{MachineInstall: &talosv1alpha1.InstallConfig{InstallDisk: "/dev/sda"}}
	b := &builder{
		Options: Options{Name: "prod"}, fleet: &talconfig.Fleet{},
		out: &Cluster{ControlPlane: &v1alpha1.TalosControlPlane{Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://10.0.0.10:6443",
		}}},
	}

	for i := range 602 {
		m := &talconfig.Machine{Node: talconfig.Node{
			Hostname: fmt.Sprintf("n-%d", i), IPAddress: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), ControlPlane: i == 0,
		}}
		b.nodes = append(b.nodes, &node{
			Machine: m, name: m.Hostname, settings: settings{main: &talosv1alpha1.Config{MachineConfig: machine}},
		})
	}

	if err := b.group(); err != nil {
		t.Fatal(err)
	}

	groups := b.out.Workers
	if len(groups) != 2 || len(groups[0].Spec.Machines) != 600 || len(groups[1].Spec.Machines) != 1 ||
		groups[1].Name != "prod-workers-2" || groups[0].Spec.Install.Disk != "/dev/sda" {
		t.Errorf("%d groups of workers", len(groups))
	}
}
