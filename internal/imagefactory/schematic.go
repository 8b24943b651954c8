// Package imagefactory computes what an image factory calls a schematic, and where the images of it are. It asks no
// factory.
//
// The library of the factory, image-factory/pkg/schematic, is not used: it requires a pre-release of the machinery
// library, whose defaults would become those of every machine config.
package imagefactory

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

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

// Text is the schematic as a factory takes it, and as it is hashed.
func (s *Schematic) Text() ([]byte, error) {
	raw, err := yaml.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("rendering the schematic: %w", err)
	}

	return raw, nil
}

// ID is what the image factory calls the schematic: the SHA-256 of its text. No factory has to be asked.
func (s *Schematic) ID() (string, error) {
	raw, err := s.Text()
	if err != nil {
		return "", err
	}

	sum := sha256.Sum256(raw)

	return hex.EncodeToString(sum[:]), nil
}

// plainID is the ID of the schematic that adds nothing.
const plainID = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// HasOverlay reports whether the schematic with an ID has an overlay, which a single-board computer needs to boot.
// known is false unless the text is that of the ID: then nothing but the ID is known of the schematic.
func HasOverlay(id, text string) (has, known bool) {
	if id == plainID {
		return false, true
	}

	sum := sha256.Sum256([]byte(text))
	if hex.EncodeToString(sum[:]) != id {
		return false, false
	}

	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "overlay:") { // what is below other fields is indented
			return true, true
		}
	}

	return false, true
}
