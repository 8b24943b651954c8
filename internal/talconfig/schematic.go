package talconfig

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"text/template"

	"github.com/blang/semver/v4"
	"go.yaml.in/yaml/v4"
)

// Schematic is what an image factory puts into an image. Its fields are in the order that the factory hashes.
type Schematic struct {
	Owner         string        `yaml:"owner,omitempty"`
	Overlay       *Overlay      `yaml:"overlay,omitempty"`
	Customization Customization `yaml:"customization"`
}

// Overlay supports a single-board computer.
type Overlay struct {
	Image   string         `yaml:"image"`
	Name    string         `yaml:"name"`
	Options map[string]any `yaml:"options,omitempty"`
}

// Customization of an image.
type Customization struct {
	EmbeddedMachineConfiguration string           `yaml:"embeddedMachineConfiguration,omitempty"`
	ExtraKernelArgs              []string         `yaml:"extraKernelArgs,omitempty"`
	Meta                         []MetaValue      `yaml:"meta,omitempty"`
	SystemExtensions             SystemExtensions `yaml:"systemExtensions,omitempty"`
	Bootloader                   string           `yaml:"bootloader,omitempty"`
	SecureBoot                   SecureBootKeys   `yaml:"secureboot,omitempty"`
	DiskImage                    DiskImage        `yaml:"diskImage,omitempty"`
}

// MetaValue is one value of the META partition.
type MetaValue struct {
	Key   uint8  `yaml:"key"`
	Value string `yaml:"value"`
}

// SystemExtensions of an image. Their order is part of the schematic.
type SystemExtensions struct {
	OfficialExtensions []string `yaml:"officialExtensions,omitempty"`
}

// SecureBootKeys are further keys for Secure Boot.
type SecureBootKeys struct {
	IncludeWellKnownCertificates bool `yaml:"includeWellKnownCertificates,omitempty"`
}

// DiskImage are settings of disk images.
type DiskImage struct {
	SectorSize uint `yaml:"sectorSize,omitempty"`
}

// ID is what the image factory calls the schematic: the SHA-256 of its YAML. No factory has to be asked.
func (s *Schematic) ID() (string, error) {
	raw, err := yaml.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("rendering the schematic: %w", err)
	}

	sum := sha256.Sum256(raw)

	return hex.EncodeToString(sum[:]), nil
}

// ReadSchematic reads a schematic, or only its customization, as genurl gets it in a file.
func ReadSchematic(path string, raw []byte) (*Schematic, error) {
	root, err := parseTree(raw)
	if err != nil {
		return nil, err
	}

	out := &Schematic{}
	if root == nil {
		return out, nil
	}

	r := &report{file: path, lines: map[string]int{}}

	if child(root, "customization") == nil && child(root, "overlay") == nil {
		root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Tag: "!!str", Value: "customization"}, root,
		}}
	}

	strict{r}.check(root, reflect.TypeFor[Schematic](), "")

	if err := r.err(); err != nil {
		return nil, err
	}

	return out, decode(root, out)
}

// Defaults of images.
const (
	DefaultRegistry          = "factory.talos.dev"
	DefaultSchematicEndpoint = "/schematics"
	defaultMode              = "metal"
	defaultArch              = "amd64"
)

// Boot methods.
const (
	BootISO  = "iso"
	BootDisk = "disk-image"
	BootPXE  = "pxe"
)

// Image is an image of a version of Talos for one kind of machine.
type Image struct {
	Factory ImageFactory
	Spec    MachineSpec
	// ID of the schematic.
	ID string
	// Version of Talos, with v.
	Version string
}

// imageFields are what templates of URLs may name, with the names that talhelper has.
type imageFields struct {
	RegistryURL, ID, Version, Mode, Arch, Protocol, BootMethod, ImageSuffix string
	Secureboot, UseUKI                                                      bool
}

func (i Image) fields() imageFields {
	return imageFields{
		RegistryURL: cmp.Or(i.Factory.RegistryURL, DefaultRegistry), Protocol: cmp.Or(i.Factory.Protocol, "https"),
		ID: i.ID, Version: "v" + strings.TrimPrefix(i.Version, "v"),
		Mode: cmp.Or(i.Spec.Mode, defaultMode), Arch: cmp.Or(i.Spec.Arch, defaultArch),
		BootMethod: cmp.Or(i.Spec.BootMethod, BootISO), ImageSuffix: i.Spec.ImageSuffix,
		Secureboot: i.Spec.Secureboot, UseUKI: i.Spec.UseUKI,
	}
}

// Installer is the reference of the installer image.
func (i Image) Installer() (string, error) {
	f := i.fields()
	if i.Factory.InstallerURLTmpl != "" {
		return execute(i.Factory.InstallerURLTmpl, f)
	}

	name := "installer"
	// Since 1.10 an installer has its platform baked in.
	if since(f.Version, 10) {
		name = f.Mode + "-installer"
	}

	return f.RegistryURL + "/" + name + secureSuffix(f) + "/" + f.ID + ":" + f.Version, nil
}

// Boot is the URL of the image that a machine boots: an ISO, a disk image, or the script of a network boot.
func (i Image) Boot() (string, error) {
	f := i.fields()
	if i.Factory.ISOURLTmpl != "" {
		return execute(i.Factory.ISOURLTmpl, f)
	}

	machine := f.Mode + "-" + f.Arch + secureSuffix(f)
	image := f.Protocol + "://" + f.RegistryURL + "/image/" + f.ID + "/" + f.Version + "/" + machine

	switch {
	case f.BootMethod == BootPXE:
		return f.Protocol + "://" + f.RegistryURL + "/pxe/" + f.ID + "/" + f.Version + "/" + machine, nil
	case f.BootMethod == BootDisk:
		return image + "." + cmp.Or(f.ImageSuffix, diskSuffix(f.Version)), nil
	case f.Secureboot && f.UseUKI:
		return image + "-uki.efi", nil
	}

	return image + "." + cmp.Or(f.ImageSuffix, BootISO), nil
}

func secureSuffix(f imageFields) string {
	if f.Secureboot {
		return "-secureboot"
	}

	return ""
}

// diskSuffix is how the factory packs disk images.
func diskSuffix(version string) string {
	if since(version, 10) {
		return "raw.zst"
	}

	return "raw.xz"
}

// since reports whether a version is at least 1.minor. Prereleases count as their release.
func since(version string, minor uint64) bool {
	v, err := semver.ParseTolerant(version)

	return err == nil && (v.Major > 1 || v.Major == 1 && v.Minor >= minor)
}

func execute(text string, data any) (string, error) {
	t, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("is not a Go template: %w", err)
	}

	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return "", fmt.Errorf("the template names a field that does not exist: %w", err)
	}

	return out.String(), nil
}

// InstallerOf is the installer image of a node.
func (f *Fleet) InstallerOf(m *Machine) (string, error) {
	version := f.Config.Version()
	if m.TalosImageURL != "" {
		return m.TalosImageURL + ":" + version, nil
	}

	image, err := f.image(m, m.Schematic)
	if err != nil {
		return "", err
	}

	return image.Installer()
}

// BootImageOf is the URL of the image that a node boots first.
func (f *Fleet) BootImageOf(m *Machine) (string, error) {
	schematic := m.ImageSchematic
	if schematic == nil {
		schematic = m.Schematic
	}

	image, err := f.image(m, schematic)
	if err != nil {
		return "", err
	}

	return image.Boot()
}

func (f *Fleet) image(m *Machine, schematic *Schematic) (Image, error) {
	id, err := f.idOf(schematic)
	image := Image{Factory: f.Config.ImageFactory, ID: id, Version: f.Config.Version()}

	if m.MachineSpec != nil {
		image.Spec = *m.MachineSpec
	}

	return image, err
}

// vanilla is the schematic of a node that has none.
var vanilla Schematic

// idOf computes the ID of a schematic once, also for many nodes.
func (f *Fleet) idOf(schematic *Schematic) (string, error) {
	if schematic == nil {
		schematic = &vanilla
	}

	if id, ok := f.ids.Load(schematic); ok {
		return id.(string), nil
	}

	id, err := schematic.ID()
	if err == nil {
		f.ids.Store(schematic, id)
	}

	return id, err
}
