package node

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-operator/talos-operator/lab/node/disk"
)

// openVolumes provisions the volumes of Talos that are new, and opens those that are encrypted, as a real node does:
// with the lowest slot whose key is that of the configuration. Then it writes all keys of the configuration. A volume
// that does not open ends the boot there, and the node stays reachable.
func (s *session) openVolumes(ctx context.Context) error {
	cfg, _ := s.complete()

	for _, label := range []string{disk.State, disk.Ephemeral} {
		status, err := s.openVolume(label, encryptionOf(cfg, label))
		if err != nil {
			return err
		}

		s.mu.Lock()
		s.volumes[label] = status
		s.mu.Unlock()

		s.showDisks()

		if status.failed != "" {
			s.logf("volume %s failed: %s", label, status.failed)
			<-ctx.Done()

			return ctx.Err()
		}
	}

	return nil
}

// encryptionOf is how a configuration has a volume encrypted; nil for not at all.
func encryptionOf(cfg config.Provider, label string) docconfig.EncryptionConfig {
	if doc, ok := cfg.Volumes().ByName(label); ok && doc.Encryption() != nil {
		return doc.Encryption()
	}

	return cfg.Machine().SystemDiskEncryption().Get(label)
}

// volume is how a boot has opened a volume.
type volume struct {
	failed string
	slot   int
	// keys are the types of the keys that it is configured for, sorted, each once; none if it is not encrypted.
	keys []string
}

// show adds what the node tells of it.
func (v volume) show(label string, spec block.VolumeStatusSpec) block.VolumeStatusSpec {
	switch {
	case v.failed != "":
		spec.PreFailPhase, spec.Phase, spec.ErrorMessage = block.VolumePhaseLocated, block.VolumePhaseFailed, v.failed
	case len(v.keys) > 0:
		slot := v.slot
		spec.EncryptionProvider, spec.EncryptionSlot = block.EncryptionProviderLUKS2, &slot
		spec.ConfiguredEncryptionKeys, spec.MountLocation = v.keys, "/dev/mapper/luks2-"+label
	}

	return spec
}

func (s *session) openVolume(label string, encryption docconfig.EncryptionConfig) (volume, error) {
	out, want := volume{slot: -1}, map[int]string{}

	if encryption != nil {
		for _, k := range encryption.Keys() {
			kind, key := keyOf(k)
			want[k.Slot()], out.keys = key, append(out.keys, kind)
		}

		slices.Sort(out.keys)
		out.keys = slices.Compact(out.keys) // Talos tells each type once
	}

	have, formatted, err := s.n.system.Keys(label)
	if err != nil {
		return out, err
	}

	if !formatted {
		have = want
	}

	switch {
	case len(have) == 0 && len(want) > 0:
		out.failed = "error opening encrypted volume: block dev type mismatch: xfs != luks"
	case len(have) > 0 && len(want) == 0:
		out.failed = "filesystem type mismatch: luks != xfs"
	case len(want) > 0:
		if out.slot = opener(have, want); out.slot < 0 {
			out.failed = "error opening encrypted volume: no handlers available to get encryption keys from"
		}
	}

	if out.failed != "" {
		return out, nil
	}

	return out, s.n.system.SetKeys(label, want)
}

// opener is the slot that opens a volume; negative for none.
func opener(have, want map[int]string) int {
	for _, slot := range slices.Sorted(maps.Keys(want)) {
		if have[slot] == want[slot] {
			return slot
		}
	}

	return -1
}

// keyOf is the type of a key, and what makes it the key that it is.
func keyOf(k docconfig.EncryptionKey) (kind, key string) {
	switch {
	case k.Static() != nil:
		return block.EncryptionKeyStatic.String(), "static " + string(k.Static().Key())
	case k.NodeID() != nil:
		return block.EncryptionKeyNodeID.String(), "nodeID"
	case k.KMS() != nil:
		return block.EncryptionKeyKMS.String(), "kms " + k.KMS().Endpoint()
	default:
		return block.EncryptionKeyTPM.String(), fmt.Sprint("tpm ", k.TPM().PCRs())
	}
}
