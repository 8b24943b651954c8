package machineconfig_test

import (
	"errors"
	"testing"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// FuzzPatches: a patch is refused with its place, or rendered; rendered again, the configuration is the same.
func FuzzPatches(f *testing.F) {
	f.Add("machine:\n  sysctls: {vm.max_map_count: \"262144\"}\n")
	f.Add("machine:\n  network:\n    interfaces: [~]\n")
	f.Add("machine: ~\ncluster: ~\n")
	f.Add("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n")
	f.Add("apiVersion: v1alpha1\nkind: Later\nname: a\n---\nmachine:\n  $patch: delete\n")
	f.Add("- op: add\n  path: /machine/env\n  value: {A: b}\n")

	in := fullInput(f, machineconfig.ControlPlane)

	f.Fuzz(func(t *testing.T, patch string) {
		fuzzed := in
		fuzzed.Patches.Machine = []string{patch}

		once, err := machineconfig.Render(fuzzed)
		if err != nil {
			refused, invalid := (*machineconfig.PatchError)(nil), (*machineconfig.InvalidError)(nil)
			if !errors.As(err, &refused) && !errors.As(err, &invalid) {
				t.Errorf("unclassified: %v", err)
			}

			return
		}

		twice, err := machineconfig.Render(fuzzed)
		if err != nil || string(once.Bytes) != string(twice.Bytes) {
			t.Errorf("not stable (%v)", err)
		}
	})
}

// FuzzLive: what a node serves as its configuration is compared, or refused.
func FuzzLive(f *testing.F) {
	config := render(f, fullInput(f, machineconfig.ControlPlane)).Bytes

	f.Add(config)
	f.Add([]byte("version: v1alpha1\nmachine:\n  network:\n    interfaces: [~]\n"))
	f.Add([]byte("version: v1alpha1\nmachine: ~\ncluster: {network: ~, etcd: ~, apiServer: {admissionControl: [~]}}\n"))
	f.Add([]byte("apiVersion: v1alpha1\nkind: Later\n---\nversion: v1alpha1\n"))

	f.Fuzz(func(t *testing.T, live []byte) {
		if d, err := machineconfig.Diff(config, live); err == nil && d.Equal() {
			if again, err := machineconfig.Diff(live, config); err != nil || !again.Equal() {
				t.Errorf("equal one way only: %v (%v)", again.Paths(), err)
			}
		}

		_, _ = machineconfig.DerivePatches(config, live)
	})
}
