package imagefactory_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/imagefactory"
)

// FuzzParse: the reference of an installer that is read is that of the same image when it is written.
func FuzzParse(f *testing.F) {
	id := strings.Repeat("0a", 32)

	f.Add("factory.talos.dev/metal-installer-secureboot/" + id + ":v1.13.0")
	f.Add("factory.talos.dev/installer/" + id + ":v1.9.0@sha256:" + id)
	f.Add("10.0.0.1:5000/mirror/nocloud-installer/" + id)
	f.Add("ghcr.io/siderolabs/installer:v1.13.0")
	f.Add("a:b/installer/" + id + ":")

	f.Fuzz(func(t *testing.T, reference string) {
		image, ok := imagefactory.Parse(reference)
		signed, known := imagefactory.Signing(reference)

		if ok && (!known || signed != image.SecureBoot) {
			t.Errorf("%q: signed %t, known %t, read as %+v", reference, signed, known, image)
		}

		if !ok {
			return
		}

		again, ok := imagefactory.Parse(image.Installer())
		if !ok || again.Registry != image.Registry || again.ID != image.ID || again.Version != image.Version ||
			again.SecureBoot != image.SecureBoot {
			t.Errorf("%q is read as %+v, which is written as %q", reference, image, image.Installer())
		}

		_ = image.Check()
	})
}

// blankBlock is a text of several lines that begins with a blank.
var blankBlock = regexp.MustCompile(`[|>][-+0-9]*\n(\n| *\t)`)

// FuzzSchematic: a schematic that is read and written is the same schematic, with the same ID.
func FuzzSchematic(f *testing.F) {
	f.Add([]byte("customization:\n  extraKernelArgs: [a=b]\n  systemExtensions: {officialExtensions: [siderolabs/gvisor]}\n"))
	f.Add([]byte("overlay: {image: siderolabs/sbc-raspberrypi, name: rpi_generic, options: {configTxt: \"a\\nb\"}}\n"))
	f.Add([]byte("customization: {meta: [{key: 12, value: \"a: b\"}], secureboot: {includeWellKnownCertificates: true}}\n"))
	f.Add([]byte("owner: \"\\x1b\"\ncustomization: {bootloader: grub, embeddedMachineConfiguration: \"a\\n b \"}\n"))

	f.Fuzz(func(t *testing.T, text []byte) {
		var first, second imagefactory.Schematic
		if !readSchematic(text, &first) {
			return
		}

		once, err := first.Text()
		if err != nil {
			t.Fatal(err)
		}

		// The library writes some texts that begin with a blank so that they read otherwise. A factory has the same library,
		// and hashes what it writes.
		if blankBlock.Match(once) {
			return
		}

		if !readSchematic(once, &second) {
			t.Fatalf("its own text cannot be read: %q", once)
		}

		twice, err := second.Text()
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%q is read and written as %q (%v)", once, twice, err)
		}

		_ = imagefactory.Image{Schematic: &first, Version: "v1.13.0", SecureBoot: true}.Check()
	})
}

// readSchematic reads a schematic. The YAML library panics on some texts, which those who read them for the product know.
func readSchematic(text []byte, into *imagefactory.Schematic) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()

	return yaml.Unmarshal(text, into) == nil
}
