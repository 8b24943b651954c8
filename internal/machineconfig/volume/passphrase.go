package volume

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// shortestPassphrase is how many characters a passphrase needs: a status has a hash of it, and the secret with which it
// is made is in the configuration of each machine of the cluster.
const shortestPassphrase = 16

const passphraseForm = "a passphrase: one line of at least 16 characters"

func isPassphrase(text string) bool {
	return keyref.IsLine(text) && utf8.RuneCountInString(text) >= shortestPassphrase
}

// passphrases are those that were read, and the fields whose passphrase was not.
type passphrases struct {
	values keyref.Values
	errs   *field.ErrorList
}

func (p passphrases) of(volume *field.Path, k api.VolumeKey) string {
	return p.values.At(passphrasePath(volume, k), p.errs)
}

func passphrasePath(volume *field.Path, k api.VolumeKey) *field.Path {
	return volume.Child("encryption", "keys").Key(strconv.Itoa(slotOf(k))).Child("static", "passphraseFrom")
}

// Refs lists the fields that name passphrases; v may be nil.
func Refs(v *api.Volumes) []keyref.Ref {
	var out []keyref.Ref

	for _, s := range all(v) {
		out = append(out, refsOf(field.NewPath(Root, s.field), s.Encryption, block.VolumeConfigKind+"/"+Labels[s.field],
			"machine.systemDiskEncryption."+s.field)...)
	}

	for _, n := range allNamed(field.NewPath(Root), v) {
		out = append(out, refsOf(n.at, n.Encryption, n.kind+"/"+n.name, "")...)
	}

	return out
}

func refsOf(volume *field.Path, e *api.VolumeEncryption, document, legacy string) []keyref.Ref {
	if e == nil {
		return nil
	}

	var out []keyref.Ref

	for i, k := range e.Keys {
		if k.Static == nil {
			continue
		}

		ref := keyref.Ref{
			Field: passphrasePath(volume, k).String(), From: k.Static.PassphraseFrom,
			Document: document, Path: fmt.Sprintf("encryption.keys[%d].static", i),
			Form: passphraseForm, Fits: isPassphrase, Exact: true,
		}
		if legacy != "" {
			ref.Legacy = fmt.Sprintf("%s.keys[%d].static", legacy, i)
		}

		out = append(out, ref)
	}

	return out
}

// Without returns the volumes of a group without the encryption that a machine replaces, where that has passphrases:
// they are not read. What else the group says about these volumes stays.
func Without(group, machine *api.Volumes) *api.Volumes {
	if group == nil || machine == nil {
		return group
	}

	out := *group
	if own := machine.State; own != nil && own.Encryption != nil && group.State != nil {
		if out.State = group.State; withoutPassphrases(group.State.Encryption) == nil {
			out.State = nil
		}
	}

	out.Ephemeral = withoutReplaced(group.Ephemeral, machine.Ephemeral)
	out.ImageCache = withoutReplaced(group.ImageCache, machine.ImageCache)
	out.User = withoutNamed(group.User, machine.User, userName, func(u *api.UserVolume) *api.VolumeOptions {
		return &u.VolumeOptions
	}, func(u api.UserVolume) bool { return u.Encryption != nil || u.Type == api.UserVolumeDirectory })
	out.Raw = withoutNamed(group.Raw, machine.Raw, partitionName, optionsOf, isEncrypted)
	out.Swap = withoutNamed(group.Swap, machine.Swap, partitionName, optionsOf, isEncrypted)

	return &out
}

func optionsOf(p *api.PartitionVolume) *api.VolumeOptions { return &p.VolumeOptions }

func isEncrypted(p api.PartitionVolume) bool { return p.Encryption != nil }

func withoutReplaced(group, machine *api.VolumeOptions) *api.VolumeOptions {
	if group == nil || machine == nil || machine.Encryption == nil {
		return group
	}

	out := *group
	if out.Encryption = withoutPassphrases(group.Encryption); out == (api.VolumeOptions{}) {
		return nil
	}

	return &out
}

// withoutNamed does that with volumes that have names. replaces tells of one of a machine whether it keeps no
// encryption of the group.
func withoutNamed[T any](
	group, machine []T, name func(T) string, options func(*T) *api.VolumeOptions, replaces func(T) bool,
) []T {
	out := slices.Clone(group)

	for i := range out {
		if slices.ContainsFunc(machine, func(own T) bool { return name(own) == name(out[i]) && replaces(own) }) {
			o := options(&out[i])
			o.Encryption = withoutPassphrases(o.Encryption)
		}
	}

	return out
}

// withoutPassphrases returns an encryption that has no passphrases; nil for one that has.
func withoutPassphrases(e *api.VolumeEncryption) *api.VolumeEncryption {
	if e == nil || slices.ContainsFunc(e.Keys, func(k api.VolumeKey) bool { return k.Static != nil }) {
		return nil
	}

	return e
}
