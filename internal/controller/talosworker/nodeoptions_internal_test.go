package talosworker

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestNodeOptionsOfWorkers: what the machines of a group run beside Kubernetes is refused with its path, whether the group
// has it or a machine.
func TestNodeOptionsOfWorkers(t *testing.T) {
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
	w := &v1alpha1.TalosWorker{Spec: v1alpha1.TalosWorkerSpec{
		MachineNetwork: &v1alpha1.SharedNetwork{Nameservers: []string{"10.0.0.2", "10.0.0.256"}},
		NodeOptions:    broken, Machines: []v1alpha1.MachineEntry{{Name: "m", Address: "10.0.0.11", NodeOptions: broken}},
	}}

	err := checkSpec(w, &v1alpha1.TalosControlPlaneSpec{KubernetesVersion: "v1.36.2", TalosVersion: "v1.13.9"}, true)
	for _, want := range []string{
		`spec.nodeAnnotations["talos-operator.io/a"]: `, `spec.machines[0].nodeAnnotations["talos-operator.io/a"]: `,
		"spec.extensionServices[a]: ", "spec.machines[0].extensionServices[a]: ",
		"spec.staticPods[default/b].spec.containers: ", "spec.machines[0].staticPods[default/b].spec.containers: ",
		"spec.kernel.modules[c.ko].name: ", "spec.machines[0].kernel.modules[c.ko].name: ",
		"spec.sysctls[net.ifnames]: ", "spec.machines[0].sysctls[net.ifnames]: ",
		"spec.registries.config[f]: ", "spec.machines[0].registries.config[f]: ",
		"spec.watchdogTimer.device: ", "spec.machines[0].watchdogTimer.device: ",
		"spec.volumes.ephemeral.minSize: ", "spec.machines[0].volumes.ephemeral.minSize: ",
		"spec.machineNetwork.nameservers[1]: ",
		"spec.sysfs[/sys/d]: ", "spec.machines[0].sysfs[/sys/d]: ",
		"spec.ingressFirewall.rules[0].ports: ", "spec.machines[0].ingressFirewall.rules[0].ports: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPortOfKubePrism: a static pod of a worker cannot have the port of KubePrism in its cluster. Which one that is, is not
// known before the control plane exists.
func TestPortOfKubePrism(t *testing.T) {
	pod := v1alpha1.NodeOptions{StaticPods: []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":` +
		`{"name":"a"},"spec":{"containers":[{"name":"b","image":"c","ports":[{"containerPort":1,"hostPort":7446}]}]}}`)}}}
	w := &v1alpha1.TalosWorker{Spec: v1alpha1.TalosWorkerSpec{
		NodeOptions: pod, Machines: []v1alpha1.MachineEntry{{Name: "m", Address: "10.0.0.11", NodeOptions: pod}},
	}}
	cp := &v1alpha1.TalosControlPlaneSpec{KubernetesVersion: "v1.36.2", TalosVersion: "v1.13.9"}

	for name, spec := range map[string]*v1alpha1.TalosControlPlaneSpec{"unknown": {}, "default": cp} {
		if err := checkSpec(w, spec, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	cp.KubePrism = &v1alpha1.KubePrism{Port: 7446}

	err := checkSpec(w, cp, false)
	for _, want := range []string{
		"spec.staticPods[default/a].spec.containers[0].ports[0]: ", "spec.machines[0].staticPods[default/a].spec.containers[0].ports[0]: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}

	// An unknown port is none.
	w.Spec.StaticPods[0].Raw = bytes.ReplaceAll(w.Spec.StaticPods[0].Raw, []byte("7446"), []byte("7445"))
	if err := checkSpec(w, &v1alpha1.TalosControlPlaneSpec{}, false); err != nil {
		t.Errorf("without a control plane: %v", err)
	}
}
