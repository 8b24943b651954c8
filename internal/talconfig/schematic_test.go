package talconfig_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/talconfig"
)

// TestSchematicID has the IDs that the image factory gives.
func TestSchematicID(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
		"extraKernelArgs: [noapic, nolapic]\n": "9cba8e32",
		"customization:\n  meta: [{key: 10, value: foo}]\n":                                    "d308a2a5",
		"secureboot: {includeWellKnownCertificates: true}\n":                                   "fa8e05f1",
		"systemExtensions: {officialExtensions: [siderolabs/gvisor, siderolabs/amd-ucode]}\n":  "a993cf18",
		"systemExtensions: {officialExtensions: [siderolabs/amd-ucode, siderolabs/gvisor]}\n":  "ed510afb",
		"overlay: {image: siderolabs/sbc-raspberrypi, name: rpi_generic}\ncustomization: {}\n": "ee21ef4a",
		"customization:\n  diskImage: {sectorSize: 4096}\n":                                    "92833e9d",
	} {
		schematic, err := talconfig.ReadSchematic("schematic.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}

		id, err := schematic.ID()
		if err != nil || !strings.HasPrefix(id, want) {
			t.Errorf("%q: got %s, %v, want %s", text, id, err, want)
		}
	}

	if _, err := talconfig.ReadSchematic("schematic.yaml", []byte("extraKernelArg: [a]\n")); err == nil ||
		!strings.Contains(err.Error(), "did you mean extraKernelArgs?") {
		t.Errorf("got %v", err)
	}
}
