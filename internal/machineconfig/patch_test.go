package machineconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

func TestPatchesApplyInOrder(t *testing.T) {
	t.Parallel()

	level := func(value string) string { return "machine:\n  sysctls:\n    vm.swappiness: \"" + value + "\"\n" }
	from := func(value string) []machineconfig.Sourced { return []machineconfig.Sourced{{Text: level(value)}} }

	in := plainInput(t, machineconfig.ControlPlane)
	in.Patches = machineconfig.Patches{
		Cluster: []string{level("1"), level("2")}, Group: []string{level("3")}, Machine: []string{level("4")},
		ClusterFrom: from("2f"), GroupFrom: from("3f"), MachineFrom: from("4f"), Adopted: []string{level("5")},
	}

	for _, step := range []struct {
		want string
		next func()
	}{
		{"5", func() { in.Patches.Adopted = nil }},
		{"4f", func() { in.Patches.MachineFrom = nil }},
		{"4", func() { in.Patches.Machine = nil }},
		{"3f", func() { in.Patches.GroupFrom = nil }},
		{"3", func() { in.Patches.Group = nil }},
		{"2f", func() { in.Patches.ClusterFrom = nil }},
		{"2", func() { in.Patches.Cluster = in.Patches.Cluster[:1] }},
		{"1", func() {}},
	} {
		cfg, err := configloader.NewFromBytes(render(t, in).Bytes)
		if err != nil {
			t.Fatal(err)
		}

		if got := cfg.Machine().Sysctls()["vm.swappiness"]; got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}

		step.next()
	}
}

func TestPatchKinds(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		talos, kubernetes string
		patch             string
		has, hasNot       string
	}{
		"merge into a document": {
			"v1.13.9", "v1.36.2", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\nauto: \"off\"\n",
			"hostname: other", "auto: stable",
		},
		"a further document": {
			"v1.13.9", "v1.36.2", "apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\ntimeout: 2m0s\n",
			"WatchdogTimerConfig", "",
		},
		"two documents at once": {
			"v1.13.9", "v1.36.2",
			"machine:\n  sysctls:\n    a.b: c\n---\napiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\n",
			"a.b: c", "",
		},
		"delete a field": {
			"v1.13.9", "v1.36.2",
			"cluster:\n  apiServer:\n    admissionControl:\n      - name: PodSecurity\n        $patch: delete\n",
			"", "PodSecurityConfiguration",
		},
		"delete a document": {
			"v1.13.9", "v1.36.2", "apiVersion: v1alpha1\nkind: HostnameConfig\n$patch: delete\n",
			"", "HostnameConfig",
		},
		"RFC 6902 as YAML": {
			"v1.11.6", "v1.34.3", "- op: add\n  path: /machine/sysctls\n  value:\n    a.b: c\n", "a.b: c", "",
		},
		"RFC 6902 as JSON": {
			"v1.11.6", "v1.34.3", `[{"op":"replace","path":"/cluster/network/dnsDomain","value":"x.example.org"}]`,
			"x.example.org", "cluster.local",
		},
		"an unknown document": {
			"v1.13.9", "v1.36.2", "apiVersion: v1alpha1\nkind: TimeMachineConfig\nname: flux\nsince: 2026-11-21\ncount: 0x10\n",
			"kind: TimeMachineConfig\nname: flux\nsince: 2026-11-21\ncount: 0x10", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := plainInput(t, machineconfig.ControlPlane)
			in.TalosVersion, in.KubernetesVersion = tt.talos, tt.kubernetes
			in.Patches.Cluster = []string{tt.patch}

			out := string(render(t, in).Bytes)
			if !strings.Contains(out, tt.has) {
				t.Errorf("%q is missing in\n%s", tt.has, out)
			}

			if tt.hasNot != "" && strings.Contains(out, tt.hasNot) {
				t.Errorf("%q is still in\n%s", tt.hasNot, out)
			}
		})
	}
}

func TestUnknownDocumentsMergeAndGo(t *testing.T) {
	t.Parallel()

	const head = "apiVersion: v1alpha1\nkind: TimeMachineConfig\nname: flux\n"

	in := plainInput(t, machineconfig.Worker)
	in.Patches = machineconfig.Patches{
		Cluster: []string{head + "speed: 88\nlist: [a]\nmap:\n  x: 1\n"},
		Group:   []string{head + "speed: 99\nlist: [b]\nmap:\n  y: 2\n"},
	}

	out := render(t, in)
	for _, want := range []string{"speed: 99", "- a", "- b", "x: 1", "y: 2"} {
		if !strings.Contains(strings.ReplaceAll(string(out.Bytes), "[a, b]", "- a - b"), want) {
			t.Errorf("%q is missing in\n%s", want, out.Bytes)
		}
	}

	if len(out.Warnings) == 0 || !strings.Contains(strings.Join(out.Warnings, ""), "TimeMachineConfig/flux") {
		t.Errorf("no warning names the unknown document: %q", out.Warnings)
	}

	in.Patches.Machine = []string{head + "$patch: delete\n"}

	if out := render(t, in); strings.Contains(string(out.Bytes), "TimeMachineConfig") {
		t.Error("the document is still there")
	}
}

func TestPatchErrorsNameThePatch(t *testing.T) {
	t.Parallel()

	const unknown = "apiVersion: v1alpha1\nkind: TimeMachineConfig\n"

	for name, tt := range map[string]struct {
		patch string
		says  string
	}{
		"empty":                 {"", "empty"},
		"only a comment":        {"# nothing\n", "empty"},
		"no YAML":               {"machine: [", "yaml"},
		"tabs":                  {"machine:\n\ttype: worker\n", "yaml"},
		"text":                  {"hello", "mapping"},
		"unknown field":         {"machine:\n  kublet:\n    image: hunter2hunter2\n", "unknown fields machine.kublet.image; did you mean machine.kubelet?"},
		"two typos":             {"machine:\n  kubelet: {imagee: a, extraArg: {b: c}}\n", "did you mean machine.kubelet.extraArgs, machine.kubelet.image?"},
		"typo in a list":        {"machine:\n  kubelet:\n    extraMounts: [{destinatio: a}]\n", "did you mean machine.kubelet.extraMounts[].destination?"},
		"typo below a map":      {"machine:\n  registries: {mirrors: {a: {endpoint: [b]}}}\n", "did you mean machine.registries.mirrors.a.endpoints?"},
		"typo in a document":    {"apiVersion: v1alpha1\nkind: LinkConfig\nname: a\nmtuu: 1\naddresses: [{addresz: b}]\n", "did you mean addresses[].address, mtu?"},
		"no blank after colon":  {"machine:\n  token:hunter2hunter2: a\n", "unknown fields machine"},
		"wrong type":            {"machine:\n  certSANs: hunter2hunter2\n", "line 2: a str where []string is expected"},
		"kind without version":  {"kind: Foo\nname: a\n", "apiVersion"},
		"version without kind":  {"apiVersion: v1alpha1\nname: a\n", "unknown fields apiVersion, name"},
		"twice":                 {"machine:\n  sysctls: {a: b}\n---\nmachine:\n  sysctls: {a: b}\n", "duplicate"},
		"op":                    {"- op: frobnicate\n  path: /machine\n", "op must be one of"},
		"path":                  {"- op: add\n  path: machine\n  value: 1\n", "slash"},
		"value":                 {"- op: add\n  path: /machine/env\n", "needs a value"},
		"no operations":         {"[]", "empty"},
		"list of texts":         {"- a\n- b\n", "list of operations"},
		"delete what is absent": {"machine:\n  nodeLabels:\n    nope:\n      $patch: delete\n", "nope"},
		"absent document":       {unknown + "$patch: delete\n", "does not exist"},
		"delete inside unknown": {unknown + "a:\n  $patch: delete\n", "whole"},
		"type":                  {"machine:\n  type: worker\n", "machine.type"},
		"cluster ID":            {"cluster:\n  id: abc\n", "cluster.id"},
		"token":                 {"machine:\n  token: hunter2hunter2\n", "machine.token"},
		"endpoint": {
			"cluster:\n  controlPlane:\n    endpoint: https://1.2.3.4:6443\n",
			"cluster.controlPlane.endpoint",
		},
		"CA": {
			"machine:\n  ca:\n    crt: aHVudGVyMmh1bnRlcjI=\n    key: aHVudGVyMmh1bnRlcjI=\n",
			"machine.ca.crt",
		},
		"delete the CA":      {"cluster:\n  ca:\n    $patch: delete\n", "cluster.ca"},
		"delete the machine": {"machine:\n  $patch: delete\n", "machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := plainInput(t, machineconfig.ControlPlane)
			in.Patches.Group = []string{"machine:\n  sysctls:\n    fine: \"1\"\n", tt.patch}

			_, err := machineconfig.Render(in)

			var patch *machineconfig.PatchError
			if !errors.As(err, &patch) {
				t.Fatalf("got %v, want a PatchError", err)
			}

			if patch.Patch() != "group[1]" || !strings.Contains(err.Error(), "group[1]") {
				t.Errorf("%v does not name group[1]", err)
			}

			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q does not say %q", err, tt.says)
			}

			if len(err.Error()) > 400 || strings.Contains(err.Error(), "\n") {
				t.Errorf("not fit for a condition: %q", err)
			}

			mustNotLeak(t, err.Error())
			t.Log(err)
		})
	}
}

func TestInvalidResultNamesThePatch(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.ControlPlane)
	in.Patches = machineconfig.Patches{
		Cluster: []string{"machine:\n  sysctls:\n    fine: \"1\"\n"},
		Group:   []string{"machine:\n  install:\n    extraKernelArgs: [quiet]\n"},
		Machine: []string{"machine:\n  sysctls:\n    also.fine: \"1\"\n"},
	}

	_, err := machineconfig.Render(in)

	var invalid *machineconfig.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("got %v, want an InvalidError", err)
	}

	if invalid.Patch != "group[0]" || !strings.Contains(err.Error(), "grubUseUKICmdline") {
		t.Errorf("got %v", err)
	}

	// What one patch breaks the next may repair.
	in.Patches.Machine = []string{"machine:\n  install:\n    grubUseUKICmdline: false\n"}
	render(t, in)
}

func TestInvalidResultHidesSecrets(t *testing.T) {
	t.Parallel()

	in := fullInput(t, machineconfig.ControlPlane)
	in.Patches.Machine = []string{
		"apiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: mirror.example.org\nidentityToken: hunter2hunter2\n",
	}

	_, err := machineconfig.Render(in)

	var invalid *machineconfig.InvalidError
	if !errors.As(err, &invalid) || invalid.Patch != "machine[0]" {
		t.Fatalf("got %v, want an InvalidError of machine[0]", err)
	}

	mustNotLeak(t, err.Error())
}

func TestCheckPatches(t *testing.T) {
	t.Parallel()

	if err := machineconfig.CheckPatches(fullInput(t, machineconfig.Worker).Patches); err != nil {
		t.Errorf("good patches: %v", err)
	}

	err := machineconfig.CheckPatches(machineconfig.Patches{Machine: []string{"a: b\n", "machine: [\n"}})

	var patch *machineconfig.PatchError
	if !errors.As(err, &patch) || patch.Patch() != "machine[0]" {
		t.Errorf("got %v, want a PatchError of machine[0]", err)
	}
}

// TestPatchesNeverPanicOrLeak throws text at the parsers: broken YAML and broken secrets alike.
func TestPatchesNeverPanicOrLeak(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	// Names of kinds and fields are shown on purpose, so the secret stands only where values stand.
	pieces := []string{
		"machine:", "cluster:", "  ", "\n", "- ", "token: hunter2hunter2", "token: *hunter2hunter2", "- hunter2hunter2",
		"token: !hunter2hunter2 a", "token: [hunter2hunter2]", "$patch: delete", "kind: Foo\n", "kind: HostnameConfig\n",
		"apiVersion: v1alpha1\n", "---\n", "{", "}", "[", "]", "\"", "'", "&a ", "*a", "<<: ", "!!binary ", "|\n",
		"\t", "null",
		"registries:", "config:", "auth:", "password: hunter2hunter2", "ca:", "crt: hunter2hunter2", "op: add",
		"path: /machine/token", "value: hunter2hunter2",
	}

	rapid.Check(t, func(r *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 14).Draw(r, "pieces"), "")
		tried := in
		tried.Patches.Machine = []string{text}

		out, err := machineconfig.Render(tried)
		if err == nil {
			if _, err := configloader.NewFromBytes(out.Bytes); err != nil && len(out.Warnings) == 0 {
				r.Fatalf("Talos cannot read what came out: %v", err)
			}

			return
		}

		if strings.Contains(err.Error(), "hunter2hunter2") {
			r.Fatalf("%q holds the secret", err)
		}

		for _, secret := range secretValues(t) {
			if strings.Contains(err.Error(), secret) {
				r.Fatalf("%q holds the secret %q", err, secret)
			}
		}
	})
}
