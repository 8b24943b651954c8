package machineconfig_test

import (
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TestExplain: each field is attributed to the last layer that changed its value, and secrets are shown only on request.
func TestExplain(t *testing.T) {
	t.Parallel()

	generated := plainInput(t, machineconfig.ControlPlane)
	machine := fullInput(t, machineconfig.ControlPlane)
	machine.TalosVersion, machine.KubernetesVersion = generated.TalosVersion, generated.KubernetesVersion
	machine.Patches = machineconfig.Patches{
		Cluster:   []string{"machine: {sysctls: {a: '1', b: '1'}}", "machine: {sysctls: {b: '2', c: '2'}}"},
		GroupFrom: fromSecret("machine: {sysctls: {c: hunter2hunter2}}"),
		Machine:   []string{"target: {kind: LinkConfig, name: eth0}\noperations: [{op: replace, path: /mtu, value: 1400}]"},
		Adopted:   []string{"machine: {sysctls: {d: '5'}}"},
	}

	layers := []machineconfig.Layer{{Name: "generated", Input: generated}, {Name: "machine", Input: machine}}

	for _, secrets := range []bool{false, true} {
		found, err := machineconfig.Explain(layers, []string{"machine.sysctls.a"}, secrets)
		if err != nil {
			t.Fatal(err)
		}

		origins := map[string]machineconfig.Origin{}

		for _, o := range found {
			origins[o.Field] = o

			if !secrets {
				mustNotLeak(t, o.Value)
			}
		}

		masked := func(value string) string {
			if secrets {
				return value
			}

			return machineconfig.Redacted
		}

		for field, want := range map[string][2]string{
			"machine.type":         {"controlplane", "generated"},
			"machine.token":        {masked(generated.Secrets.TrustdInfo.Token), "generated"},
			"machine.certSANs[0]":  {"api.example.org", "machine"},
			"machine.sysctls.a":    {masked("1"), "cluster[0]"},
			"machine.sysctls.b":    {"2", "cluster[1]"},
			"machine.sysctls.c":    {masked("hunter2hunter2"), "Secret s, key k (group)"},
			"LinkConfig/eth0: mtu": {"1400", "machine[0]"},
			"machine.sysctls.d":    {"5", "adopted[0]"},
		} {
			if got := origins[field]; got.Value != want[0] || got.Layer != want[1] {
				t.Errorf("%s is %q by %q, want %q by %q", field, got.Value, got.Layer, want[0], want[1])
			}
		}
	}
}

// TestMask: what may be secret is replaced, everything else stays, and the result is YAML of the same documents.
func TestMask(t *testing.T) {
	t.Parallel()

	in := fullInput(t, machineconfig.ControlPlane)
	in.Patches.Machine = []string{
		"machine: {sysctls: {open: '1', shut: hunter2hunter2}, env: {A: hunter2hunter2}, certSANs: [one, two]}",
		"apiVersion: v1alpha1\nkind: TimeMachineConfig\nname: flux\nspeed: hunter2hunter2\n",
	}

	config := render(t, in).Bytes

	masked, err := machineconfig.Mask(config, []string{"machine.sysctls.shut", "machine.certSANs"})
	if err != nil {
		t.Fatal(err)
	}

	text := string(masked)
	mustNotLeak(t, text)

	for _, want := range []string{
		"open: \"1\"", "shut: <redacted>", "A: <redacted>", "- <redacted>", "kind: TimeMachineConfig\nname: flux", "type: controlplane",
		"addresses:", "10.0.0.11/24",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}

	before, err := machineconfig.Documents(config)
	if err != nil {
		t.Fatal(err)
	}

	after, err := machineconfig.Documents(masked)
	if err != nil || len(before) != len(after) {
		t.Errorf("%d documents became %d: %v", len(before), len(after), err)
	}

	if _, err := configloader.NewFromBytes(config); err == nil {
		t.Error("the test has no document that the library does not know")
	}
}

// TestDiffWithSecrets: on request a difference shows all values, whole.
func TestDiffWithSecrets(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	before := render(t, in).Bytes
	in.Patches.Machine = []string{"machine: {env: {A: " + strings.Repeat("hunter2", 40) + ", B: ''}}"}

	d, err := machineconfig.DiffWithSecrets(before, render(t, in).Bytes)
	if err != nil {
		t.Fatal(err)
	}

	if len(d.Changes) != 2 || d.Changes[0].New != strings.Repeat("hunter2", 40) || d.Changes[0].Old != "" || d.Changes[1].New != `""` {
		t.Errorf("got %+v", d)
	}
}
