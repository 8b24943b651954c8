package machineconfig_test

import (
	"os"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	kyaml "sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

func servicesOf(t *testing.T, text string) []v1alpha1.ExtensionService {
	t.Helper()

	var services []v1alpha1.ExtensionService
	if err := kyaml.UnmarshalStrict([]byte(text), &services); err != nil {
		t.Fatal(err)
	}

	return services
}

// documentsOf returns the documents of a kind in a config.
func documentsOf(config []byte, kind string) []byte {
	var out []string

	// A certificate has lines that end like the one between two documents.
	for part := range strings.SplitSeq(string(config), "\n---\n") {
		if part = strings.TrimSuffix(part, "\n") + "\n"; strings.Contains(part, "kind: "+kind+"\n") {
			out = append(out, part)
		}
	}

	return []byte(strings.Join(out, "---\n"))
}

// TestExtensionServices: each service is one document in both generations of Talos, which its machinery accepts, reads back
// as it was meant, and which a patch completes.
func TestExtensionServices(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("testdata/services/extension-services.yaml")
	if err != nil {
		t.Fatal(err)
	}

	for generation, version := range versions() {
		in := plainInput(t, machineconfig.Worker)
		in.TalosVersion, in.ExtensionServices = version, servicesOf(t, string(text))
		in.Patches.Machine = []string{"apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: tailscale\n" +
			"configFiles: [{mountPath: /etc/extra, content: patched}]\n"}

		config := render(t, in).Bytes
		judge(t, config)
		golden(t, "extension-services-"+generation+".yaml", documentsOf(config, "ExtensionServiceConfig"))

		cfg, err := configloader.NewFromBytes(config)
		if err != nil {
			t.Fatal(err)
		}

		read := cfg.ExtensionServiceConfigs()
		if len(read) != 2 || read[0].Name() != "nut-client" || len(read[0].ConfigFiles()) != 2 ||
			read[1].Environment()[0] != "TS_HOSTNAME=rack-7" || read[1].ConfigFiles()[0].Content() != "patched" {
			t.Errorf("%s: the machinery reads %v", generation, read)
		}
	}
}

// TestExtensionServiceRefusals: what a service would not get as it was meant is refused with the path of the field.
func TestExtensionServiceRefusals(t *testing.T) {
	t.Parallel()

	const files = "[{name: a, configFiles: "

	for name, tt := range map[string]struct{ services, field, problem string }{
		"twice":       {"[{name: a, environment: [{name: B}]}, {name: a, environment: [{name: B}]}]", "extensionServices[a]", "listed twice"},
		"prefix":      {"[{name: ext-a, environment: [{name: B}]}]", "extensionServices[ext-a].name", "write a"},
		"name":        {"[{name: A b, environment: [{name: B}]}]", "extensionServices[A b].name", "lower-case"},
		"nothing":     {"[{name: a}]", "extensionServices[a]", "configFiles, environment, or both"},
		"relative":    {files + "[{mountPath: etc/a, content: x}]}]", "extensionServices[a].configFiles[etc/a].mountPath", "absolute"},
		"root":        {files + "[{mountPath: /, content: x}]}]", "extensionServices[a].configFiles[/].mountPath", "directory"},
		"dots":        {files + "[{mountPath: /etc/../a, content: x}]}]", "extensionServices[a].configFiles[/etc/../a].mountPath", "write /a"},
		"same path":   {files + "[{mountPath: /a, content: x}, {mountPath: /a, content: y}]}]", "extensionServices[a].configFiles[/a].mountPath", "two files"},
		"same file":   {files + "[{mountPath: /a/b, content: x}, {mountPath: /a-b, content: y}]}]", "extensionServices[a].configFiles[/a-b].mountPath", "conflicts with /a/b"},
		"empty file":  {files + "[{mountPath: /a}]}]", "extensionServices[a].configFiles[/a].content", "no empty file"},
		"large file":  {files + "[{mountPath: /a, content: " + strings.Repeat("ä", 40000) + "}]}]", "extensionServices[a].configFiles[/a].content", "65536"},
		"variable":    {"[{name: a, environment: [{name: 1B}]}]", "extensionServices[a].environment[1B].name", "no digit first"},
		"same":        {"[{name: a, environment: [{name: B}, {name: B}]}]", "extensionServices[a].environment[B]", "listed twice"},
		"two lines":   {`[{name: a, environment: [{name: B, value: "hunter2hunter2\nC=1"}]}]`, "extensionServices[a].environment[B].value", "more than one line"},
		"no variable": {"[{name: a, environment: [{value: x}]}]", "extensionServices[a].environment[].name", "not the name"},
	} {
		in := plainInput(t, machineconfig.Worker)
		in.ExtensionServices = servicesOf(t, tt.services)
		refused(t, name, in, tt.field, tt.problem)

		_, err := machineconfig.Render(in)
		mustNotLeak(t, err.Error())
	}
}

// TestExtensionServicesAreHidden: what services read shows in no difference.
func TestExtensionServicesAreHidden(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	before := render(t, in).Bytes
	in.ExtensionServices = servicesOf(t, "[{name: a, configFiles: [{mountPath: /a, content: hunter2hunter2}], "+
		"environment: [{name: B, value: hunter2hunter2}]}]")

	diff, err := machineconfig.Diff(before, render(t, in).Bytes)
	if err != nil || len(diff.Changes) != 1 || diff.Changes[0].Document != "ExtensionServiceConfig/a" {
		t.Fatalf("%+v, %v", diff, err)
	}

	for _, c := range diff.Changes[0].Content {
		mustNotLeak(t, c.Old+c.New)
	}
}
