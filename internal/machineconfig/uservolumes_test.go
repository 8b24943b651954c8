package machineconfig_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	kyaml "sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	volumedocs "github.com/talos-operator/talos-operator/internal/machineconfig/volume"
)

// TestUserVolumes: each version of Talos gets the volumes of users, accepted by the machinery's own validation; those that
// it cannot have are refused with the path of the field.
func TestUserVolumes(t *testing.T) {
	t.Parallel()

	for sample, refusal := range map[string]map[string]string{
		"v1.10": {}, "v1.11": {"v1.10": "volumes.raw"}, "v1.12": {"v1.10": "volumes.user[disk].type", "v1.11": "volumes.user[disk].type"},
		"v1.13": {"v1.10": "volumes.existing", "v1.11": "volumes.external", "v1.12": "volumes.external"},
	} {
		text, err := os.ReadFile("testdata/services/volumes-user-" + sample + ".yaml")
		if err != nil {
			t.Fatal(err)
		}

		for _, versions := range contracts {
			minor := versions.talos[:strings.LastIndex(versions.talos, ".")]
			in := plainInput(t, machineconfig.Worker)
			in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
			in.Volumes = volumesOf(t, string(text))

			if at := refusal[minor]; at != "" {
				refused(t, sample+" of "+minor, in, at, sample+" or later")

				continue
			}

			config := render(t, in).Bytes
			judge(t, config)

			var documents [][]byte
			for _, kind := range []string{"UserVolumeConfig", "RawVolumeConfig", "SwapVolumeConfig", "ExistingVolumeConfig", "ExternalVolumeConfig"} {
				if part := documentsOf(config, kind); len(part) > 0 {
					documents = append(documents, part)
				}
			}

			golden(t, "volumes-user-"+sample+"-"+minor+".yaml", bytes.Join(documents, []byte("---\n")))

			read, err := machineconfig.ConfiguredVolumes(config)
			if err != nil || len(read) != 3+len(in.Volumes.User)+len(in.Volumes.Raw)+len(in.Volumes.Swap) {
				t.Errorf("%s of %s is read as %+v, %v", sample, minor, read, err)
			}

			if sample == "v1.11" && (!read["r-csi"].Encrypted || read["u-data"].Keys[0].Type != "tpm" || read["s-swap0"].Place == "") {
				t.Errorf("%s of %s is read as %+v", sample, minor, read)
			}
		}
	}
}

// TestUserVolumeRefusals: what cannot work is refused with the path of the field.
func TestUserVolumeRefusals(t *testing.T) {
	t.Parallel()

	const place = "diskSelector: 'disk.rotational', minSize: 1GiB"

	for name, tt := range map[string]struct{ volumes, field, problem string }{
		"name":             {"user: [{name: a_b, " + place + "}]", "volumes.user[a_b].name", "letters, digits and -"},
		"twice":            {"user: [{name: a, " + place + "}, {name: a, " + place + "}]", "volumes.user[a]", "listed twice"},
		"raw twice":        {"raw: [{name: a, " + place + "}, {name: a, " + place + "}]", "volumes.raw[a]", "listed twice"},
		"no disk":          {"user: [{name: a, minSize: 1GiB}]", "volumes.user[a].diskSelector", "needs a disk"},
		"no size":          {"swap: [{name: a, diskSelector: 'disk.rotational'}]", "volumes.swap[a].minSize", "maxSize, or both"},
		"no expression":    {"raw: [{name: a, minSize: 1GiB, diskSelector: disk}]", "volumes.raw[a].diskSelector", "true or false"},
		"no keys":          {"user: [{name: a, " + place + ", encryption: {}}]", "volumes.user[a].encryption.keys", "needs a key"},
		"type":             {"user: [{name: a, type: tape, " + place + "}]", "volumes.user[a].type", "partition"},
		"file system":      {"user: [{name: a, filesystem: fat, " + place + "}]", "volumes.user[a].filesystem", "ext4"},
		"directory":        {"user: [{name: a, type: directory, minSize: 1GiB}]", "volumes.user[a]", "of the ephemeral volume"},
		"size of a disk":   {"user: [{name: a, type: disk, " + place + "}]", "volumes.user[a]", "whole disk"},
		"system disk":      {"user: [{name: a, type: disk, diskSelector: '!system_disk'}]", "volumes.user[a].diskSelector", "does not know"},
		"existing":         {"existing: [{name: a, volumeSelector: volume}]", "volumes.existing[a].volumeSelector", "true or false"},
		"one mount point":  {"existing: [{name: a, volumeSelector: 'true'}], user: [{name: a, type: directory}]", "volumes.existing[a]", "/var/mnt/a"},
		"existing's name":  {"existing: [{name: a/b, volumeSelector: 'true'}]", "volumes.existing[a/b].name", "letters, digits and -"},
		"external's name":  {"external: [{name: a/b, tag: c}]", "volumes.external[a/b].name", "letters, digits and -"},
		"external's mount": {"existing: [{name: a, volumeSelector: 'true'}], external: [{name: a, tag: c}]", "volumes.external[a]", "/var/mnt/a"},
		"no tag":           {"external: [{name: a}]", "volumes.external[a].tag", "the host gave"},
		"key of an old":    {"user: [{name: a, " + place + ", encryption: {keys: [{slot: 0, type: tpm}]}}]", "volumes.user[a].encryption", "v1.11 or later"},
		"share of an old":  {"user: [{name: a, diskSelector: 'disk.rotational', maxSize: 10%}]", "volumes.user[a].maxSize", "v1.12 or later"},
		"policy of an old": {"raw: [{name: a, " + place + ", encryption: {keys: [{slot: 0, type: tpm, tpm: {pcrs: [1]}}]}}]", "volumes.raw", "v1.11 or later"},
		"mount of v1.12":   {"user: [{name: a, " + place + ", secure: false}]", "volumes.user[a].secure", "v1.13 or later"},
		"reads of v1.12":   {"existing: [{name: a, volumeSelector: 'true', disableAccessTime: true}]", "volumes.existing[a].disableAccessTime", "v1.13 or later"},
	} {
		in := plainInput(t, machineconfig.Worker)
		in.Volumes = volumesOf(t, "{"+tt.volumes+"}")

		switch {
		case strings.HasSuffix(name, "of an old"):
			in.Contract = "v1.10"
		case strings.HasSuffix(name, "of v1.12"):
			in.Contract = "v1.12"
		}

		refused(t, name, in, tt.field, tt.problem)
	}
}

// TestMachineKeepsEncryption: the machine of the example that has another disk than its group keeps its encryption, as do
// volumes of users. One that describes keys has these.
func TestMachineKeepsEncryption(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("../../examples/volumes.yaml")
	if err != nil {
		t.Fatal(err)
	}

	_, text, _ = bytes.Cut(text, []byte("\n---\n"))

	var workers v1alpha1.TalosWorker
	if err := kyaml.UnmarshalStrict(text, &workers); err != nil {
		t.Fatal(err)
	}

	in := plainInput(t, machineconfig.Worker)
	in.Volumes = volumedocs.Merge(workers.Spec.Volumes, workers.Spec.Machines[1].Volumes)

	read, err := machineconfig.ConfiguredVolumes(render(t, in).Bytes)
	if v := read["EPHEMERAL"]; err != nil || v.Keys[0].Type != "nodeID" || v.Place != "" || v.Limit.Share != 80 {
		t.Errorf("%s is configured as %+v, %v", workers.Spec.Machines[1].Name, v, err)
	}

	const keys = "encryption: {keys: [{slot: 0, type: nodeID}]}"

	merged := volumedocs.Merge(
		volumesOf(t, "{state: {"+keys+"}, user: [{name: a, "+keys+"}, {name: b, "+keys+"}], raw: [{name: c, "+keys+"}]}"),
		volumesOf(t, "{state: {}, user: [{name: b, maxSize: 1GiB}, {name: d, type: directory}], raw: [{name: c, maxSize: 1GiB, "+
			strings.ReplaceAll(keys, "nodeID", "tpm")+"}]}"),
	)
	if len(merged.User) != 3 || merged.User[1].Encryption == nil || merged.User[1].MaxSize != "1GiB" || merged.State.Encryption == nil ||
		merged.User[2].Encryption != nil || len(merged.Raw) != 1 || merged.Raw[0].Encryption.Keys[0].Type != v1alpha1.VolumeKeyTPM {
		t.Errorf("merged: %+v", merged)
	}
}

// TestWhatVolumesAreComparedBy: the file system and the type of a volume, its maximum size, and whether it grows.
func TestWhatVolumesAreComparedBy(t *testing.T) {
	t.Parallel()

	read := func(fields string) machineconfig.ConfiguredVolume {
		volumes, err := machineconfig.ConfiguredVolumes([]byte("apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\n" + fields))
		if err != nil {
			t.Fatal(err)
		}

		return volumes["u-data"]
	}

	plain := read("provisioning: {maxSize: 1GiB}\n")
	if ext4 := read("provisioning: {maxSize: 1GiB}\nfilesystem: {type: ext4}\n"); ext4.Data == plain.Data {
		t.Errorf("another file system: %+v", ext4)
	}

	if v := read("volumeType: directory\n"); v.Data == plain.Data {
		t.Errorf("another type: %+v", v)
	}

	larger := read("provisioning: {maxSize: 2GiB, grow: true}\n")
	if !larger.Grow || plain.Grow || larger.Place != plain.Place || !larger.Limit.Above(plain.Limit) || plain.Limit.Above(larger.Limit) {
		t.Errorf("larger: %+v, and before %+v", larger, plain)
	}

	half, most := read("provisioning: {maxSize: 50%}\n"), read("provisioning: {maxSize: 80%}\n")
	if !most.Limit.Above(half.Limit) || half.Limit.Above(most.Limit) || most.Limit.Above(plain.Limit) || plain.Limit.Above(most.Limit) {
		t.Errorf("shares: %+v, %+v", half.Limit, most.Limit)
	}
}
