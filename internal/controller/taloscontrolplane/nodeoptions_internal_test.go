package taloscontrolplane

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// TestNodeOptionsOfControlPlanes: what the machines of a control plane run beside Kubernetes is refused with its path,
// whether the group has it or a machine.
func TestNodeOptionsOfControlPlanes(t *testing.T) {
	broken := v1alpha1.NodeOptions{
		NodeAnnotations:   map[string]string{"talos-operator.io/a": ""},
		ExtensionServices: []v1alpha1.ExtensionService{{Name: "a"}},
		StaticPods:        []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}`)}},
		Kernel:            &v1alpha1.KernelOptions{Modules: []v1alpha1.KernelModule{{Name: "c.ko"}}},
		Sysctls:           map[string]string{"net.ifnames": "0"}, Sysfs: map[string]string{"/sys/d": "1"},
		Volumes:         &v1alpha1.Volumes{Ephemeral: &v1alpha1.VolumeOptions{MinSize: "e"}},
		IngressFirewall: &v1alpha1.IngressFirewall{Rules: []v1alpha1.FirewallRule{{Name: "c"}}},
		SystemOptions:   v1alpha1.SystemOptions{WatchdogTimer: &v1alpha1.WatchdogTimer{Device: "g"}},
		Registries:      &v1alpha1.Registries{Config: []v1alpha1.RegistryConfig{{Host: "f"}}},
	}
	cp := &v1alpha1.TalosControlPlane{Spec: v1alpha1.TalosControlPlaneSpec{
		TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://10.0.0.10:6443", NodeOptions: broken,
		Machines: []v1alpha1.MachineEntry{{Name: "m", Address: "10.0.0.11", NodeOptions: broken}},
		KubeSpan: &v1alpha1.KubeSpan{Enabled: new(true)}, Discovery: &v1alpha1.Discovery{Enabled: new(false)},
		KubePrism:      &v1alpha1.KubePrism{Port: 10249},
		MachineNetwork: &v1alpha1.SharedNetwork{Hosts: []v1alpha1.StaticHost{{Address: "10.0.0.256"}}},
	}}

	err := checkSpec(cp, clusterstate.BundleConfig{}, "")
	for _, want := range []string{
		`spec.nodeAnnotations["talos-operator.io/a"]: `, `spec.machines[0].nodeAnnotations["talos-operator.io/a"]: `,
		"spec.extensionServices[a]: ", "spec.machines[0].extensionServices[a]: ",
		"spec.staticPods[default/b].spec.containers: ", "spec.machines[0].staticPods[default/b].spec.containers: ",
		"spec.kernel.modules[c.ko].name: ", "spec.machines[0].kernel.modules[c.ko].name: ",
		"spec.sysctls[net.ifnames]: ", "spec.machines[0].sysctls[net.ifnames]: ",
		"spec.registries.config[f]: ", "spec.machines[0].registries.config[f]: ",
		"spec.watchdogTimer.device: ", "spec.machines[0].watchdogTimer.device: ",
		"spec.volumes.ephemeral.minSize: ", "spec.machines[0].volumes.ephemeral.minSize: ",
		"spec.sysfs[/sys/d]: ", "spec.machines[0].sysfs[/sys/d]: ",
		"spec.ingressFirewall.rules[0].ports: ", "spec.machines[0].ingressFirewall.rules[0].ports: ", "spec.kubeSpan.enabled: ",
		"spec.kubePrism.port: ", "spec.machineNetwork.hosts[0].address: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPortOfKubePrism: a static pod of a control-plane machine cannot have the port of KubePrism in its cluster, whether the
// group has the pod or a machine.
func TestPortOfKubePrism(t *testing.T) {
	pod := v1alpha1.NodeOptions{StaticPods: []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":` +
		`{"name":"a"},"spec":{"containers":[{"name":"b","image":"c","ports":[{"containerPort":1,"hostPort":7446}]}]}}`)}}}
	cp := &v1alpha1.TalosControlPlane{Spec: v1alpha1.TalosControlPlaneSpec{
		TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://10.0.0.10:6443", NodeOptions: pod,
		Machines: []v1alpha1.MachineEntry{{Name: "m", Address: "10.0.0.11", NodeOptions: pod}},
	}}

	if err := checkSpec(cp, clusterstate.BundleConfig{}, ""); err != nil {
		t.Errorf("with the default: %v", err)
	}

	cp.Spec.KubePrism = &v1alpha1.KubePrism{Port: 7446}

	err := checkSpec(cp, clusterstate.BundleConfig{}, "")
	for _, want := range []string{
		"spec.staticPods[default/a].spec.containers[0].ports[0]: ", "spec.machines[0].staticPods[default/a].spec.containers[0].ports[0]: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestExcludedNetworksNeedTheirVersion: a control plane of a version that does not know the field is refused with its path.
func TestExcludedNetworksNeedTheirVersion(t *testing.T) {
	filters := &v1alpha1.KubeSpanFilters{ExcludeAdvertisedNetworks: []string{"10.0.0.0/8"}}
	cp := &v1alpha1.TalosControlPlane{Spec: v1alpha1.TalosControlPlaneSpec{
		TalosVersion: "v1.11.5", KubernetesVersion: "v1.34.1", Endpoint: "https://10.0.0.10:6443",
		Machines: []v1alpha1.MachineEntry{{Name: "m", Address: "10.0.0.11"}}, KubeSpan: &v1alpha1.KubeSpan{Filters: filters},
	}}

	err := checkSpec(cp, clusterstate.BundleConfig{}, "")
	if err == nil || !strings.Contains(err.Error(), "spec.kubeSpan.filters.excludeAdvertisedNetworks: ") {
		t.Errorf("got %v", err)
	}
}
