package machineconfig

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// ConfiguredVolume is what a config says about a volume that Talos provisions.
type ConfiguredVolume struct {
	// Place is where it is provisioned, and its minimum size; Data is its type and file system; Format is how it is
	// encrypted, apart from its keys. They can be compared, and are empty for the defaults of Talos.
	Place, Data, Format string
	// Limit is how large it becomes.
	Limit VolumeLimit
	// Grow is true if the config says so. Talos enlarges the volume up to its limit at a boot then.
	Grow bool
	// Encrypted is true if it is to be encrypted.
	Encrypted bool
	// Keys that open it, by their slots.
	Keys map[int]VolumeKey
}

// VolumeLimit is the maximum size of a volume: in bytes, or a share of its disk in percent. Zero is no limit. Negative
// means that the bytes stay free.
type VolumeLimit struct {
	Bytes, Share uint64
	Negative     bool
}

// Above reports whether a volume with this limit may become larger than with the other one. It is false for limits that
// cannot be compared.
func (l VolumeLimit) Above(other VolumeLimit) bool {
	switch {
	case l == VolumeLimit{}:
		return true
	case l.Negative || other.Negative || other == VolumeLimit{} || (l.Share == 0) != (other.Share == 0):
		return false
	case l.Share > 0:
		return l.Share > other.Share
	}

	return l.Bytes > other.Bytes
}

// VolumeKey is a key of a volume.
type VolumeKey struct {
	// Type as a node reports it: static, nodeID, kms or tpm.
	Type string
	// Identity can be compared. It reveals nothing of a passphrase.
	Identity string
}

// systemVolumes are the volumes that each machine may have, whether its config names them or not.
var systemVolumes = []string{
	constants.EphemeralPartitionLabel, constants.ImageCachePartitionLabel, constants.StatePartitionLabel,
}

// volumeKinds are the documents about volumes that Talos provisions, with what it puts before their names.
var volumeKinds = map[string]string{
	block.VolumeConfigKind: "", block.UserVolumeConfigKind: constants.UserVolumePrefix,
	block.RawVolumeConfigKind: constants.RawVolumePrefix, block.SwapVolumeConfigKind: constants.SwapVolumePrefix,
}

// legacyEncryption is the field of the main document about the encryption of volumes.
const legacyEncryption = "machine.systemDiskEncryption"

// ChangesVolumes reports whether a difference is about volumes that Talos provisions.
func (d Difference) ChangesVolumes() bool {
	return slices.ContainsFunc(d.Changes, func(c Change) bool {
		kind, _, _ := strings.Cut(c.Document, "/")
		_, isVolume := volumeKinds[kind]

		return isVolume || c.Document == "" && (c.Path == "" || isUnder(c.Path, legacyEncryption))
	})
}

// ConfiguredVolumes reads what a config says about volumes, by the names that a node reports them with: EPHEMERAL,
// u-NAME and so on. Those of Talos are always among them.
func ConfiguredVolumes(data []byte) (map[string]ConfiguredVolume, error) {
	docs, err := splitDocuments(data)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	out := map[string]ConfiguredVolume{}
	for _, name := range systemVolumes {
		out[name] = ConfiguredVolume{}
	}

	for _, doc := range docs {
		prefix, isVolume := volumeKinds[doc.kind]
		if !doc.isMain() && !isVolume {
			continue
		}

		_, cfg := typedView(doc)
		if cfg == nil {
			return nil, errors.New("reading the config: " + doc.id() + " has fields that this operator does not know")
		}

		if doc.isMain() {
			addLegacyEncryption(out, cfg)

			continue
		}

		name := prefix + doc.name
		volume := out[name]

		if err := volume.add(cfg); err != nil {
			return nil, err
		}

		out[name] = volume
	}

	return out, nil
}

func addLegacyEncryption(volumes map[string]ConfiguredVolume, cfg config.Provider) {
	if cfg.Machine() == nil || cfg.Machine().SystemDiskEncryption() == nil {
		return
	}

	for _, name := range systemVolumes {
		volume := volumes[name]
		volume.encrypt(cfg.Machine().SystemDiskEncryption().Get(name))
		volumes[name] = volume
	}
}

// provisioned is what documents about volumes have in common.
type provisioned interface {
	Provisioning() docconfig.VolumeProvisioningConfig
	Encryption() docconfig.EncryptionConfig
}

// add reads what the only document of a config says about a volume.
func (v *ConfiguredVolume) add(cfg config.Provider) error {
	for _, doc := range cfg.Documents() {
		doc, ok := doc.(provisioned)
		if !ok {
			continue
		}

		place, err := placeOf(doc.Provisioning())
		if err != nil {
			return err
		}

		v.Place, v.Limit, v.Grow = place, limitOf(doc.Provisioning()), doc.Provisioning().Grow().ValueOrZero()
		v.encrypt(doc.Encryption())

		if user, ok := doc.(docconfig.UserVolumeConfig); ok {
			v.Data = fmt.Sprint(user.Type().ValueOrZero(), " ", user.Filesystem().Type())
		}
	}

	return nil
}

// placeOf leaves out whether the volume grows, and how large, which may change.
func placeOf(p docconfig.VolumeProvisioningConfig) (string, error) {
	var parts []string

	if selector, ok := p.DiskSelector().Get(); ok {
		text, err := selector.MarshalText()
		if err != nil {
			return "", fmt.Errorf("reading a disk selector: %s", describe(err))
		}

		parts = append(parts, string(text))
	}

	if low, ok := p.MinSize().Get(); ok {
		parts = append(parts, fmt.Sprintf("min %d", low))
	}

	return strings.Join(parts, ", "), nil
}

func limitOf(p docconfig.VolumeProvisioningConfig) VolumeLimit {
	high, limited := p.MaxSize().Get()
	if !limited {
		return VolumeLimit{}
	}

	return VolumeLimit{Bytes: high, Share: p.RelativeMaxSize().ValueOrZero(), Negative: p.MaxSizeNegative()}
}

func (v *ConfiguredVolume) encrypt(e docconfig.EncryptionConfig) {
	if e == nil {
		return
	}

	v.Encrypted, v.Keys = true, map[int]VolumeKey{}
	v.Format = fmt.Sprint(e.Provider(), " ", e.Cipher(), " ", e.KeySize(), " ", e.BlockSize())

	for _, k := range e.Keys() {
		v.Keys[k.Slot()] = keyOf(k)
	}
}

func keyOf(k docconfig.EncryptionKey) VolumeKey {
	var kind, detail string

	switch {
	case k.Static() != nil:
		kind, detail = "static", string(k.Static().Key())
	case k.NodeID() != nil:
		kind = "nodeID"
	case k.KMS() != nil:
		kind, detail = "kms", k.KMS().Endpoint()
	case k.TPM() != nil:
		kind, detail = "tpm", fmt.Sprint(k.TPM().PCRs())
	}

	sum := sha256.Sum256([]byte(fmt.Sprintf("%s %t %s", kind, k.LockToSTATE(), detail)))

	return VolumeKey{Type: kind, Identity: string(sum[:])}
}
