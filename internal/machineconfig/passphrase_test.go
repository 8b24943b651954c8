package machineconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	volumedocs "github.com/talos-operator/talos-operator/internal/machineconfig/volume"
)

const (
	lockedVolumes = "{state: {encryption: {keys: [{slot: 0, type: nodeID}, {slot: 1, type: static, static: {passphraseFrom: {name: s, key: state}}}]}}, " +
		"ephemeral: {encryption: {keys: [{slot: 2, type: static, static: {passphraseFrom: {name: s, key: old}}}, " +
		"{slot: 0, type: static, static: {passphraseFrom: {name: s, key: new}}}]}}}"
	lockedUsers = "{user: [{name: data, diskSelector: disk.rotational, minSize: 1GiB, encryption: {keys: " +
		"[{slot: 0, type: static, static: {passphraseFrom: {name: s, key: data}}}]}}], " +
		"raw: [{name: csi, diskSelector: disk.rotational, minSize: 1GiB, encryption: {keys: " +
		"[{slot: 4, type: static, static: {passphraseFrom: {name: s, key: csi}}}]}}], " +
		"swap: [{name: swap, diskSelector: disk.rotational, minSize: 1GiB, encryption: {keys: " +
		"[{slot: 1, type: static, static: {passphraseFrom: {name: s, key: swap}}}]}}]}"
)

// passphrases are different ones for all keys.
func passphrases(t *testing.T, in machineconfig.Input) keyref.Values {
	t.Helper()

	out := keyref.Values{}

	for _, ref := range volumedocs.Refs(in.Volumes) {
		value, err := ref.Value([]byte("  hunter2hunter2 of " + ref.From.Key + "\n"))
		if err != nil {
			t.Fatal(err)
		}

		out[ref.Field] = value
	}

	return out
}

// TestPassphrases: each version of Talos gets the passphrases of the volumes that it can encrypt. Each is the key of its
// own slot, and no difference, masked configuration or list of keys shows one. Another one in a Secret is another key.
func TestPassphrases(t *testing.T) {
	t.Parallel()

	for _, versions := range contracts {
		minor := versions.talos[:strings.LastIndex(versions.talos, ".")]

		for sample, text := range map[string]string{"system": lockedVolumes, "user": lockedUsers} {
			in := plainInput(t, machineconfig.Worker)
			in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
			before := render(t, in).Bytes
			in.Volumes = volumesOf(t, text)
			in.Values = passphrases(t, in)

			if sample == "user" && minor == "v1.10" {
				refused(t, minor, in, "volumes.raw", "v1.11 or later")

				continue
			}

			after := render(t, in)
			judge(t, after.Bytes)

			parts := []string{string(volumePart(t, after.Bytes))}
			for _, kind := range []string{"RawVolumeConfig", "SwapVolumeConfig", "UserVolumeConfig"} {
				if part := documentsOf(after.Bytes, kind); len(part) > 0 {
					parts = append(parts, string(part))
				}
			}

			golden(t, "passphrases-"+sample+"-"+minor+".yaml", []byte(strings.Join(parts, "---\n")))
			hidesPassphrases(t, before, after)

			if n := slices.DeleteFunc(slices.Clone(after.Hidden), func(field string) bool {
				return !strings.HasSuffix(field, ".static") || minor != "v1.10" && strings.HasPrefix(field, "machine.")
			}); len(n) != 3 {
				t.Errorf("%s: %v is hidden", minor, after.Hidden)
			}

			quotesNoValue(t, in)

			read, err := machineconfig.ConfiguredVolumes(after.Bytes)
			if err != nil {
				t.Fatal(err)
			}

			for field := range in.Values {
				in.Values[field] += "!"
			}

			other, err := machineconfig.ConfiguredVolumes(render(t, in).Bytes)
			if err != nil {
				t.Fatal(err)
			}

			seen := map[string]bool{}

			for name, v := range read {
				for slot, key := range v.Keys {
					if key.Type != "static" {
						continue
					}

					if seen[key.Identity] || other[name].Keys[slot] == key || strings.Contains(key.Identity, "hunter2") {
						t.Errorf("%s: slot %d of %s is like another key, or shows it", minor, slot, name)
					}

					seen[key.Identity] = true
				}
			}

			if len(seen) != 3 {
				t.Errorf("%s: %d passphrases", minor, len(seen))
			}
		}
	}
}

// TestHiddenBesideDocument: the passphrase of a volume is hidden in the main document, also if the size of the volume is
// in a document of its own.
func TestHiddenBesideDocument(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	in.TalosVersion, in.KubernetesVersion = "v1.10.9", "v1.33.4"
	in.Volumes = volumesOf(t, "{ephemeral: {maxSize: 10GiB, encryption: {keys: "+
		"[{slot: 0, type: static, static: {passphraseFrom: {name: s, key: old}}}]}}}")
	in.Values = passphrases(t, in)
	after := render(t, in)

	if text := string(after.Bytes); !strings.Contains(text, "kind: VolumeConfig") || !strings.Contains(text, "systemDiskEncryption") {
		t.Fatalf("the config has not both:\n%s", text)
	}

	for _, field := range []string{
		"machine.systemDiskEncryption.ephemeral.keys[0].static", "VolumeConfig/EPHEMERAL: encryption.keys[0].static",
	} {
		if !slices.Contains(after.Hidden, field) {
			t.Errorf("%s is not among %v", field, after.Hidden)
		}
	}
}

// quotesNoValue: Talos quotes a wrong network in its error, also if it is the value of a Secret.
func quotesNoValue(t *testing.T, in machineconfig.Input) {
	t.Helper()

	for field, value := range in.Values {
		in.Patches.Cluster = []string{fmt.Sprintf("machine: {kubelet: {nodeIP: {validSubnets: [%q]}}}", value)}

		_, err := machineconfig.Render(in)
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), machineconfig.Redacted) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func hidesPassphrases(t *testing.T, before []byte, after *machineconfig.Rendered) {
	t.Helper()

	d, err := machineconfig.Diff(before, after.Bytes)
	if err != nil {
		t.Fatal(err)
	}

	d.Hide(after.Hidden)

	masked, err := machineconfig.Mask(after.Bytes, after.Hidden)
	if err != nil || !strings.Contains(string(masked), "slot") {
		t.Fatalf("%v: %s", err, masked)
	}

	mustNotLeak(t, fmt.Sprint(d)+string(masked))

	if text := string(masked); strings.Contains(text, "of data") || strings.Contains(text, "of state") {
		t.Error("a passphrase is shown")
	}
}

// TestPassphraseRefusals: what is no key is refused with the path of the field.
func TestPassphraseRefusals(t *testing.T) {
	t.Parallel()

	const (
		keys = "{ephemeral: {encryption: {keys: ["
		path = "volumes.ephemeral.encryption.keys[0]"
		from = "static: {passphraseFrom: {name: s, key: k}}"
	)

	for name, tt := range map[string]struct{ volumes, field, problem string }{
		"none":       {keys + "{slot: 0, type: static}]}}}", path + ".static.passphraseFrom", "name a Secret"},
		"no key":     {keys + "{slot: 0, type: static, static: {passphraseFrom: {name: s}}}]}}}", path + ".static.passphraseFrom", "name a Secret"},
		"other type": {keys + "{slot: 0, type: nodeID, " + from + "}]}}}", path + ".static", "type static"},
		"not read":   {keys + "{slot: 0, type: static, " + from + "}]}}}", path + ".static.passphraseFrom", "was not read"},
		"twice": {
			keys + "{slot: 1, type: static, " + from + "}, {slot: 0, type: static, " + from + "}]}}}", path, "same key as that of slot 1",
		},
	} {
		for _, versions := range contracts {
			in := plainInput(t, machineconfig.Worker)
			in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
			in.Volumes = volumesOf(t, tt.volumes)
			refused(t, name, in, tt.field, tt.problem)
		}
	}

	for _, ref := range volumedocs.Refs(volumesOf(t, lockedVolumes)) {
		for _, content := range []string{"", "\n", "hunter2hunter2\nbbbbbb", "hunter2hunter2a\n", "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"} {
			if _, err := ref.Value([]byte(content)); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s may be %q: %v", ref.Field, content, err)
			}
		}
	}
}
