package talconfig

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/imagefactory"
)

// ReadSchematic reads a schematic, or only its customization, as genurl gets it in a file.
func ReadSchematic(path string, raw []byte) (*imagefactory.Schematic, error) {
	root, err := parseTree(raw)
	if err != nil {
		return nil, err
	}

	out := &imagefactory.Schematic{}
	if root == nil {
		return out, nil
	}

	r := &report{file: path, lines: map[string]int{}}

	if child(root, "customization") == nil && child(root, "overlay") == nil {
		root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Tag: "!!str", Value: "customization"}, root,
		}}
	}

	strict{r}.check(root, reflect.TypeFor[imagefactory.Schematic](), "")

	if err := r.err(); err != nil {
		return nil, err
	}

	return out, decode(root, out)
}

// Defaults of images.
const (
	DefaultRegistry          = imagefactory.DefaultRegistry
	DefaultSchematicEndpoint = "/schematics"
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
		Mode: cmp.Or(i.Spec.Mode, imagefactory.DefaultPlatform), Arch: cmp.Or(i.Spec.Arch, imagefactory.DefaultArch),
		BootMethod: cmp.Or(i.Spec.BootMethod, BootISO), ImageSuffix: i.Spec.ImageSuffix,
		Secureboot: i.Spec.Secureboot, UseUKI: i.Spec.UseUKI,
	}
}

// image is what the templates replace.
func (f imageFields) image() imagefactory.Image {
	return imagefactory.Image{
		Registry: f.RegistryURL, Address: f.Protocol + "://" + f.RegistryURL, ID: f.ID, Version: f.Version, Platform: f.Mode,
		Arch: f.Arch, SecureBoot: f.Secureboot,
	}
}

// Installer is the reference of the installer image.
func (i Image) Installer() (string, error) {
	f := i.fields()
	if i.Factory.InstallerURLTmpl != "" {
		return execute(i.Factory.InstallerURLTmpl, f)
	}

	return f.image().Installer(), nil
}

// Boot is the URL of the image that a machine boots: an ISO, a disk image, or the script of a network boot.
func (i Image) Boot() (string, error) {
	f := i.fields()
	if i.Factory.ISOURLTmpl != "" {
		return execute(i.Factory.ISOURLTmpl, f)
	}

	switch image := f.image(); {
	case f.BootMethod == BootPXE:
		return image.PXE(), nil
	case f.BootMethod == BootDisk:
		return image.Disk(cmp.Or(f.ImageSuffix, imagefactory.DiskSuffix(imagefactory.DefaultPlatform, f.Version))), nil
	case f.Secureboot && f.UseUKI:
		return image.UKI(), nil
	case f.ImageSuffix != "":
		return image.Disk(f.ImageSuffix), nil
	default:
		return image.ISO(), nil
	}
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

func (f *Fleet) image(m *Machine, schematic *imagefactory.Schematic) (Image, error) {
	id, err := f.idOf(schematic)
	image := Image{Factory: f.Config.ImageFactory, ID: id, Version: f.Config.Version()}

	if m.MachineSpec != nil {
		image.Spec = *m.MachineSpec
	}

	return image, err
}

// vanilla is the schematic of a node that has none.
var vanilla imagefactory.Schematic

// idOf computes the ID of a schematic once, also for many nodes.
func (f *Fleet) idOf(schematic *imagefactory.Schematic) (string, error) {
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
