package machineconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// networked is a machine with an interface, of each generation of Talos.
func networked(t *testing.T, talos, kubernetes string) machineconfig.Input {
	t.Helper()

	in := fullInput(t, machineconfig.ControlPlane)
	in.TalosVersion, in.KubernetesVersion = talos, kubernetes
	in.Patches = machineconfig.Patches{}

	return in
}

// TestOperationsOnDocuments: operations change the document that their target names, and no other one; without a target
// the main document, however many others there are.
func TestOperationsOnDocuments(t *testing.T) {
	t.Parallel()

	const later = "apiVersion: v1alpha1\nkind: TimeMachineConfig\nname: flux\nspeed: 88\n"

	for name, tt := range map[string]struct {
		patches     []string
		has, hasNot string
	}{
		"main document": {
			[]string{"- op: replace\n  path: /machine/install/disk\n  value: /dev/sdx\n"}, "disk: /dev/sdx", "/dev/nvme0n1",
		},
		"main document, by a target without a kind": {
			[]string{"operations:\n  - op: remove\n    path: /machine/kubelet/extraArgs\n"}, "", "max-pods",
		},
		"a name": {
			[]string{"target: {kind: LinkConfig, name: eth0}\noperations:\n  - {op: replace, path: /mtu, value: 1400}\n"},
			"mtu: 1400", "mtu: 9000",
		},
		"the only one of its kind": {
			[]string{"target: {apiVersion: v1alpha1, kind: ResolverConfig}\noperations:\n" +
				"  - {op: replace, path: /nameservers/0/address, value: 192.0.2.53}\n"},
			"address: 192.0.2.53", "address: 10.0.0.2\n",
		},
		"an unknown kind": {
			[]string{later, `{"target": {"kind": "TimeMachineConfig", "name": "flux"}, "operations": [` +
				`{"op": "test", "path": "/speed", "value": 88}, {"op": "replace", "path": "/speed", "value": 99}]}`},
			"speed: 99", "speed: 88",
		},
		"after a merge": {
			[]string{
				"apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\n",
				"target: {kind: WatchdogTimerConfig}\noperations:\n  - {op: add, path: /timeout, value: 3m0s}\n",
			},
			"timeout: 3m0s", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := networked(t, "v1.13.9", "v1.36.2")
			before := render(t, in).Bytes
			in.Patches.Group = tt.patches
			out := render(t, in).Bytes

			if !strings.Contains(string(out), tt.has) || tt.hasNot != "" && strings.Contains(string(out), tt.hasNot) {
				t.Errorf("%q is missing, or %q is still there:\n%s", tt.has, tt.hasNot, out)
			}

			d, err := machineconfig.Diff(before, out)
			if err != nil || len(patchedDocuments(d)) != 1 {
				t.Errorf("more than one document has changed: %q (%v)", d.Paths(), err)
			}

			if _, err := configloader.NewFromBytes(out); err != nil && !strings.Contains(err.Error(), "TimeMachineConfig") {
				t.Errorf("Talos cannot read it: %v", err)
			}
		})
	}
}

func patchedDocuments(d machineconfig.Difference) map[string]bool {
	out := map[string]bool{}
	for _, c := range d.Changes {
		out[c.Document] = true
	}

	return out
}

// TestOperationsRefused: what matches no document, or several, does nothing, so it is refused.
func TestOperationsRefused(t *testing.T) {
	t.Parallel()

	const replace = "operations:\n  - {op: replace, path: /mtu, value: 1400}\n"

	for name, tt := range map[string]struct{ patch, says string }{
		"no such name":   {"target: {kind: LinkConfig, name: eth9}\n" + replace, "no document LinkConfig/eth9; it has LinkConfig/eth0"},
		"no such kind":   {"target: {kind: VLANConfig, name: eth9}\n" + replace, "no document VLANConfig/eth9, and none of that kind"},
		"other version":  {"target: {apiVersion: v2, kind: LinkConfig, name: eth0}\n" + replace, "no document"},
		"several":        {"target: {kind: LinkConfig}\n" + replace, "add the name"},
		"name alone":     {"target: {name: eth0}\n" + replace, "has a kind"},
		"no such field":  {"target: {kind: LinkConfig, name: eth0}\noperations: [{op: remove, path: /speed}]\n", "LinkConfig/eth0"},
		"failed test":    {"operations: [{op: test, path: /machine/type, value: hunter2hunter2}]\n", "does not apply"},
		"rename":         {"target: {kind: LinkConfig, name: eth0}\noperations: [{op: replace, path: /name, value: eth7}]\n", "name"},
		"not its field":  {"target: {kind: LinkConfig, name: eth0}\noperations: [{op: add, path: /speed, value: 1}]\n", "unknown fields speed"},
		"invalid value":  {"target: {kind: LinkConfig, name: eth0}\noperations: [{op: add, path: /mtu, value: hunter2hunter2}]\n", "LinkConfig/eth0"},
		"no operations":  {"target: {kind: LinkConfig, name: eth0}\noperations: []\n", "empty"},
		"no from":        {"operations: [{op: copy, form: /machine/type, path: /machine/env}]\n", "unknown field form"},
		"unknown key":    {"targets: {kind: LinkConfig}\n" + replace, "unknown field targets"},
		"key of target":  {"target: {kind: LinkConfig, mane: hunter2hunter2}\n" + replace, "target: unknown field mane"},
		"with a merge":   {replace + "---\nmachine: {}\n", "patch of their own"},
		"operator owned": {"operations: [{op: replace, path: /machine/token, value: hunter2hunter2}]\n", "machine.token"},
		"list as target": {"target: [LinkConfig]\n" + replace, "mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := networked(t, "v1.13.9", "v1.36.2")
			in.Patches.Machine = []string{tt.patch}

			_, err := machineconfig.Render(in)

			var patch *machineconfig.PatchError
			if !errors.As(err, &patch) || patch.Patch() != "machine[0]" || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want a PatchError of machine[0] with %q", err, tt.says)
			}

			mustNotLeak(t, err.Error())
		})
	}
}

// TestDeleteInBothGenerations: "$patch: delete" removes an interface from the documents of Talos 1.12 and later, and from
// the main document before.
func TestDeleteInBothGenerations(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		talos, kubernetes, patch, gone, stays string
	}{
		"document": {
			"v1.13.9", "v1.36.2", "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n$patch: delete\n",
			"LinkConfig/eth0", "ResolverConfig",
		},
		"main document": {
			"v1.11.6", "v1.34.3", "machine:\n  network:\n    interfaces:\n      - interface: eth0\n        $patch: delete\n",
			"machine.network.interfaces[1]", "machine.network.nameservers[0]",
		},
		"field of the main document, with documents": {
			"v1.13.9", "v1.36.2", "machine:\n  kubelet:\n    extraArgs:\n      $patch: delete\n",
			"machine.kubelet.extraArgs.max-pods", "machine.kubelet.image",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := networked(t, tt.talos, tt.kubernetes)
			before := render(t, in).Bytes
			in.Patches.Cluster = []string{tt.patch}

			d, err := machineconfig.Diff(before, render(t, in).Bytes)
			if err != nil {
				t.Fatal(err)
			}

			if paths := strings.Join(d.Paths(), "\n"); !strings.Contains(paths, tt.gone) || strings.Contains(paths, tt.stays) {
				t.Errorf("changed:\n%s", paths)
			}
		})
	}
}

// TestValuePatch: a text becomes the value of one field, whatever it looks like.
func TestValuePatch(t *testing.T) {
	t.Parallel()

	for _, value := range []string{"true", "12", "a: b", "- x", "null", "\"'|>&*!%@`", "two\nlines", "~"} {
		text, err := machineconfig.ValuePatch("", "", "/machine/sysctls/a.b~1c~0d", value+"\r\n\n")
		if err != nil {
			t.Fatal(err)
		}

		in := plainInput(t, machineconfig.Worker)
		in.Patches.Machine = []string{text}

		cfg, err := configloader.NewFromBytes(render(t, in).Bytes)
		if err != nil {
			t.Fatal(err)
		}

		if got := cfg.Machine().Sysctls()["a.b/c~d"]; got != value {
			t.Errorf("got %q, want %q", got, value)
		}
	}

	text, err := machineconfig.ValuePatch("RegistryAuthConfig", "mirror.example.org", "/password", "hunter2hunter2")
	if want := "apiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: mirror.example.org\npassword: hunter2hunter2\n"; text != want {
		t.Errorf("got %q (%v), want %q", text, err, want)
	}

	for _, path := range []string{"machine", "/kind", ""} {
		if _, err := machineconfig.ValuePatch("RegistryAuthConfig", "a", path, "hunter2hunter2"); err == nil {
			t.Errorf("the path %q is accepted", path)
		} else {
			mustNotLeak(t, err.Error())
		}
	}
}

// TestOperationsAreNotTakenApart: what an operation sets has no path that would tell whether it is secret.
func TestOperationsAreNotTakenApart(t *testing.T) {
	t.Parallel()

	const patch = "operations:\n    - op: add\n      path: /machine/env\n      value: {A: b}\n"

	open, secret := machineconfig.SplitSecrets([]string{patch})
	if len(open) > 0 || len(secret) != 1 || secret[0] != patch {
		t.Errorf("open: %q, secret: %q", open, secret)
	}
}
