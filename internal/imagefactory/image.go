package imagefactory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/platforms"
)

// Defaults of images.
const (
	// DefaultRegistry is the host of the public image factory.
	DefaultRegistry = "factory.talos.dev"
	DefaultPlatform = "metal"
	DefaultArch     = platforms.ArchAmd64
)

// Image is an image of a version of Talos for one kind of machine.
type Image struct {
	// Registry is the host that installers are pulled from, with a path if it has one. Default: the host of Address, with
	// its port and without its path.
	Registry string
	// Address is the URL of the factory, which boot images are fetched from. Default: that of the public factory.
	Address string
	// ID of the schematic. Resolve computes it where it is empty.
	ID string
	// Schematic that the ID is computed of; nil is one that adds nothing.
	Schematic *Schematic
	// Version of Talos, with or without v.
	Version string
	// Platform is the name that Talos has for it. Default: metal.
	Platform string
	// Arch is amd64 or arm64, which boot images are built for. Default: amd64.
	Arch string
	// SecureBoot is true for images that are signed for Secure Boot.
	SecureBoot bool
}

// Resolve fills in the defaults, and the ID of the schematic.
func (i Image) Resolve() (Image, error) {
	i.Address = strings.TrimSuffix(cmp.Or(i.Address, "https://"+DefaultRegistry), "/")

	if i.Registry == "" {
		_, rest, _ := strings.Cut(i.Address, "://")
		i.Registry, _, _ = strings.Cut(rest, "/") // a registry has its API at the root of its host
	}

	i.Version = "v" + strings.TrimPrefix(i.Version, "v")
	i.Platform = cmp.Or(i.Platform, DefaultPlatform)
	i.Arch = cmp.Or(i.Arch, DefaultArch)

	if i.ID != "" {
		return i, nil
	}

	schematic := i.Schematic
	if schematic == nil {
		schematic = &Schematic{}
	}

	var err error
	i.ID, err = schematic.ID()

	return i, err
}

// Installer is the reference of the installer image.
func (i Image) Installer() string {
	name := "installer"
	// Since 1.10 an installer has its platform baked in.
	if Since(i.Version, 10) {
		name = i.Platform + "-installer"
	}

	return i.Registry + "/" + name + i.secure() + "/" + i.ID + ":" + i.Version
}

// ISO is the URL of the ISO.
func (i Image) ISO() string { return i.file() + ".iso" }

// UKI is the URL of the unified kernel image.
func (i Image) UKI() string { return i.file() + "-uki.efi" }

// Disk is the URL of the disk image, with the end of its name, such as raw.zst.
func (i Image) Disk(suffix string) string { return i.file() + "." + suffix }

// PXE is the URL of the script of a network boot.
func (i Image) PXE() string { return i.path("pxe") + "/" + i.machine() }

func (i Image) file() string { return i.path("image") + "/" + i.machine() }

func (i Image) path(kind string) string { return i.Address + "/" + kind + "/" + i.ID + "/" + i.Version }

func (i Image) machine() string { return i.Platform + "-" + i.Arch + i.secure() }

func (i Image) secure() string {
	if i.SecureBoot {
		return secureSuffix
	}

	return ""
}

// secureSuffix ends the names of images that are signed for Secure Boot.
const secureSuffix = "-secureboot"

// DiskSuffix is how the factory packs the disk images of a version for a platform.
func DiskSuffix(platform, version string) string {
	p, known := platformOf(platform)

	switch {
	case known && p.Name != DefaultPlatform:
		return p.DiskImageSuffix
	case Since(version, 10):
		return "raw.zst"
	}

	return "raw.xz"
}

// BootsFrom are the boot methods of a platform: iso, disk-image and pxe; all of them for one that is unknown.
func BootsFrom(platform string) []string {
	if p, known := platformOf(platform); known {
		return p.BootMethods
	}

	return platforms.MetalPlatform().BootMethods
}

// platformOf finds what Talos knows of a platform.
func platformOf(name string) (platforms.Platform, bool) {
	all := allPlatforms()

	at := slices.IndexFunc(all, func(p platforms.Platform) bool { return p.Name == name })
	if at < 0 {
		return platforms.Platform{}, false
	}

	return all[at], true
}

func allPlatforms() []platforms.Platform {
	return append([]platforms.Platform{platforms.MetalPlatform()}, platforms.CloudPlatforms()...)
}

// Since reports whether a version is at least 1.minor. Prereleases count as their release.
func Since(version string, minor uint64) bool {
	v, err := semver.ParseTolerant(version)

	return err == nil && (v.Major > 1 || v.Major == 1 && v.Minor >= minor)
}

// Parse reads the reference of an installer of a factory; ok is false for every other image. Where the factory is, it
// does not tell: it may come from a mirror.
func Parse(reference string) (image Image, ok bool) {
	repository, _, _ := strings.Cut(reference, "@")
	if i := strings.LastIndex(repository, ":"); i > strings.LastIndex(repository, "/") {
		repository, image.Version = repository[:i], repository[i+1:]
	}

	parts := strings.Split(repository, "/")
	if len(parts) < 3 {
		return Image{}, false
	}

	name, id := parts[len(parts)-2], parts[len(parts)-1]
	if len(id) != idLength || strings.Trim(id, "0123456789abcdef") != "" {
		return Image{}, false
	}

	name, image.SecureBoot = strings.CutSuffix(name, secureSuffix)
	image.Registry, image.ID = strings.Join(parts[:len(parts)-2], "/"), id
	image.Platform, ok = strings.CutSuffix(name, "installer")
	image.Platform = strings.TrimSuffix(image.Platform, "-")

	return image, ok
}

// Signing tells of a reference to an installer whether it is signed for Secure Boot. known is false for an image whose
// name does not say that: one that is no image of a factory, nor the one of the Talos project.
func Signing(reference string) (signed, known bool) {
	if image, ok := Parse(reference); ok {
		return image.SecureBoot, true
	}

	repository, _, _ := strings.Cut(reference, "@")
	if i := strings.LastIndex(repository, ":"); i > strings.LastIndex(repository, "/") {
		repository = repository[:i]
	}

	return false, strings.HasSuffix("/"+repository, "/siderolabs/installer")
}

// idLength is the length of the ID of a schematic, a SHA-256 in hexadecimal.
const idLength = 2 * 32
