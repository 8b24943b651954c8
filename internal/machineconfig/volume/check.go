package volume

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Check returns what cannot work with any version of Talos, or nothing. The paths of the errors begin with root, and
// name keys by their slots.
func Check(root *field.Path, v *api.Volumes) field.ErrorList {
	var errs field.ErrorList

	for _, s := range all(v) {
		at := root.Child(s.field)

		if s.VolumeOptions == (api.VolumeOptions{}) {
			errs = append(errs, field.Required(at, "is empty; set one of its fields, or remove it"))
		}

		errs = append(errs, checkProvisioning(at, s.VolumeOptions)...)
		errs = append(errs, checkEncryption(at.Child("encryption"), s)...)
	}

	return append(errs, checkUser(root, v)...)
}

func checkProvisioning(at *field.Path, v api.VolumeOptions) field.ErrorList {
	var (
		errs field.ErrorList
		low  block.ByteSize
		high block.Size
	)

	if v.DiskSelector != "" {
		if _, err := cel.ParseBooleanExpression(v.DiskSelector, celenv.DiskLocator()); err != nil {
			errs = append(errs, field.Invalid(at.Child("diskSelector"), v.DiskSelector,
				"is not an expression about a disk that is true or false: "+oneLine(err)))
		}
	}

	const sizes = "is not a size: write it like 50GiB or 100GB"

	err := low.UnmarshalText([]byte(v.MinSize))
	if err != nil || v.MinSize != "" && (low.IsNegative() || low.Value() == 0) {
		errs = append(errs, field.Invalid(at.Child("minSize"), v.MinSize, sizes))
	}

	err = high.UnmarshalText([]byte(v.MaxSize))
	share, relative := high.RelativeValue()

	switch {
	case v.MaxSize == "":
	case err != nil, high.IsNegative(), relative && (share == 0 || share > 100), !relative && high.Value() == 0:
		errs = append(errs, field.Invalid(at.Child("maxSize"), v.MaxSize, sizes+", or like 80%"))
	case !relative && low.Value() > high.Value():
		errs = append(errs, field.Invalid(at.Child("maxSize"), v.MaxSize, "is less than minSize, which is "+v.MinSize))
	}

	return errs
}

// oneLine is what CEL says, without the excerpt of the expression that it draws below.
func oneLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")

	return strings.TrimPrefix(first, "ERROR: ")
}

func checkEncryption(root *field.Path, s system) field.ErrorList {
	if s.Encryption == nil {
		return nil
	}

	var errs field.ErrorList

	if len(s.Encryption.Keys) == 0 {
		errs = append(errs, field.Required(root.Child("keys"), "an encrypted volume needs a key"))
	}

	seen, nodeID, named := map[int]bool{}, -1, map[api.SecretKeyReference]int{}

	for _, k := range s.Encryption.Keys {
		slot := slotOf(k)
		at := root.Child("keys").Key(strconv.Itoa(slot))

		if seen[slot] {
			errs = append(errs, field.Invalid(at, slot, "is the slot of two keys"))
		}

		seen[slot] = true

		if k.Type == api.VolumeKeyNodeID {
			if nodeID >= 0 {
				errs = append(errs, field.Invalid(at, slot, fmt.Sprintf("is the same key as that of slot %d", nodeID)))
			}

			nodeID = slot
		}

		if k.Static != nil {
			if other, taken := named[k.Static.PassphraseFrom]; taken {
				errs = append(errs, field.Invalid(at, slot, fmt.Sprintf("is the same key as that of slot %d", other)))
			}

			named[k.Static.PassphraseFrom] = slot
		}

		errs = append(errs, checkKey(at, s.field, k)...)
	}

	return errs
}

func checkKey(at *field.Path, volume string, k api.VolumeKey) field.ErrorList {
	var errs field.ErrorList

	if slot := slotOf(k); k.Slot == nil || slot < 0 || slot > 31 {
		errs = append(errs, field.Invalid(at.Child("slot"), slot, "must be a number from 0 to 31"))
	}

	switch k.Type {
	case api.VolumeKeyTPM, api.VolumeKeyNodeID, api.VolumeKeyKMS, api.VolumeKeyStatic:
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), k.Type,
			[]api.VolumeKeyType{api.VolumeKeyTPM, api.VolumeKeyNodeID, api.VolumeKeyKMS, api.VolumeKeyStatic}))
	}

	if k.LockToState != nil && *k.LockToState && volume == "state" {
		errs = append(errs, field.Forbidden(at.Child("lockToState"), "the state volume cannot be locked to itself"))
	}

	errs = append(errs, checkStatic(at.Child("static"), k)...)

	return append(errs, checkKeyOptions(at, k)...)
}

func checkStatic(at *field.Path, k api.VolumeKey) field.ErrorList {
	switch isStatic := k.Type == api.VolumeKeyStatic; {
	case isStatic && (k.Static == nil || k.Static.PassphraseFrom.Name == "" || k.Static.PassphraseFrom.Key == ""):
		return field.ErrorList{field.Required(at.Child("passphraseFrom"),
			"a key of the type static needs a passphrase: name a Secret and a key in it")}
	case !isStatic && k.Static != nil:
		return field.ErrorList{field.Forbidden(at, "belongs to keys of the type static")}
	}

	return nil
}

func checkKeyOptions(at *field.Path, k api.VolumeKey) field.ErrorList {
	var errs field.ErrorList

	switch {
	case k.TPM != nil && k.Type != api.VolumeKeyTPM:
		errs = append(errs, field.Forbidden(at.Child("tpm"), "belongs to keys of the type tpm"))
	case k.TPM != nil && len(k.TPM.PCRs) > 0 && k.TPM.SignedPolicyOnly != nil:
		errs = append(errs, field.Forbidden(at.Child("tpm"), "has pcrs and signedPolicyOnly; set one of them"))
	}

	switch {
	case k.Type == api.VolumeKeyKMS && k.KMS == nil:
		errs = append(errs, field.Required(at.Child("kms"), "a key of the type kms needs a service"))
	case k.Type != api.VolumeKeyKMS && k.KMS != nil:
		errs = append(errs, field.Forbidden(at.Child("kms"), "belongs to keys of the type kms"))
	case k.KMS != nil:
		errs = append(errs, checkEndpoint(at.Child("kms", "endpoint"), k.KMS.Endpoint)...)
	}

	return errs
}

// checkEndpoint quotes nothing of what is no endpoint: it may hold credentials.
func checkEndpoint(at *field.Path, endpoint string) field.ErrorList {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "grpc" || u.Path != "" || u.RawQuery != "" ||
		u.User != nil || u.Fragment != "" {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must be https://HOST:PORT, or grpc://HOST:PORT "+
			"without TLS; Talos sends no credentials")}
	}

	return nil
}
