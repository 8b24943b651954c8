package machineconfig_test

import (
	"errors"
	"strings"
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

// FuzzStaticPods: the static pods and extension services of a live configuration are read, or it is refused without being
// quoted; one that is compared to itself has all of them alike.
func FuzzStaticPods(f *testing.F) {
	const hidden = "hunter2hunter2"

	f.Add("version: v1alpha1\nmachine:\n  pods: [{metadata: {name: a, namespace: b}, spec: {containers: [{env: [{value: ", "}]}]}}]\n")
	f.Add("version: v1alpha1\nmachine: {pods: [~, {metadata: ~}, {metadata: {name: 1}}]}\n", "")
	f.Add("machine: {pods: ", "}\n")
	f.Add("apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: a\nenvironment: [A=", "]\n---\nversion: v1alpha1\n")
	f.Add("machine:\n pods: [{0: {[{[{", "}]}]}}]")
	f.Add("version: v1alpha1\nmachine: {pods: [{? [a]\n: ", "}]}\n")

	f.Fuzz(func(t *testing.T, before, after string) {
		config := []byte(before + hidden + after)

		pods, err := machineconfig.StaticPods(config)
		if err == nil {
			if same, err := machineconfig.SameStaticPods(config, config); err != nil || len(same) != len(pods) {
				t.Errorf("%d pods, of which %d are alike: %v", len(pods), len(same), err)
			}
		}

		_, serr := machineconfig.SameExtensionServices(config, config)

		for _, err := range []error{err, serr} {
			if err != nil && strings.Contains(err.Error(), hidden) {
				t.Errorf("the error quotes the configuration: %v", err)
			}
		}
	})
}
