package machineconfig_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

var contracts = []struct{ talos, kubernetes string }{
	{"v1.10.9", "v1.33.5"}, {"v1.11.6", "v1.34.3"}, {"v1.12.4", "v1.35.1"}, {"v1.13.9", "v1.36.2"},
}

func TestRenderGolden(t *testing.T) {
	t.Parallel()

	for _, versions := range contracts {
		for _, role := range []machineconfig.Role{machineconfig.ControlPlane, machineconfig.Worker} {
			for name, input := range map[string]machineconfig.Input{
				"plain": plainInput(t, role), "full": fullInput(t, role),
			} {
				minor := versions.talos[:strings.LastIndex(versions.talos, ".")]

				t.Run(minor+"/"+string(role)+"/"+name, func(t *testing.T) {
					t.Parallel()

					in := input
					in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes

					out := render(t, in)
					golden(t, fmt.Sprintf("%s-%s-%s.yaml", minor, role, name), out.Bytes)
					judge(t, out.Bytes)
				})
			}
		}
	}
}

// judge lets Talos itself read and validate a config.
func judge(t *testing.T, config []byte) {
	t.Helper()

	cfg, err := configloader.NewFromBytes(config)
	if err != nil {
		t.Fatalf("Talos cannot read the config: %v", err)
	}

	if _, err := cfg.Validate(metal{}); err != nil {
		t.Fatalf("Talos refuses the config: %v", err)
	}

	if _, err := cfg.Validate(metal{}, validation.WithStrict()); err != nil {
		t.Logf("strict: %v", err)
	}
}

func TestRenderMeansWhatWasAsked(t *testing.T) {
	t.Parallel()

	for _, versions := range contracts {
		t.Run(versions.talos, func(t *testing.T) {
			t.Parallel()

			in := fullInput(t, machineconfig.ControlPlane)
			in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes

			cfg, err := configloader.NewFromBytes(render(t, in).Bytes)
			if err != nil {
				t.Fatal(err)
			}

			// Asked through Talos's own interfaces, which hide where a version keeps a setting.
			got := map[string]any{
				"hostname":   cfg.NetworkHostnameConfig().Hostname(),
				"kubelet":    cfg.Machine().Kubelet().Image(),
				"apiserver":  cfg.Cluster().APIServer().Image(),
				"disk":       cfg.Machine().Install().Disk(),
				"wipe":       cfg.Machine().Install().Zero(),
				"image":      cfg.Machine().Install().Image(),
				"kernelArgs": cfg.Machine().Install().ExtraKernelArgs(),
				"resolvers":  fmt.Sprint(cfg.NetworkResolverConfig().Resolvers()),
				"mirror":     cfg.RegistryMirrorConfigs()["docker.io"].Endpoints()[0].Endpoint(),
				"password":   cfg.RegistryAuthConfigs()["mirror.example.org"].Password(),
				"insecure":   cfg.RegistryTLSConfigs()["mirror.example.org"].InsecureSkipVerify(),
				"pods":       cfg.Cluster().Network().PodCIDRs(),
				"services":   cfg.Cluster().Network().ServiceCIDRs(),
				"domain":     cfg.Cluster().Network().DNSDomain(),
				"cni":        cfg.Cluster().Network().CNI().Name(),
				"schedule":   cfg.Cluster().ScheduleOnControlPlanes(),
				"taint":      cfg.Machine().NodeTaints()["example.org/gpu"],
				"label":      cfg.Machine().NodeLabels()["example.org/slot"],
				"sysctls":    len(cfg.Machine().Sysctls()),
				"rp_filter":  cfg.Machine().Sysctls()["net/ipv4/conf/eth0.100/rp_filter"],
				"governor":   cfg.Machine().Sysfs()["devices.system.cpu.cpu0.cpufreq.scaling_governor"],
				"modules":    cfg.Machine().Kernel().Modules()[0].Name() + " " + cfg.Machine().Kernel().Modules()[1].Name(),
				"parameters": cfg.Machine().Kernel().Modules()[1].Parameters(),
				"sans":       slices.Contains(cfg.Machine().Security().CertSANs(), "api.example.org"),
			}

			want := map[string]any{
				"hostname": "prod-cp-0", "kubelet": "registry.example.org:5000/kubelet:" + versions.kubernetes,
				"apiserver": "registry.k8s.io/kube-apiserver:" + versions.kubernetes, "disk": "/dev/nvme0n1", "wipe": true,
				"image": "registry.example.org/installer:v1.13.9", "kernelArgs": []string{"console=ttyS0", "net.ifnames=0"},
				"resolvers": "[10.0.0.2 fd00::2]", "mirror": "https://mirror.example.org",
				"password": "registry-password-4711", "insecure": true,
				"pods":     []string{"10.50.0.0/16", "fd00:50::/56"},
				"services": []string{"10.60.0.0/16", "fd00:60::/112"}, "domain": "prod.example.org", "cni": "custom",
				"schedule": true, "taint": "a100:NoSchedule", "label": "3", "sysctls": 4, "sans": true,
				"rp_filter": "2", "governor": "performance", "modules": "br_netfilter drbd",
				"parameters": []string{"usermode_helper=disabled"},
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRenderWorkerHoldsNoKeys(t *testing.T) {
	t.Parallel()

	for _, versions := range contracts {
		in := plainInput(t, machineconfig.Worker)
		in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes

		out := render(t, in)
		secrets := testSecrets(t)

		for _, key := range [][]byte{
			secrets.Certs.OS.Key, secrets.Certs.K8s.Key, secrets.Certs.Etcd.Key, secrets.Certs.K8sAggregator.Key,
		} {
			cfg, err := configloader.NewFromBytes(out.Bytes)
			if err != nil {
				t.Fatal(err)
			}

			for _, ca := range [][]byte{cfg.Machine().Security().IssuingCA().Key, cfg.Cluster().IssuingCA().Key} {
				if len(ca) > 0 || bytes.Contains(out.Bytes, key) {
					t.Errorf("%s: the config of a worker holds a CA key", versions.talos)
				}
			}
		}
	}
}

func TestRenderKeepsAnOlderContract(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	in.Contract = "v1.11"

	out := string(render(t, in).Bytes)
	if strings.Contains(out, "HostnameConfig") {
		t.Error("a cluster made under the contract of v1.11 got a document of v1.12")
	}

	if !strings.Contains(out, "ghcr.io/siderolabs/installer:v1.13.9") {
		t.Error("the contract changed the version that is installed")
	}
}

func TestRenderRefusesInput(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(*machineconfig.Input)
		field  string
	}{
		"no secrets":    {func(in *machineconfig.Input) { in.Secrets = nil }, "Secrets"},
		"no name":       {func(in *machineconfig.Input) { in.ClusterName = "" }, "ClusterName"},
		"role":          {func(in *machineconfig.Input) { in.Role = "boss" }, "Role"},
		"no URL":        {func(in *machineconfig.Input) { in.Endpoint = "not a url" }, "Endpoint"},
		"http":          {func(in *machineconfig.Input) { in.Endpoint = "http://10.0.0.1:6443" }, "Endpoint"},
		"no port":       {func(in *machineconfig.Input) { in.Endpoint = "https://10.0.0.1" }, "Endpoint"},
		"no host":       {func(in *machineconfig.Input) { in.Endpoint = "https://:6443" }, "Endpoint"},
		"Talos version": {func(in *machineconfig.Input) { in.TalosVersion = "new" }, "TalosVersion"},
		"no Kubernetes": {func(in *machineconfig.Input) { in.KubernetesVersion = "" }, "KubernetesVersion"},
		"nameserver":    {func(in *machineconfig.Input) { in.Machine.Nameservers = []string{"x"} }, "network.nameservers[0]"},
		"size": {func(in *machineconfig.Input) {
			in.Install = machineconfig.Install{Selector: machineconfig.DiskSelector{MinSize: "big"}}
		}, "Install.Selector"},
		"nameless": {
			func(in *machineconfig.Input) { in.Machine.Interfaces = []v1alpha1.NetworkInterface{{}} },
			"network.interfaces[0]",
		},
		"mirror": {func(in *machineconfig.Input) {
			in.Registries = &v1alpha1.Registries{Mirrors: []v1alpha1.RegistryMirror{{Registry: "a", Endpoints: []string{"b"}}}}
		}, "registries.mirrors[a].endpoints[0]"},
		"two taints": {func(in *machineconfig.Input) {
			in.NodeTaints = []machineconfig.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoExecute"}}
		}, "NodeTaints"},
		"address": {func(in *machineconfig.Input) {
			in.Machine.Interfaces = []v1alpha1.NetworkInterface{{Name: "eth0", Addresses: []string{"10.0.0.1"}}}
		}, "network.interfaces[0].addresses[0]"},
		"both disk ends": {func(in *machineconfig.Input) {
			in.Install = machineconfig.Install{Selector: machineconfig.DiskSelector{MinSize: "1GB", MaxSize: "2GB"}}
		}, "Install.Selector"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := plainInput(t, machineconfig.ControlPlane)
			tt.change(&in)

			_, err := machineconfig.Render(in)

			var input *machineconfig.InputError
			if !errors.As(err, &input) {
				t.Fatalf("got %v, want an InputError", err)
			}

			if input.Field != tt.field {
				t.Errorf("field %q, want %q", input.Field, tt.field)
			}

			mustNotLeak(t, err.Error())
		})
	}
}

func TestRenderMayLeaveTheDiskToTheNode(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	in.Install = machineconfig.Install{
		Selector: machineconfig.DiskSelector{MinSize: "100GB", Type: "nvme", Model: "Samsung*"},
	}

	cfg, err := configloader.NewFromBytes(render(t, in).Bytes)
	if err != nil {
		t.Fatal(err)
	}

	expression, err := cfg.Machine().Install().DiskMatchExpression()
	if err != nil || expression == nil {
		t.Fatalf("the selector is lost: %v", err)
	}
}

func TestRenderWithoutDiskIsInvalid(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	in.Install = machineconfig.Install{}

	_, err := machineconfig.Render(in)

	var invalid *machineconfig.InvalidError
	if !errors.As(err, &invalid) || invalid.Patch != "" {
		t.Fatalf("got %v, want an InvalidError without a patch", err)
	}
}

func TestRenderWarnsOfKernelArgs(t *testing.T) {
	t.Parallel()

	warnings := strings.Join(render(t, fullInput(t, machineconfig.Worker)).Warnings, "\n")
	if !strings.Contains(warnings, "extraKernelArgs") {
		t.Errorf("no word of extraKernelArgs in %q", warnings)
	}
}

// TestRenderIsDeterministic: same input, same bytes, whatever order maps come in.
func TestRenderIsDeterministic(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(r *rapid.T) {
		roles := []machineconfig.Role{machineconfig.ControlPlane, machineconfig.Worker}
		in := fullInput(t, rapid.SampledFrom(roles).Draw(r, "role"))
		versions := rapid.SampledFrom(contracts).Draw(r, "versions")
		in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes

		label := rapid.StringMatching(`[a-z][a-z0-9]{0,10}`)
		in.NodeLabels = rapid.MapOfN(label, label, 0, 8).Draw(r, "labels")
		in.Kubelet.ExtraArgs = rapid.MapOfN(label, label, 0, 8).Draw(r, "args")

		first, err := machineconfig.Render(in)
		if err != nil {
			r.Fatal(err)
		}

		second, err := machineconfig.Render(in)
		if err != nil {
			r.Fatal(err)
		}

		if !bytes.Equal(first.Bytes, second.Bytes) || first.Hash != second.Hash {
			r.Fatal("two renders of one input differ")
		}

		diff, err := machineconfig.Diff(first.Bytes, second.Bytes)
		if err != nil || !diff.Equal() {
			r.Fatalf("a config differs from itself: %v %v", diff.Paths(), err)
		}
	})
}
