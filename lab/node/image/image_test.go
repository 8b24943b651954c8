package image_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/lab/node/image"
)

// TestReference: the tag and the schematic of an image are found behind the port of a registry, and before a digest.
func TestReference(t *testing.T) {
	t.Parallel()

	id := strings.Repeat("0a", 32)

	for ref, want := range map[string][2]string{
		"ghcr.io/siderolabs/installer:v1.13.9":                                       {"v1.13.9", ""},
		"factory.talos.dev/installer/" + id + ":v1.13.9":                             {"v1.13.9", id},
		"registry.internal:5000/installer/" + id + ":v1.13.9":                        {"v1.13.9", id},
		"registry.internal:5000/installer/" + id:                                     {"", id},
		"registry.internal:5000/installer/" + id + ":v1.13.9@" + image.Digest("any"): {"v1.13.9", id},
		"registry.internal:5000/installer/" + id + "@" + image.Digest("any"):         {"", id},
		"registry.internal:5000/installer/" + id[1:] + ":v1.13.9":                    {"v1.13.9", ""},
		"registry.internal:5000/installer":                                           {"", ""},
	} {
		if got := [2]string{image.Tag(ref), image.Schematic(ref)}; got != want {
			t.Errorf("%s: %q, want %q", ref, got, want)
		}
	}
}
