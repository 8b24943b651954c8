// Package volume turns what the specs say about the volumes of Talos into the documents that Talos reads, or, for
// clusters that are older than those, into fields of the main document. Check refuses what Talos would only notice on
// the machine, when it is too late.
package volume

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/block"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

// Root is the name of the field, with which the paths of errors begin.
const Root = "volumes"

// Labels are the names that Talos has for its volumes, by their fields.
var Labels = map[string]string{
	"ephemeral":  constants.EphemeralPartitionLabel,
	"state":      constants.StatePartitionLabel,
	"imageCache": constants.ImageCachePartitionLabel,
}

// system is a volume, whatever its kind.
type system struct {
	field string
	api.VolumeOptions
}

func all(v *api.Volumes) []system {
	if v == nil {
		return nil
	}

	var out []system
	if v.Ephemeral != nil {
		out = append(out, system{"ephemeral", *v.Ephemeral})
	}

	if v.State != nil {
		out = append(out, system{"state", api.VolumeOptions{Encryption: v.State.Encryption}})
	}

	if v.ImageCache != nil {
		out = append(out, system{"imageCache", *v.ImageCache})
	}

	return out
}

// Merge returns the volumes of a group. One that a machine describes itself replaces that of the group, apart from the
// encryption, which a machine that says nothing about it keeps: it is not turned off by giving one another size.
func Merge(group, machine *api.Volumes) *api.Volumes {
	if group == nil || machine == nil {
		return optional.Either(group, machine)
	}

	out := *group
	out.User = mergeNamed(group.User, machine.User, userName, inheritUser)
	out.Raw = mergeNamed(group.Raw, machine.Raw, partitionName, inheritPartition)
	out.Swap = mergeNamed(group.Swap, machine.Swap, partitionName, inheritPartition)
	out.Existing = mergeNamed(group.Existing, machine.Existing, existingName, nil)
	out.External = mergeNamed(group.External, machine.External, externalName, nil)
	out.Ephemeral = mergeOptions(group.Ephemeral, machine.Ephemeral)
	out.ImageCache = mergeOptions(group.ImageCache, machine.ImageCache)

	if machine.State != nil && machine.State.Encryption != nil {
		out.State = machine.State
	}

	return &out
}

func mergeOptions(group, machine *api.VolumeOptions) *api.VolumeOptions {
	if group == nil || machine == nil || machine.Encryption != nil {
		return optional.Either(group, machine)
	}

	out := *machine
	out.Encryption = group.Encryption

	return &out
}

// HasTPM reports whether a volume has a key that the TPM seals.
func HasTPM(v *api.Volumes) bool {
	options := make([]api.VolumeOptions, 0, len(Labels))
	for _, s := range all(v) {
		options = append(options, s.VolumeOptions)
	}

	for _, n := range allNamed(nil, v) {
		options = append(options, n.VolumeOptions)
	}

	return slices.ContainsFunc(options, func(o api.VolumeOptions) bool {
		return o.Encryption != nil && slices.ContainsFunc(o.Encryption.Keys, func(k api.VolumeKey) bool {
			return k.Type == api.VolumeKeyTPM
		})
	})
}

// Documents returns the documents about volumes that have passed Check. What a version contract cannot express is an
// error. values are the passphrases.
func Documents(
	v *api.Volumes, values keyref.Values, contract *config.VersionContract,
) ([]docconfig.Document, field.ErrorList) {
	var docs []docconfig.Document

	problems := checkContract(field.NewPath(Root), v, contract)
	p := passphrases{values, &problems}

	for _, s := range all(v) {
		doc := block.NewVolumeConfigV1Alpha1()
		doc.MetaName = Labels[s.field]

		spec, err := provisioning(s.VolumeOptions)
		if err != nil {
			problems = append(problems, field.Invalid(field.NewPath(Root, s.field), "", err.Error()))
		}

		doc.ProvisioningSpec = spec

		if s.Encryption != nil && contract.VolumeConfigEncryptionSupported() {
			doc.EncryptionSpec = encryption(field.NewPath(Root, s.field), s.Encryption, p)
		}

		if !doc.ProvisioningSpec.IsZero() || !doc.EncryptionSpec.IsZero() {
			docs = append(docs, doc)
		}
	}

	users, err := userDocuments(v, p)
	if err != nil {
		problems = append(problems, field.Invalid(field.NewPath(Root), "", err.Error()))
	}

	return append(docs, users...), problems
}

func provisioning(v api.VolumeOptions) (block.ProvisioningSpec, error) {
	out := block.ProvisioningSpec{ProvisioningGrow: v.Grow}

	if v.DiskSelector != "" {
		expression, err := cel.ParseBooleanExpression(v.DiskSelector, celenv.DiskLocator())
		if err != nil {
			return out, fmt.Errorf("reading the disk selector: %w", err)
		}

		out.DiskSelectorSpec.Match = expression
	}

	if err := out.ProvisioningMinSize.UnmarshalText([]byte(v.MinSize)); err != nil {
		return out, fmt.Errorf("reading the minimum size: %w", err)
	}

	if err := out.ProvisioningMaxSize.UnmarshalText([]byte(v.MaxSize)); err != nil {
		return out, fmt.Errorf("reading the maximum size: %w", err)
	}

	return out, nil
}

func encryption(at *field.Path, e *api.VolumeEncryption, p passphrases) block.EncryptionSpec {
	out := block.EncryptionSpec{
		EncryptionProvider: resources.EncryptionProviderLUKS2, EncryptionCipher: e.Cipher,
		EncryptionKeySize: uint(e.KeySize), EncryptionBlockSize: uint64(e.BlockSize), EncryptionPerfOptions: e.Options,
	}

	for _, k := range e.Keys {
		key := block.EncryptionKey{KeySlot: slotOf(k), KeyLockToSTATE: k.LockToState}

		switch k.Type {
		case api.VolumeKeyTPM:
			key.KeyTPM = tpm(k.TPM)
		case api.VolumeKeyNodeID:
			key.KeyNodeID = &block.EncryptionKeyNodeID{}
		case api.VolumeKeyKMS:
			key.KeyKMS = &block.EncryptionKeyKMS{KMSEndpoint: k.KMS.Endpoint}
		case api.VolumeKeyStatic:
			key.KeyStatic = &block.EncryptionKeyStatic{KeyData: p.of(at, k)}
		}

		out.EncryptionKeys = append(out.EncryptionKeys, key)
	}

	return out
}

func tpm(o *api.VolumeKeyTPMOptions) *block.EncryptionKeyTPM {
	out := &block.EncryptionKeyTPM{}
	if o == nil {
		return out
	}

	out.TPMCheckSecurebootStatusOnEnroll = o.CheckSecureBoot

	if len(o.PCRs) > 0 || o.SignedPolicyOnly != nil && *o.SignedPolicyOnly {
		out.TPMOptions = &block.EncryptionKeyTPMOptions{PCRs: []int{}} // without options, Talos takes PCR 7
	}

	for _, pcr := range o.PCRs {
		out.TPMOptions.PCRs = append(out.TPMOptions.PCRs, int(pcr))
	}

	return out
}

func slotOf(k api.VolumeKey) int {
	if k.Slot == nil {
		return 0
	}

	return int(*k.Slot)
}

// Legacy writes the encryption of volumes as Talos before 1.11 wants it: inside the main document. values are the
// passphrases.
func Legacy(
	v *api.Volumes, values keyref.Values, contract *config.VersionContract, m *v1alpha1.MachineConfig,
) field.ErrorList {
	if contract.VolumeConfigEncryptionSupported() {
		return nil
	}

	var problems field.ErrorList

	p := passphrases{values, &problems}

	for _, s := range all(v) {
		if s.Encryption == nil {
			continue
		}

		if m.MachineSystemDiskEncryption == nil {
			m.MachineSystemDiskEncryption = &v1alpha1.SystemDiskEncryptionConfig{}
		}

		at := field.NewPath(Root, s.field)

		switch s.field {
		case "ephemeral":
			m.MachineSystemDiskEncryption.EphemeralPartition = legacy(at, s.Encryption, p)
		case "state":
			m.MachineSystemDiskEncryption.StatePartition = legacy(at, s.Encryption, p)
		}
	}

	return problems
}

func legacy(at *field.Path, e *api.VolumeEncryption, p passphrases) *v1alpha1.EncryptionConfig {
	out := &v1alpha1.EncryptionConfig{
		EncryptionProvider: resources.EncryptionProviderLUKS2.String(), EncryptionCipher: e.Cipher,
		EncryptionKeySize: uint(e.KeySize), EncryptionBlockSize: uint64(e.BlockSize), EncryptionPerfOptions: e.Options,
	}

	for _, k := range e.Keys {
		key := &v1alpha1.EncryptionKey{KeySlot: slotOf(k)}

		switch k.Type {
		case api.VolumeKeyTPM:
			key.KeyTPM = &v1alpha1.EncryptionKeyTPM{}
			if k.TPM != nil {
				key.KeyTPM.TPMCheckSecurebootStatusOnEnroll = k.TPM.CheckSecureBoot
			}
		case api.VolumeKeyNodeID:
			key.KeyNodeID = &v1alpha1.EncryptionKeyNodeID{}
		case api.VolumeKeyKMS:
			key.KeyKMS = &v1alpha1.EncryptionKeyKMS{KMSEndpoint: k.KMS.Endpoint}
		case api.VolumeKeyStatic:
			key.KeyStatic = &v1alpha1.EncryptionKeyStatic{KeyData: p.of(at, k)}
		}

		out.EncryptionKeys = append(out.EncryptionKeys, key)
	}

	return out
}

// checkContract refuses what clusters of a version contract cannot have.
func checkContract(root *field.Path, v *api.Volumes, contract *config.VersionContract) field.ErrorList {
	var errs field.ErrorList

	var since sinceFunc = func(at *field.Path, set bool, minor string, has bool) {
		if set && !has {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("needs a cluster that was created with Talos %s or later, and "+
				"this one has the configuration of %s; remove the field", minor, contract)))
		}
	}

	at11, at12 := contract.VolumeConfigEncryptionSupported(), contract.Greater(config.TalosVersion1_11)

	for _, s := range all(v) {
		at := root.Child(s.field)
		since(at.Child("encryption"), s.field == "imageCache" && s.Encryption != nil, "v1.11", at11)
		checkOptions(at, s.VolumeOptions, at11, at12, since)
	}

	checkUserContract(root, v, contract, since)

	return errs
}

// sinceFunc records a field that is set, and that only clusters of a later version can have.
type sinceFunc func(at *field.Path, set bool, minor string, has bool)

func checkOptions(at *field.Path, v api.VolumeOptions, at11, at12 bool, since sinceFunc) {
	since(at.Child("maxSize"), strings.HasSuffix(v.MaxSize, "%"), "v1.12", at12)

	if v.Encryption == nil {
		return
	}

	for _, k := range v.Encryption.Keys {
		at := at.Child("encryption", "keys").Key(fmt.Sprint(slotOf(k)))
		since(at.Child("lockToState"), k.LockToState != nil && *k.LockToState, "v1.11", at11)

		if k.TPM != nil {
			since(at.Child("tpm", "pcrs"), len(k.TPM.PCRs) > 0, "v1.12", at12)
			since(at.Child("tpm", "signedPolicyOnly"), k.TPM.SignedPolicyOnly != nil, "v1.12", at12)
		}
	}
}
