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

// Without returns the volumes of a group without those whose keys a machine replaces: their passphrases are not read.
func Without(group, machine *api.Volumes) *api.Volumes {
	if group == nil || machine == nil {
		return group
	}

	out := *group
	if machine.State != nil && machine.State.Encryption != nil {
		out.State = nil
	}

	if o := machine.Ephemeral; o != nil && o.Encryption != nil {
		out.Ephemeral = nil
	}

	if o := machine.ImageCache; o != nil && o.Encryption != nil {
		out.ImageCache = nil
	}

	out.User = withoutNamed(group.User, machine.User, userName)
	out.Raw = withoutNamed(group.Raw, machine.Raw, partitionName)
	out.Swap = withoutNamed(group.Swap, machine.Swap, partitionName)

	return &out
}

func withoutNamed[T any](group, machine []T, name func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(group), func(one T) bool {
		return slices.ContainsFunc(machine, func(own T) bool { return name(own) == name(one) })
	})
}
