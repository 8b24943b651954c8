package machineconfig_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

func fromSecret(text string) []machineconfig.Sourced {
	return []machineconfig.Sourced{{Source: "Secret s, key k", Secret: true, Text: text}}
}

// TestHiddenFields: the fields that a patch from a Secret sets are listed, and a difference that hides them shows
// neither their old nor their new values, nor those of the items of their lists.
func TestHiddenFields(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	before := render(t, in)

	in.Patches.Cluster = []string{"machine: {sysctls: {open: shown}}"}
	in.Patches.GroupFrom = fromSecret("machine:\n  sysctls: {shut: hunter2hunter2}\n  certSANs: [hunter2hunter2]\n" +
		"---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: tcp://hunter2hunter2:1\n")
	in.Patches.Machine = []string{"machine: {certSANs: [other.example.org]}"}

	after := render(t, in)

	want := []string{"KmsgLogConfig/remote", "machine.certSANs", "machine.sysctls.shut"}
	if diff := cmp.Diff(want, after.Hidden); diff != "" || len(before.Hidden) > 0 {
		t.Errorf("hidden (-want +got):\n%s\nand %q", diff, before.Hidden)
	}

	for _, pair := range [][2]*machineconfig.Rendered{{before, after}, {after, before}} {
		d, err := machineconfig.Diff(pair[0].Bytes, pair[1].Bytes)
		if err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(fmt.Sprint(d), "hunter2hunter2") {
			t.Fatal("the test shows nothing")
		}

		d.Hide(after.Hidden)
		mustNotLeak(t, fmt.Sprint(d))

		if text := fmt.Sprint(d); !strings.Contains(text, "shown") || !strings.Contains(text, "KmsgLogConfig/remote") {
			t.Errorf("too much is hidden: %s", text)
		}
	}
}

// TestErrorsQuoteNoSecret: an error about a patch from a Secret names the Secret and its key, and nothing that it
// holds, not even what looks like the name of a field. The same for what a Secret makes of the patches of others.
func TestErrorsQuoteNoSecret(t *testing.T) {
	t.Parallel()

	const auth = "apiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: a.example.org\n"

	for name, tt := range map[string]struct {
		secret, after, patch, says string
	}{
		"no patch":         {"hunter2hunter2", "", "from Secret s, key k (group)", "is no valid patch"},
		"no YAML":          {"machine: [hunter2hunter2", "", "from Secret s, key k (group)", "is no valid patch"},
		"unknown field":    {"machine: {hunter2hunter2: 1}", "", "from Secret s, key k (group)", "may quote"},
		"unknown document": {"apiVersion: v1alpha1\nkind: hunter2hunter2\n$patch: delete\n", "", "from Secret s, key k (group)", "may quote"},
		"no such target":   {"target: {kind: LinkConfig, name: hunter2hunter2}\noperations: [{op: remove, path: /mtu}]", "", "from Secret s, key k (group)", "may quote"},
		"failed operation": {"- {op: remove, path: /machine/hunter2hunter2}", "", "from Secret s, key k (group)", "may quote"},
		"owned field":      {"machine: {token: hunter2hunter2}", "", "from Secret s, key k (group)", "changes machine.token"},
		"image":            {"machine: {kubelet: {image: 'hunter2hunter2:v1.36.2'}}", "", "from Secret s, key k (group)", "sets machine.kubelet.image"},
		"invalid":          {"machine: {install: {extraKernelArgs: [hunter2hunter2]}}", "", "from Secret s, key k (group)", "may quote"},
		"invalid document": {auth + "password: hunter2hunter2\n", auth + "identityToken: other\n", "machine[0]", "may quote"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := plainInput(t, machineconfig.ControlPlane)
			in.Patches.GroupFrom = fromSecret(tt.secret)

			if tt.after != "" {
				in.Patches.GroupFrom = fromSecret(tt.secret + "username: hunter2hunter2\n")
				in.Patches.Machine = []string{tt.after}
			}

			_, err := machineconfig.Render(in)

			var (
				refused *machineconfig.PatchError
				invalid *machineconfig.InvalidError
			)

			switch {
			case errors.As(err, &refused) && refused.Patch() == tt.patch:
			case errors.As(err, &invalid) && invalid.Patch == tt.patch:
			default:
				t.Fatalf("got %v, want an error of patch %s", err, tt.patch)
			}

			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q does not say %q", err, tt.says)
			}

			mustNotLeak(t, err.Error())
		})
	}
}

// TestProblemsWithoutTheSecret: a config that is invalid without the Secret, too, is explained.
func TestProblemsWithoutTheSecret(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.ControlPlane)
	in.Patches.Cluster = []string{"machine:\n  install:\n    extraKernelArgs: [quiet]\n"}
	in.Patches.GroupFrom = fromSecret("machine: {sysctls: {a: hunter2hunter2}}")

	_, err := machineconfig.Render(in)
	if err == nil || !strings.Contains(err.Error(), "cluster[0]") || !strings.Contains(err.Error(), "grubUseUKICmdline") {
		t.Errorf("got %v", err)
	}
}

// TestOpenPatchesCarryNoSecret: no operation of a patch that everybody may read takes a value from where it is hidden,
// or tells whether it is another one.
func TestOpenPatchesCarryNoSecret(t *testing.T) {
	t.Parallel()

	const target = "target: {kind: KmsgLogConfig, name: remote}\noperations:\n"

	for operation, refused := range map[string]bool{
		`- {op: copy, from: /machine/sysctls/shut, path: /machine/sysctls/open}`:  true,
		`- {op: move, from: /machine/sysctls, path: /machine/sysfs}`:              true,
		`- {op: copy, from: /machine/certSANs/0, path: /machine/sysctls/open}`:    true,
		`- {op: test, path: /machine/sysctls/shut, value: a}`:                     true,
		`- {op: test, path: /machine/sysctls, value: {}}`:                         true,
		`- {op: copy, from: "", path: /machine/sysfs}`:                            true,
		`- {op: copy, from: /machine/sysctls/clear, path: /machine/sysctls/open}`: false,
		`- {op: remove, path: /machine/sysctls/shut}`:                             false,
		target + `- {op: copy, from: /url, path: /name}`:                          true,
	} {
		in := plainInput(t, machineconfig.Worker)
		in.Patches.Cluster = []string{"machine: {sysctls: {clear: shown}}"}
		in.Patches.GroupFrom = fromSecret("machine:\n  sysctls: {shut: hunter2hunter2}\n  certSANs: [hunter2hunter2]\n" +
			"---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: tcp://hunter2hunter2:1\n")
		in.Patches.Machine = []string{operation}

		_, err := machineconfig.Render(in)
		if got := err != nil && strings.Contains(err.Error(), "which a Secret sets"); got != refused {
			t.Errorf("%s: %v", operation, err)
		}

		in.Patches.Machine = nil
		in.Patches.MachineFrom = fromSecret(operation)

		if _, err := machineconfig.Render(in); err != nil && strings.Contains(err.Error(), "which a Secret sets") {
			t.Errorf("%s from a Secret: %v", operation, err)
		}
	}
}

// TestMaskRemovesComments: those of a document that is unknown come from the Secret with it.
func TestMaskRemovesComments(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	in.Patches.GroupFrom = fromSecret("# hunter2hunter2\napiVersion: v1alpha1\nkind: Later\n" +
		"# hunter2hunter2\na: 1 # hunter2hunter2\n# hunter2hunter2\n")
	rendered := render(t, in)

	if !strings.Contains(string(rendered.Bytes), "hunter2hunter2") {
		t.Fatal("the test shows nothing")
	}

	masked, err := machineconfig.Mask(rendered.Bytes, rendered.Hidden)
	if err != nil || !strings.Contains(string(masked), "kind: Later") {
		t.Fatalf("%v: %s", err, masked)
	}

	mustNotLeak(t, string(masked))
}

// TestProblemsOnlyWithoutTheSecret: what the config lacks without the Secret is not what is wrong with it.
func TestProblemsOnlyWithoutTheSecret(t *testing.T) {
	t.Parallel()

	key := "apiVersion: v1alpha1\nkind: WireguardConfig\nname: wg0\nprivateKey: hunter2hunter2\n"

	in := plainInput(t, machineconfig.Worker)
	in.Patches.Cluster = []string{"apiVersion: v1alpha1\nkind: WireguardConfig\nname: wg0\naddresses: [{address: 10.1.0.1/24}]\n"}
	in.Patches.GroupFrom = fromSecret(key)

	_, err := machineconfig.Render(in)
	if err == nil || !strings.Contains(err.Error(), "Secret s, key k") || !strings.Contains(err.Error(), "may quote") {
		t.Errorf("got %v", err)
	}
}

// TestLongestConfig: the sum of the patches has a limit, too.
func TestLongestConfig(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	for _, name := range []string{"a", "b", "c"} {
		in.Patches.Cluster = append(in.Patches.Cluster,
			"machine: {sysctls: {"+name+": "+strings.Repeat("x", 200<<10)+"}}")
	}

	var refused *machineconfig.PatchError
	if _, err := machineconfig.Render(in); !errors.As(err, &refused) || refused.Index != 2 ||
		!strings.Contains(refused.Problem, "the limit is 524288") {
		t.Errorf("got %v", err)
	}

	in.Patches.Cluster = in.Patches.Cluster[:2]
	render(t, in)
}

// TestLongestValues: values that are too long together are what is wrong, and not the patch that comes after them.
func TestLongestValues(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	in.Patches.Cluster, in.Values = []string{"machine: {sysctls: {a: b}}"}, keyref.Values{}

	for _, name := range []string{"A", "B", "C"} {
		in.System.Environment = append(in.System.Environment, v1alpha1.EnvironmentVariable{
			Name: name, ValueFrom: &v1alpha1.SecretKeyReference{Name: "s", Key: name},
		})
		in.Values["environment["+name+"].valueFrom"] = strings.Repeat("x", 200<<10)
	}

	var refused *machineconfig.InvalidError
	if _, err := machineconfig.Render(in); !errors.As(err, &refused) || !refused.Values || refused.Patch != "" ||
		!strings.Contains(err.Error(), "the limit is 524288: make the values that fields take from ConfigMaps and Secrets") {
		t.Errorf("got %v", err)
	}

	in.System.Environment = in.System.Environment[:2]
	render(t, in)
}
