package machineconfig_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

func TestSharedPatches(t *testing.T) {
	t.Parallel()

	const (
		mirror = "apiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: docker.io\n"
		link   = "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n"
		policy = "cluster:\n    apiServer:\n        auditPolicy:\n            kind: Policy\n            rules:\n                - level: "
	)

	for name, tt := range map[string]struct {
		perNode map[string][]string
		shared  []string
		own     map[string][]string
	}{
		"nothing": {nil, nil, map[string][]string{}},
		"one node has all for itself": {
			map[string][]string{"a": {mirror}}, nil, map[string][]string{"a": {mirror}},
		},
		"documents": {
			map[string][]string{"a": {mirror, link + "mtu: 1\n"}, "b": {link + "mtu: 2\n", mirror}, "c": {mirror}},
			[]string{mirror},
			map[string][]string{"a": {link + "mtu: 1\n"}, "b": {link + "mtu: 2\n"}},
		},
		"fields": {
			map[string][]string{
				"a": {"machine:\n    sysctls:\n        x: \"1\"\n        y: \"2\"\n"},
				"b": {"machine:\n    sysctls:\n        x: \"1\"\n        y: \"3\"\n"},
			},
			[]string{"machine:\n    sysctls:\n        x: \"1\"\n"},
			map[string][]string{
				"a": {"machine:\n    sysctls:\n        y: \"2\"\n"}, "b": {"machine:\n    sysctls:\n        y: \"3\"\n"},
			},
		},
		"what goes and comes stays together": {
			map[string][]string{
				"a": {"machine:\n    a:\n        $patch: delete\n---\nmachine:\n    a:\n        - x\n"},
				"b": {"machine:\n    a:\n        - x\n"},
			},
			nil,
			map[string][]string{
				"a": {"machine:\n    a:\n        $patch: delete\n---\nmachine:\n    a:\n        - x\n"},
				"b": {"machine:\n    a:\n        - x\n"},
			},
		},
		"the audit policy stays whole": {
			map[string][]string{"a": {policy + "None\n"}, "b": {policy + "Metadata\n"}},
			nil,
			map[string][]string{"a": {policy + "None\n"}, "b": {policy + "Metadata\n"}},
		},
		"patches from elsewhere": {
			map[string][]string{"a": {"[{op: remove, path: /machine/env}]", "{"}, "b": {"{"}},
			[]string{"{"},
			map[string][]string{"a": {"[{op: remove, path: /machine/env}]"}},
		},
		"patches that build on each other": {
			map[string][]string{"a": {"machine: {a: 1}", "machine: {a: 2}"}, "b": {"machine: {a: 1}"}},
			nil,
			map[string][]string{"a": {"machine: {a: 1}", "machine: {a: 2}"}, "b": {"machine:\n    a: 1\n"}},
		},
		"twice on one node is not on two": {
			map[string][]string{"a": {mirror, mirror}, "b": {}}, nil, map[string][]string{"a": {mirror, mirror}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			shared, own := machineconfig.SharedPatches(tt.perNode)
			if d := cmp.Diff(tt.shared, shared); d != "" {
				t.Errorf("shared (-want +got):\n%s", d)
			}

			if d := cmp.Diff(tt.own, own); d != "" {
				t.Errorf("own (-want +got):\n%s", d)
			}
		})
	}
}

// TestSharedPatchesLeadToTheSame splits the patches of random clusters: shared and own ones together do what all did.
func TestSharedPatchesLeadToTheSame(t *testing.T) {
	t.Parallel()

	base := render(t, plainInput(t, machineconfig.Worker)).Bytes

	rapid.Check(t, func(r *rapid.T) {
		common := readConfig(r, base)
		editByHand(r, &common, 3)

		perNode, lives, haves := map[string][]string{}, map[string][]byte{}, map[string][]byte{}

		for _, node := range []string{"a", "b"} {
			have, live := readConfig(r, base), readConfig(r, common.bytes(r))
			editByHand(r, &have, 1)
			editByHand(r, &live, 2)

			patches, err := machineconfig.DerivePatches(have.bytes(r), live.bytes(r))
			if err != nil {
				r.Fatal(err)
			}

			perNode[node], haves[node], lives[node] = patches, have.bytes(r), live.bytes(r)
		}

		shared, own := machineconfig.SharedPatches(perNode)
		for node := range perNode {
			mustLeadTo(r, haves[node], lives[node], slices.Concat(shared, own[node]))
		}

		if shared, own := machineconfig.SharedPatches(map[string][]string{"a": perNode["a"], "b": perNode["a"]}); len(own) > 0 {
			r.Errorf("two equal nodes have their own: %v besides %v", own, shared)
		}
	})
}
