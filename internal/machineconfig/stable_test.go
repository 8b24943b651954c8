package machineconfig_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// optionalFields are those of the input that a machine may have or not.
var optionalFields = []string{
	"CertSANs", "Network", "AllowSchedulingOnControlPlanes", "Install", "Kubelet", "Registries", "NodeLabels",
	"NodeAnnotations", "NodeTaints", "ExtensionServices", "StaticPods", "Kernel", "System", "Volumes", "Machine", "KubeSpan",
	"Discovery", "KubePrism", "Patches",
}

// everyInput has all optional fields, without a firewall, which depends on other machines.
func everyInput(t *testing.T, role machineconfig.Role) machineconfig.Input {
	t.Helper()

	sample := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}

		return string(text)
	}

	in, cluster := fullInput(t, role), inCluster(t, role, sample("cluster/kubespan"))
	in.KubeSpan, in.Discovery, in.KubePrism = cluster.KubeSpan, cluster.Discovery, cluster.KubePrism
	in.ExtensionServices = servicesOf(t, sample("services/extension-services"))
	in.StaticPods = podsOf(t, sample("services/static-pods"))
	in.Volumes = volumesOf(t, sample("services/volumes-v1.10"))
	in.System = systemOf(t, allSettings)

	if role == machineconfig.Worker { // only control planes have it
		in.System.Features.KubernetesTalosAPIAccess = nil
	}

	in.Machine.SharedNetwork = networkOf(t, sample("network/names")).SharedNetwork
	in.Values = maps.Clone(in.Values)
	maps.Copy(in.Values, systemValues(t, in.System))

	return in
}

// TestRenderedBytesAreStable: whatever typed fields a machine has, its config is the same byte by byte after the machinery
// has read and written it, in any version. So a node that runs it has nothing to change.
func TestRenderedBytesAreStable(t *testing.T) {
	t.Parallel()

	roles := []machineconfig.Role{machineconfig.ControlPlane, machineconfig.Worker}
	plain, every := map[machineconfig.Role]machineconfig.Input{}, map[machineconfig.Role]machineconfig.Input{}

	for _, role := range roles {
		plain[role], every[role] = plainInput(t, role), everyInput(t, role)
	}

	rapid.Check(t, func(r *rapid.T) {
		role, versions := rapid.SampledFrom(roles).Draw(r, "role"), rapid.SampledFrom(contracts).Draw(r, "versions")

		in := plain[role]
		in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
		in.Values = every[role].Values

		into, from := reflect.ValueOf(&in).Elem(), reflect.ValueOf(every[role])
		chosen := rapid.SliceOfDistinct(rapid.SampledFrom(optionalFields), rapid.ID).Draw(r, "fields")

		for _, name := range chosen {
			into.FieldByName(name).Set(from.FieldByName(name))
		}

		rendered, err := machineconfig.Render(in)
		if err != nil {
			r.Fatal(err)
		}

		cfg, err := configloader.NewFromBytes(rendered.Bytes)
		if err != nil {
			r.Fatal(err)
		}

		if _, err := cfg.Validate(metal{}); err != nil {
			r.Fatal(err)
		}

		again, err := cfg.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
		if err != nil || !slices.Equal(again, rendered.Bytes) {
			r.Fatalf("%v; written again:\n%s", err, again)
		}
	})
}
