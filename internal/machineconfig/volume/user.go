package volume

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/block"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

// fileSystems and userTypes are what Talos calls what a spec names.
var (
	fileSystems = map[string]resources.FilesystemType{
		"": resources.FilesystemTypeNone, "xfs": resources.FilesystemTypeXFS, "ext4": resources.FilesystemTypeEXT4,
	}
	userTypes = map[api.UserVolumeType]resources.VolumeType{
		api.UserVolumePartition: resources.VolumeTypePartition, api.UserVolumeDisk: resources.VolumeTypeDisk,
		api.UserVolumeDirectory: resources.VolumeTypeDirectory,
	}
	volumeName = regexp.MustCompile(`^[A-Za-z0-9-]{1,34}$`)
)

// mergeNamed returns the volumes of a group, each replaced by that of the same name of a machine, sorted by name.
// inherit gives one of a machine what it keeps of that of the group; nil for nothing.
func mergeNamed[T any](group, machine []T, name func(T) string, inherit func(group, machine T) T) []T {
	own := slices.Clone(machine)

	for i := range own {
		at := slices.IndexFunc(group, func(g T) bool { return name(g) == name(own[i]) })
		if at >= 0 && inherit != nil {
			own[i] = inherit(group[at], own[i])
		}
	}

	return optional.MergeSorted(group, own, name)
}

// inheritUser keeps no encryption for a directory, which cannot have one.
func inheritUser(group, machine api.UserVolume) api.UserVolume {
	if machine.Encryption == nil && machine.Type != api.UserVolumeDirectory {
		machine.Encryption = group.Encryption
	}

	return machine
}

func inheritPartition(group, machine api.PartitionVolume) api.PartitionVolume {
	if machine.Encryption == nil {
		machine.Encryption = group.Encryption
	}

	return machine
}

func userName(v api.UserVolume) string           { return v.Name }
func partitionName(v api.PartitionVolume) string { return v.Name }
func existingName(v api.ExistingVolume) string   { return v.Name }
func externalName(v api.ExternalVolume) string   { return v.Name }

// named is a volume of a user that Talos provisions.
type named struct {
	at         *field.Path
	kind, name string
	api.VolumeOptions
}

func allNamed(root *field.Path, v *api.Volumes) []named {
	if v == nil {
		return nil
	}

	var out []named
	for _, u := range v.User {
		out = append(out, userVolume(root, u))
	}

	for _, p := range v.Raw {
		out = append(out, rawVolume(root, p))
	}

	for _, p := range v.Swap {
		out = append(out, swapVolume(root, p))
	}

	return out
}

func userVolume(root *field.Path, u api.UserVolume) named {
	return named{root.Child("user").Key(u.Name), block.UserVolumeConfigKind, u.Name, u.VolumeOptions}
}

func rawVolume(root *field.Path, p api.PartitionVolume) named {
	return named{root.Child("raw").Key(p.Name), block.RawVolumeConfigKind, p.Name, p.VolumeOptions}
}

func swapVolume(root *field.Path, p api.PartitionVolume) named {
	return named{root.Child("swap").Key(p.Name), block.SwapVolumeConfigKind, p.Name, p.VolumeOptions}
}

// userDocuments returns the documents about volumes of users, which have passed checkUser.
func userDocuments(v *api.Volumes, p passphrases) ([]docconfig.Document, error) {
	if v == nil {
		return nil, nil
	}

	var docs []docconfig.Document

	root := field.NewPath(Root)

	for _, u := range v.User {
		doc := block.NewUserVolumeConfigV1Alpha1()
		if err := p.fill(userVolume(root, u), &doc.MetaName, &doc.ProvisioningSpec, &doc.EncryptionSpec); err != nil {
			return nil, err
		}

		if u.Type != "" && u.Type != api.UserVolumePartition {
			kind := userTypes[u.Type]
			doc.VolumeType = &kind
		}

		doc.FilesystemSpec.FilesystemType = fileSystems[u.Filesystem]
		doc.MountSpec.MountSecure, doc.MountSpec.MountDisableAccessTime = u.Secure, u.DisableAccessTime
		docs = append(docs, doc)
	}

	for _, one := range v.Raw {
		doc := block.NewRawVolumeConfigV1Alpha1()
		if err := p.fill(rawVolume(root, one), &doc.MetaName, &doc.ProvisioningSpec, &doc.EncryptionSpec); err != nil {
			return nil, err
		}

		docs = append(docs, doc)
	}

	for _, one := range v.Swap {
		doc := block.NewSwapVolumeConfigV1Alpha1()
		if err := p.fill(swapVolume(root, one), &doc.MetaName, &doc.ProvisioningSpec, &doc.EncryptionSpec); err != nil {
			return nil, err
		}

		docs = append(docs, doc)
	}

	for _, e := range v.Existing {
		expression, err := cel.ParseBooleanExpression(e.VolumeSelector, celenv.VolumeLocator())
		if err != nil {
			return nil, fmt.Errorf("reading the selector of %s: %w", e.Name, err)
		}

		doc := block.NewExistingVolumeConfigV1Alpha1()
		doc.MetaName, doc.VolumeDiscoverySpec.VolumeSelectorConfig.Match = e.Name, expression
		doc.MountSpec.MountReadOnly = e.ReadOnly
		doc.MountSpec.MountSecure, doc.MountSpec.MountDisableAccessTime = e.Secure, e.DisableAccessTime
		docs = append(docs, doc)
	}

	for _, e := range v.External {
		doc := block.NewExternalVolumeConfigV1Alpha1()
		doc.MetaName, doc.FilesystemType = e.Name, resources.FilesystemTypeVirtiofs
		doc.MountSpec.MountReadOnly, doc.MountSpec.MountVirtiofs = e.ReadOnly, &block.VirtiofsMountSpec{VirtiofsTag: e.Tag}
		doc.MountSpec.MountSecure, doc.MountSpec.MountDisableAccessTime = e.Secure, e.DisableAccessTime
		docs = append(docs, doc)
	}

	return docs, nil
}

func (p passphrases) fill(
	n named, into *string, place *block.ProvisioningSpec, keys *block.EncryptionSpec,
) (err error) {
	if *place, err = provisioning(n.VolumeOptions); err != nil {
		return err
	}

	if n.Encryption != nil {
		*keys = encryption(n.at, n.Encryption, p)
	}

	*into = n.name

	return nil
}

// checkUser refuses volumes of users that cannot work.
func checkUser(root *field.Path, v *api.Volumes) field.ErrorList {
	if v == nil {
		return nil
	}

	var errs field.ErrorList

	for _, n := range allNamed(root, v) {
		errs = append(errs, checkName(n.at, n.name)...)
		errs = append(errs, checkProvisioning(n.at, n.VolumeOptions)...)
		errs = append(errs, checkEncryption(n.at.Child("encryption"), system{"", n.VolumeOptions})...)
	}

	mounted := map[string]bool{}

	for _, u := range v.User {
		at := root.Child("user").Key(u.Name)
		if mounted[u.Name] {
			errs = append(errs, field.Invalid(at, u.Name, "is listed twice"))
		}

		mounted[u.Name] = true

		errs = append(errs, checkType(at, u)...)
	}

	for kind, volumes := range map[string][]api.PartitionVolume{"raw": v.Raw, "swap": v.Swap} {
		seen := map[string]bool{}

		for _, p := range volumes {
			at := root.Child(kind).Key(p.Name)
			if seen[p.Name] {
				errs = append(errs, field.Invalid(at, p.Name, "is listed twice"))
			}

			seen[p.Name] = true

			errs = append(errs, needsPlace(at, p.VolumeOptions)...)
		}
	}

	errs = append(errs, checkExisting(root.Child("existing"), v.Existing, mounted)...)

	return append(errs, checkExternal(root.Child("external"), v.External, mounted)...)
}

func checkName(at *field.Path, name string) field.ErrorList {
	if volumeName.MatchString(name) {
		return nil
	}

	return field.ErrorList{field.Invalid(at.Child("name"), name,
		"is not the name of a volume: use letters, digits and -, at most 34 of them")}
}

func checkType(at *field.Path, u api.UserVolume) field.ErrorList {
	var errs field.ErrorList

	if _, known := userTypes[u.Type]; !known && u.Type != "" {
		errs = append(errs, field.NotSupported(at.Child("type"), u.Type,
			[]api.UserVolumeType{api.UserVolumePartition, api.UserVolumeDisk, api.UserVolumeDirectory}))
	}

	if _, known := fileSystems[u.Filesystem]; !known {
		errs = append(errs, field.NotSupported(at.Child("filesystem"), u.Filesystem, []string{"xfs", "ext4"}))
	}

	switch u.Type {
	case api.UserVolumeDirectory:
		if u.VolumeOptions != (api.VolumeOptions{}) || u.Filesystem != "" {
			errs = append(errs, field.Forbidden(at, "is a directory of the ephemeral volume, which has a disk, a size, a file "+
				"system and encryption of its own"))
		}
	case api.UserVolumeDisk:
		if u.MinSize != "" || u.MaxSize != "" || u.Grow != nil {
			errs = append(errs, field.Forbidden(at, "is a whole disk; remove minSize, maxSize and grow"))
		}

		switch {
		case u.DiskSelector == "":
			errs = append(errs, field.Required(at.Child("diskSelector"), "a volume needs a disk"))
		case strings.Contains(u.DiskSelector, "system_disk"):
			errs = append(errs, field.Invalid(at.Child("diskSelector"), u.DiskSelector,
				"has system_disk, which Talos does not know where it selects whole disks"))
		}
	case api.UserVolumePartition, "":
		errs = append(errs, needsPlace(at, u.VolumeOptions)...)
	}

	return errs
}

func needsPlace(at *field.Path, v api.VolumeOptions) field.ErrorList {
	var errs field.ErrorList

	if v.DiskSelector == "" {
		errs = append(errs, field.Required(at.Child("diskSelector"), "a volume needs a disk"))
	}

	if v.MinSize == "" && v.MaxSize == "" {
		errs = append(errs, field.Required(at.Child("minSize"), "a volume needs minSize, maxSize, or both"))
	}

	return errs
}

func checkExisting(root *field.Path, volumes []api.ExistingVolume, mounted map[string]bool) field.ErrorList {
	var errs field.ErrorList

	for _, e := range volumes {
		at := root.Key(e.Name)
		errs = append(errs, checkName(at, e.Name)...)

		if mounted[e.Name] {
			errs = append(errs, field.Invalid(at, e.Name, "has the name of another volume, and both are mounted at /var/mnt/"+
				e.Name))
		}

		mounted[e.Name] = true

		if _, err := cel.ParseBooleanExpression(e.VolumeSelector, celenv.VolumeLocator()); err != nil {
			errs = append(errs, field.Invalid(at.Child("volumeSelector"), e.VolumeSelector,
				"is not an expression about a volume that is true or false: "+oneLine(err)))
		}
	}

	return errs
}

func checkExternal(root *field.Path, volumes []api.ExternalVolume, mounted map[string]bool) field.ErrorList {
	var errs field.ErrorList

	for _, e := range volumes {
		at := root.Key(e.Name)
		errs = append(errs, checkName(at, e.Name)...)

		if mounted[e.Name] {
			errs = append(errs, field.Invalid(at, e.Name, "has the name of another volume, and both are mounted at /var/mnt/"+
				e.Name))
		}

		mounted[e.Name] = true

		if e.Tag == "" {
			errs = append(errs, field.Required(at.Child("tag"), "name the tag that the host gave the file system"))
		}
	}

	return errs
}

// checkUserContract refuses volumes of users that clusters of a version contract cannot have.
func checkUserContract(root *field.Path, v *api.Volumes, contract *config.VersionContract, since sinceFunc) {
	if v == nil {
		return
	}

	at10, at11 := contract.Greater(config.TalosVersion1_9), contract.VolumeConfigEncryptionSupported()
	at12, at13 := contract.Greater(config.TalosVersion1_11), contract.Greater(config.TalosVersion1_12)

	since(root.Child("user"), len(v.User) > 0, "v1.10", at10)
	since(root.Child("raw"), len(v.Raw) > 0, "v1.11", at11)
	since(root.Child("swap"), len(v.Swap) > 0, "v1.11", at11)
	since(root.Child("existing"), len(v.Existing) > 0, "v1.11", at11)
	since(root.Child("external"), len(v.External) > 0, "v1.13", at13)

	for _, u := range v.User {
		at := root.Child("user").Key(u.Name)
		since(at.Child("type"), u.Type != "" && u.Type != api.UserVolumePartition, "v1.12", at12)
		since(at.Child("encryption"), u.Encryption != nil, "v1.11", at11)
		checkMount(at, u.MountOptions, at13, since)
	}

	for _, e := range v.Existing {
		checkMount(root.Child("existing").Key(e.Name), e.MountOptions, at13, since)
	}

	for _, n := range allNamed(root, v) {
		checkOptions(n.at, n.VolumeOptions, at11, at12, since)
	}
}

func checkMount(at *field.Path, m api.MountOptions, at13 bool, since sinceFunc) {
	since(at.Child("secure"), m.Secure != nil, "v1.13", at13)
	since(at.Child("disableAccessTime"), m.DisableAccessTime != nil, "v1.13", at13)
}
