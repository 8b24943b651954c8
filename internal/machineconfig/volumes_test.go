package machineconfig_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
	kyaml "sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

func volumesOf(t *testing.T, text string) *v1alpha1.Volumes {
	t.Helper()

	var volumes *v1alpha1.Volumes
	if err := kyaml.UnmarshalStrict([]byte(text), &volumes); err != nil {
		t.Fatal(err)
	}

	return volumes
}

// volumePart returns what of a config is about the volumes of Talos.
func volumePart(t *testing.T, config []byte) []byte {
	t.Helper()

	var main struct {
		Machine struct {
			Encryption map[string]any `yaml:"systemDiskEncryption,omitempty"`
		} `yaml:"machine,omitempty"`
	}
	if err := yaml.Unmarshal(config, &main); err != nil {
		t.Fatal(err)
	}

	raw, err := yaml.Marshal(main)
	if err != nil {
		t.Fatal(err)
	}

	return bytes.Join([][]byte{raw, documentsOf(config, "VolumeConfig")}, []byte("---\n"))
}

// TestVolumes: each version of Talos gets the volumes as it reads them, accepted by the machinery's own validation, and
// read back they are what was requested. A node that runs what was rendered shows no difference.
func TestVolumes(t *testing.T) {
	t.Parallel()

	for sample, minors := range map[string]string{
		"volumes-v1.10": "v1.10 v1.11 v1.12 v1.13", "volumes-v1.11": "v1.11 v1.12 v1.13", "volumes-v1.12": "v1.12 v1.13",
	} {
		text, err := os.ReadFile("testdata/services/" + sample + ".yaml")
		if err != nil {
			t.Fatal(err)
		}

		for _, versions := range contracts {
			minor := versions.talos[:strings.LastIndex(versions.talos, ".")]
			in := plainInput(t, machineconfig.Worker)
			in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
			in.Volumes = volumesOf(t, string(text))

			if !strings.Contains(minors, minor) {
				_, err := machineconfig.Render(in)
				if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(sample, "volumes-")+" or later") ||
					!strings.Contains(err.Error(), "the configuration of "+minor) {
					t.Errorf("%s of %s: %v", sample, minor, err)
				}

				continue
			}

			config := render(t, in).Bytes
			judge(t, config)
			golden(t, sample+"-"+minor+".yaml", volumePart(t, config))

			read, err := machineconfig.ConfiguredVolumes(config)
			if err != nil || len(read["EPHEMERAL"].Keys) != len(in.Volumes.Ephemeral.Encryption.Keys) || read["EPHEMERAL"].Place == "" &&
				read["EPHEMERAL"].Limit == (machineconfig.VolumeLimit{}) {
				t.Errorf("%s of %s is read as %+v, %v", sample, minor, read, err)
			}

			diff, err := machineconfig.Diff(config, render(t, in).Bytes)
			if err != nil || !diff.Equal() || diff.ChangesVolumes() {
				t.Errorf("%s of %s differs from itself in %v, %v", sample, minor, diff.Paths(), err)
			}
		}
	}
}

// TestVolumeGenerations: what both generations of Talos can express means the same in both.
func TestVolumeGenerations(t *testing.T) {
	t.Parallel()

	var read []map[string]machineconfig.ConfiguredVolume

	for _, versions := range contracts {
		in := plainInput(t, machineconfig.Worker)
		in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
		in.Volumes = volumesOf(t, "{state: {encryption: {keys: [{slot: 0, type: nodeID}]}}, ephemeral: {maxSize: 50GiB, "+
			"encryption: {cipher: aes-xts-plain64, keys: [{slot: 1, type: tpm}, {slot: 2, type: kms, kms: {endpoint: 'https://kms:1'}}]}}}")

		volumes, err := machineconfig.ConfiguredVolumes(render(t, in).Bytes)
		if err != nil {
			t.Fatal(err)
		}

		if read = append(read, volumes); !reflect.DeepEqual(read[0], volumes) {
			t.Errorf("%s: %+v, and before %+v", versions.talos, volumes, read[0])
		}
	}

	if e := read[0]["EPHEMERAL"]; e.Keys[1].Type != "tpm" || e.Keys[2].Type != "kms" || !read[0]["STATE"].Encrypted {
		t.Errorf("%+v", read[0])
	}
}

// TestVolumeKeysDiffer: two keys are the same only if both open the same volume, and a passphrase shows nowhere.
func TestVolumeKeysDiffer(t *testing.T) {
	t.Parallel()

	seen := map[string]string{}

	for name, key := range map[string]string{
		"nodeID": "nodeID: {}", "locked": "nodeID: {}, lockToState: true", "tpm": "tpm: {}", "tpm of no register": "tpm: {options: {pcrs: []}}",
		"tpm of others": "tpm: {options: {pcrs: [7, 8]}}", "kms": "kms: {endpoint: 'https://a'}", "other kms": "kms: {endpoint: 'https://b'}",
		"static": "static: {passphrase: hunter2hunter2}", "other static": "static: {passphrase: hunter3}",
	} {
		volumes, err := machineconfig.ConfiguredVolumes([]byte("apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\n" +
			"encryption: {provider: luks2, keys: [{slot: 3, " + key + "}]}\n"))
		if err != nil {
			t.Fatal(err)
		}

		k := volumes["EPHEMERAL"].Keys[3]
		mustNotLeak(t, k.Identity)

		if other, twice := seen[k.Identity]; twice || k.Type == "" {
			t.Errorf("%s is %q, and the same as %s", name, k.Type, other)
		}

		seen[k.Identity] = name
	}
}

// TestVolumeRefusals: what Talos would only notice on the machine is refused with the path of the field.
func TestVolumeRefusals(t *testing.T) {
	t.Parallel()

	const key, keys = "volumes.ephemeral.encryption.keys[0]", "ephemeral: {encryption: {keys: ["

	for name, tt := range map[string]struct{ volumes, field, problem string }{
		"nothing":           {"ephemeral: {}", "volumes.ephemeral", "is empty"},
		"no expression":     {"ephemeral: {diskSelector: 'disk.size >'}", "volumes.ephemeral.diskSelector", "Syntax error"},
		"unknown field":     {"ephemeral: {diskSelector: 'disk.colour == \"red\"'}", "volumes.ephemeral.diskSelector", "undefined field 'colour'"},
		"no truth":          {"imageCache: {diskSelector: 'disk.size'}", "volumes.imageCache.diskSelector", "true or false"},
		"no size":           {"ephemeral: {minSize: large}", "volumes.ephemeral.minSize", "50GiB"},
		"nothing at least":  {"ephemeral: {minSize: '0'}", "volumes.ephemeral.minSize", "50GiB"},
		"negative":          {"ephemeral: {maxSize: -1GiB}", "volumes.ephemeral.maxSize", "80%"},
		"more than a disk":  {"ephemeral: {maxSize: 101%}", "volumes.ephemeral.maxSize", "80%"},
		"sizes":             {"ephemeral: {minSize: 2GiB, maxSize: 1GiB}", "volumes.ephemeral.maxSize", "less than minSize, which is 2GiB"},
		"no keys":           {"state: {encryption: {}}", "volumes.state.encryption.keys", "needs a key"},
		"no slot":           {keys + "{type: tpm}]}}", key + ".slot", "0 to 31"},
		"high slot":         {keys + "{slot: 32, type: tpm}]}}", "volumes.ephemeral.encryption.keys[32].slot", "0 to 31"},
		"no type":           {keys + "{slot: 0}]}}", key + ".type", "nodeID"},
		"same slot":         {keys + "{slot: 0, type: tpm}, {slot: 0, type: nodeID}]}}", key, "two keys"},
		"same key":          {keys + "{slot: 1, type: nodeID}, {slot: 0, type: nodeID}]}}", key, "same key as that of slot 1"},
		"state in itself":   {"state: {encryption: {keys: [{slot: 0, type: tpm, lockToState: true}]}}", "volumes.state.encryption.keys[0].lockToState", "to itself"},
		"no service":        {keys + "{slot: 0, type: kms}]}}", key + ".kms", "needs a service"},
		"service of TPM":    {keys + "{slot: 0, type: tpm, kms: {endpoint: 'https://a'}}]}}", key + ".kms", "type kms"},
		"TPM of a service":  {keys + "{slot: 0, type: nodeID, tpm: {checkSecureBoot: true}}]}}", key + ".tpm", "type tpm"},
		"two policies":      {keys + "{slot: 0, type: tpm, tpm: {pcrs: [7], signedPolicyOnly: true}}]}}", key + ".tpm", "one of them"},
		"no endpoint":       {keys + "{slot: 0, type: kms, kms: {endpoint: kms}}]}}", key + ".kms.endpoint", "https://HOST:PORT"},
		"with credentials":  {keys + "{slot: 0, type: kms, kms: {endpoint: 'https://u:hunter2hunter2@kms:1'}}]}}", key + ".kms.endpoint", "no credentials"},
		"of an old cluster": {"imageCache: {encryption: {keys: [{slot: 0, type: tpm}]}}", "volumes.imageCache.encryption", "v1.11 or later"},
	} {
		in := plainInput(t, machineconfig.Worker)
		in.Volumes = volumesOf(t, "{"+tt.volumes+"}")

		if name == "of an old cluster" {
			in.Contract = "v1.10"
		}

		refused(t, name, in, tt.field, tt.problem)

		_, err := machineconfig.Render(in)
		mustNotLeak(t, err.Error())
	}
}

// TestChangesVolumes: which differences are about the volumes of Talos.
func TestChangesVolumes(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		change machineconfig.Change
		want   bool
	}{
		{machineconfig.Change{Document: "VolumeConfig/EPHEMERAL", New: "added"}, true},
		{machineconfig.Change{Document: "VolumeConfig/STATE", Path: "encryption.keys[0].slot"}, true},
		{machineconfig.Change{Path: "machine.systemDiskEncryption.state.provider"}, true},
		{machineconfig.Change{Document: "UserVolumeConfig/data", New: "added"}, true},
		{machineconfig.Change{Document: "ExistingVolumeConfig/data", New: "added"}, false},
		{machineconfig.Change{Path: "machine.sysctls"}, false},
	} {
		if d := (machineconfig.Difference{Changes: []machineconfig.Change{tt.change}}); d.ChangesVolumes() != tt.want {
			t.Errorf("%+v: %t", tt.change, !tt.want)
		}
	}
}

// TestKeysOfVolumesCount: the type of a key is a difference, although Talos writes some as an empty mapping, and so is
// the hash of the config.
func TestKeysOfVolumesCount(t *testing.T) {
	t.Parallel()

	for _, versions := range contracts {
		seen := map[string]string{}

		for _, key := range []string{"{slot: 0, type: nodeID}", "{slot: 0, type: tpm}", "{slot: 0, type: tpm, tpm: {signedPolicyOnly: true}}"} {
			in := plainInput(t, machineconfig.Worker)
			in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
			in.Volumes = volumesOf(t, "{ephemeral: {encryption: {keys: ["+key+"]}}}")

			out, err := machineconfig.Render(in)
			if err != nil {
				if !strings.Contains(err.Error(), "v1.12 or later") {
					t.Error(err)
				}

				continue
			}

			for config, other := range seen {
				diff, err := machineconfig.Diff([]byte(config), out.Bytes)
				if err != nil || diff.Equal() || !diff.ChangesVolumes() {
					t.Errorf("%s: %s is no change from %s: %v", versions.talos, key, other, err)
				}

				if hash, err := machineconfig.Hash([]byte(config)); err != nil || hash == out.Hash {
					t.Errorf("%s: %s has the hash of %s: %v", versions.talos, key, other, err)
				}
			}

			seen[string(out.Bytes)] = key
		}
	}
}
