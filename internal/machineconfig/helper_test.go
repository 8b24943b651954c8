package machineconfig_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/kernel"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

var update = flag.Bool("update", false, "write the golden files anew")

func testSecrets(tb testing.TB) *secrets.Bundle {
	tb.Helper()

	bundle, err := secrets.LoadBundle(filepath.Join("testdata", "secrets.yaml"))
	if err != nil {
		tb.Fatal(err)
	}

	return bundle
}

// plainInput is the least that a config can be made from.
func plainInput(tb testing.TB, role machineconfig.Role) machineconfig.Input {
	tb.Helper()

	return machineconfig.Input{
		ClusterName:       "prod",
		Endpoint:          "https://10.0.0.10:6443",
		TalosVersion:      "v1.13.9",
		KubernetesVersion: "v1.36.2",
		Secrets:           testSecrets(tb),
		Role:              role,
		Install:           machineconfig.Install{Disk: "/dev/sda"},
	}
}

const (
	userField     = "registries.config[mirror.example.org].auth.usernameFrom"
	passwordField = "registries.config[mirror.example.org].auth.passwordFrom"
)

// fullInput uses every field.
func fullInput(tb testing.TB, role machineconfig.Role) machineconfig.Input {
	tb.Helper()

	bootloader := true

	in := plainInput(tb, role)
	in.CertSANs = []string{"api.example.org", "10.0.0.10"}
	in.Network = machineconfig.ClusterNetwork{
		PodSubnets:     []string{"10.50.0.0/16", "fd00:50::/56"},
		ServiceSubnets: []string{"10.60.0.0/16", "fd00:60::/112"},
		DNSDomain:      "prod.example.org",
		CNI:            machineconfig.CNI{Name: "custom", URLs: []string{"https://example.org/cni.yaml"}},
	}
	in.AllowSchedulingOnControlPlanes = true
	in.Install = machineconfig.Install{
		Disk: "/dev/nvme0n1", Image: "registry.example.org/installer:v1.13.9", Wipe: true, Bootloader: &bootloader,
		ExtraKernelArgs: []string{"console=ttyS0", "net.ifnames=0"},
	}
	in.Kubelet = machineconfig.Kubelet{
		Image: "registry.example.org:5000/kubelet", ExtraArgs: map[string]string{"v": "2", "max-pods": "200"},
	}
	in.Registries = &v1alpha1.Registries{
		Mirrors: []v1alpha1.RegistryMirror{
			{Registry: "registry.k8s.io", Endpoints: []string{"https://mirror.example.org/v2/k8s"}, OverridePath: new(true)},
			{Registry: "docker.io", Endpoints: []string{"https://mirror.example.org"}, SkipFallback: new(true)},
		},
		Config: []v1alpha1.RegistryConfig{{
			Host: "mirror.example.org", TLS: &v1alpha1.RegistryTLS{InsecureSkipVerify: new(true)},
			Auth: &v1alpha1.RegistryAuth{
				UsernameFrom: &v1alpha1.SecretKeyReference{Name: "r", Key: "user"},
				PasswordFrom: &v1alpha1.SecretKeyReference{Name: "r", Key: "password"},
			},
		}},
	}
	in.Values = keyref.Values{userField: "puller", passwordField: "registry-password-4711"}
	in.NodeLabels = map[string]string{"example.org/rack": "r1"}
	in.NodeAnnotations = map[string]string{"example.org/contact": "ops"}
	in.Kernel = kernel.Settings{
		Modules: []v1alpha1.KernelModule{{Name: "br_netfilter"}, {Name: "drbd", Parameters: []string{"usermode_helper=disabled"}}},
		Sysctls: map[string]string{"vm.nr_hugepages": "1024", "net/ipv4/conf/eth0.100/rp_filter": "2"},
		Sysfs:   map[string]string{"devices.system.cpu.cpu0.cpufreq.scaling_governor": "performance"},
	}
	in.NodeTaints = []machineconfig.Taint{{Key: "example.org/gpu", Value: "a100", Effect: "NoSchedule"}}
	in.Machine = v1alpha1.MachineNetwork{
		Hostname:      "prod-cp-0",
		SharedNetwork: v1alpha1.SharedNetwork{Nameservers: []string{"10.0.0.2", "fd00::2"}},
		Interfaces: []v1alpha1.NetworkInterface{
			{
				Name: "eth0", Addresses: []string{"10.0.0.11/24", "fd00::11/64"}, MTU: 9000,
				Routes: []v1alpha1.Route{{Gateway: "10.0.0.1"}, {Network: "192.168.0.0/16", Gateway: "10.0.0.9"}},
			},
			{MACAddress: "00:1A:2b:3c:4d:5e", DHCP: new(true)},
		},
	}
	in.Patches = machineconfig.Patches{
		Cluster: []string{"machine:\n  sysctls:\n    vm.max_map_count: \"262144\"\n"},
		Group:   []string{"machine:\n  sysctls:\n    net.core.somaxconn: \"4096\"\n"},
		Machine: []string{"machine:\n  nodeLabels:\n    example.org/slot: \"3\"\n"},
	}

	return in
}

func render(tb testing.TB, in machineconfig.Input) *machineconfig.Rendered {
	tb.Helper()

	out, err := machineconfig.Render(in)
	if err != nil {
		tb.Fatalf("rendering: %v", err)
	}

	return out
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()

	path := filepath.Join("testdata", "golden", name)

	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}

		return
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("differs from %s (-want +got):\n%s", path, diff)
	}
}

// secretValues are texts that no error, warning or difference may hold.
func secretValues(tb testing.TB) []string {
	tb.Helper()

	b := testSecrets(tb)
	values := []string{
		b.Cluster.Secret, b.Secrets.BootstrapToken, b.Secrets.SecretboxEncryptionSecret, b.TrustdInfo.Token,
		"registry-password-4711", "PRIVATE KEY", "LS0tLS1CRUdJTiB", "hunter2hunter2",
	}

	return values
}

func mustNotLeak(t *testing.T, text string) {
	t.Helper()

	for _, secret := range secretValues(t) {
		if strings.Contains(text, secret) {
			t.Errorf("%q holds the secret %q", text, secret)
		}
	}
}
