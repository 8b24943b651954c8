package machineconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TestRetag: only a tag that is a version is replaced.
func TestRetag(t *testing.T) {
	for in, want := range map[string]string{
		"ghcr.io/siderolabs/installer:v1.12.1":             "ghcr.io/siderolabs/installer:v1.13.0",
		"registry.example:5000/installer:v1.12.1":          "registry.example:5000/installer:v1.13.0",
		"registry.example:5000/installer":                  "",
		"":                                                 "",
		"ghcr.io/siderolabs/installer:latest":              "",
		"ghcr.io/siderolabs/installer:v1.12.1@sha256:1234": "",
		"ghcr.io/siderolabs/installer@sha256:" + strings.Repeat("a", 64): "",
	} {
		got, ok := machineconfig.Retag(in, "v1.12.1", "v1.13.0")
		if got != want || ok != (want != "") {
			t.Errorf("%s: %q, %t", in, got, ok)
		}
	}
}

// TestNamedTag: a tag beside a digest is read, and the port of a registry is no tag.
func TestNamedTag(t *testing.T) {
	for in, want := range map[string]struct {
		tag, without string
		pinned       bool
	}{
		"r.example:5000/installer:v1.13.0@sha256:1234": {"v1.13.0", "r.example:5000/installer:v1.13.0", true},
		"r.example:5000/installer@sha256:1234":         {"", "r.example:5000/installer", true},
		"r.example:5000/installer:v1.13.0":             {"v1.13.0", "r.example:5000/installer:v1.13.0", false},
		"":                                             {},
	} {
		tag, without, pinned := machineconfig.NamedTag(in), machineconfig.WithoutDigest(in), machineconfig.Pinned(in)
		if tag != want.tag || without != want.without || pinned != want.pinned {
			t.Errorf("%s: %q, %q, %t", in, tag, without, pinned)
		}
	}
}

// TestSchematic: the last part of a repository is the ID of a schematic, if it looks like one.
func TestSchematic(t *testing.T) {
	id, other := strings.Repeat("0a", 32), strings.Repeat("1b", 32)

	for in, want := range map[string]string{
		"factory.talos.dev/installer/" + id + ":v1.13.0":                id,
		"factory.talos.dev/metal-installer/" + id + "@sha256:" + other:  id,
		"registry.example:5000/mirror/installer/" + id:                  id,
		"ghcr.io/siderolabs/installer:v1.13.0":                          "",
		"ghcr.io/siderolabs/installer/" + strings.ToUpper(id) + ":v1.1": "",
		"": "",
	} {
		if got := machineconfig.Schematic(in); got != want {
			t.Errorf("%s: %q", in, got)
		}
	}

	got := machineconfig.WithSchematic("factory.talos.dev/installer/"+id+":v1.13.0", other)
	if got != "factory.talos.dev/installer/"+other+":v1.13.0" {
		t.Error(got)
	}

	for _, in := range []string{"ghcr.io/siderolabs/installer:v1.13.0", "factory.talos.dev/installer/" + id + ":v1.13.0"} {
		if got := machineconfig.WithSchematic(in, ""); got != in {
			t.Error(got)
		}
	}
}

// TestInstallImage reads the image from a config, with and without one.
func TestInstallImage(t *testing.T) {
	for in, want := range map[string]string{
		"machine:\n  install:\n    image: a/b:v1\n":    "a/b:v1",
		"machine:\n  install: {}\n":                    "",
		"kind: HostnameConfig\napiVersion: v1alpha1\n": "",
	} {
		if got, err := machineconfig.InstallImage([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}

	if _, err := machineconfig.InstallImage([]byte("machine: [")); err == nil {
		t.Error("a broken config has an image")
	}
}

// TestFactory: a config names the installer of a factory, and none is made with one that was refused.
func TestFactory(t *testing.T) {
	id := strings.Repeat("0a", 32)
	in := plainInput(t, machineconfig.Worker)
	in.Install.Factory = &imagefactory.Image{ID: id, Version: in.TalosVersion, Platform: "nocloud", SecureBoot: true}

	image, err := machineconfig.InstallImage(render(t, in).Bytes)
	if err != nil || image != "factory.talos.dev/nocloud-installer-secureboot/"+id+":v1.13.9" {
		t.Errorf("got %s, %v", image, err)
	}

	in.Install.Image = "mine/installer:v1.13.9"

	image, err = machineconfig.InstallImage(render(t, in).Bytes)
	if err != nil || image != "mine/installer:v1.13.9" {
		t.Errorf("got %s, %v", image, err)
	}

	in.Install.Refused = &machineconfig.InputError{Field: "spec.install.image"}

	var bad *machineconfig.InputError
	if _, err := machineconfig.Render(in); !errors.As(err, &bad) || bad.Field != "spec.install.image" {
		t.Errorf("got %v", err)
	}
}
