package desired_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fullCluster returns the sources of each machine of examples/full-cluster.yaml, created with other versions.
func fullCluster(t *testing.T, talos, kubernetes string) map[string]desired.Sources {
	t.Helper()

	manifests, err := os.ReadFile("../../../examples/full-cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}

	first, second, ok := strings.Cut(string(manifests), "\n---\n")
	cp, workers := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}

	for doc, into := range map[string]any{first: cp, second: workers} {
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil || !ok {
			t.Fatal(err)
		}
	}

	cp.Spec.TalosVersion, cp.Spec.KubernetesVersion = talos, kubernetes
	state := &clusterstate.State{Bundle: sourcesOf(t).State.Bundle, BundleConfig: desired.BundleConfig(cp)}
	out := map[string]desired.Sources{}

	add := func(group *v1alpha1.TalosWorker, role v1alpha1.Role, entries []v1alpha1.MachineEntry) {
		for _, e := range entries {
			out[e.Name] = desired.Sources{
				ControlPlane: cp, Worker: group, State: state,
				Machine: &v1alpha1.TalosMachine{
					ObjectMeta: metav1.ObjectMeta{Name: e.Name},
					Spec: v1alpha1.TalosMachineSpec{
						Role: role, Address: e.Address, Network: e.Network, NodeOptions: e.NodeOptions,
					},
					Status: v1alpha1.TalosMachineStatus{InstallDisk: "/dev/sda"},
				},
			}
		}
	}

	add(nil, v1alpha1.RoleControlPlane, cp.Spec.Machines)
	add(workers, v1alpha1.RoleWorker, workers.Spec.Machines)

	return out
}

// ofMachine returns what of a config is about the machine alone, and without its installer, which has the version.
func ofMachine(t *testing.T, config []byte) string {
	t.Helper()

	var out strings.Builder

	for part := range strings.SplitSeq(string(config), "---\n") {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(part), &doc); err != nil {
			t.Fatal(err)
		}

		if main, ok := doc["machine"].(map[string]any); ok {
			kept := map[string]any{}

			for _, key := range []string{"network", "time", "pods", "systemDiskEncryption", "disks"} {
				if value, ok := main[key]; ok {
					kept[key] = value
				}
			}

			raw, err := yaml.Marshal(map[string]any{"machine": kept})
			if err != nil {
				t.Fatal(err)
			}

			part = string(raw)
		}

		out.WriteString("---\n" + part)
	}

	return out.String()
}

// metal is the platform on which Talos judges a config.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// TestFullClusterOfBefore: the cluster of the example, created with Talos 1.11, has its network, KubeSpan and virtual IP
// in the fields of that time, as Talos accepts them. An upgrade to a Talos that has documents for them leaves them there.
func TestFullClusterOfBefore(t *testing.T) {
	machines := fullCluster(t, "v1.11.6", "v1.34.3")
	if len(machines) != 5 {
		t.Fatalf("%d machines", len(machines))
	}

	for name, s := range machines {
		rendered, err := desired.Render(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		config, err := configloader.NewFromBytes(rendered.Bytes)
		if err != nil {
			t.Fatalf("%s: Talos cannot read the config: %v", name, err)
		}

		if _, err := config.Validate(metal{}); err != nil {
			t.Fatalf("%s: Talos refuses the config: %v", name, err)
		}

		got, golden := ofMachine(t, rendered.Bytes), filepath.Join("testdata", name+"-v1.11.yaml")

		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", golden, diff)
		}

		upgraded := s
		upgraded.ControlPlane = s.ControlPlane.DeepCopy()
		upgraded.ControlPlane.Spec.TalosVersion = "v1.13.9"

		later, err := desired.Render(upgraded)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if diff := cmp.Diff(got, ofMachine(t, later.Bytes)); diff != "" {
			t.Errorf("%s, upgraded (-before +after):\n%s", name, diff)
		}

		if image, err := machineconfig.InstallImage(later.Bytes); err != nil || !strings.HasSuffix(image, ":v1.13.9") {
			t.Errorf("%s, upgraded, is installed by %s: %v", name, image, err)
		}
	}
}
