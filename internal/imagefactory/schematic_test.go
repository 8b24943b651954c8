package imagefactory_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/imagefactory"
)

// vanilla is the ID of the schematic that adds nothing.
const vanilla = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

func extensions(names ...string) *imagefactory.Schematic {
	return &imagefactory.Schematic{Customization: imagefactory.Customization{
		SystemExtensions: imagefactory.SystemExtensions{OfficialExtensions: names},
	}}
}

// TestID has the IDs that image factories give. The order of the extensions is part of them.
func TestID(t *testing.T) {
	for name, c := range map[string]struct {
		of   *imagefactory.Schematic
		want string
	}{
		"nothing":    {&imagefactory.Schematic{}, vanilla},
		"extensions": {extensions("siderolabs/gvisor", "siderolabs/amd-ucode"), "a993cf18"},
		"order":      {extensions("siderolabs/amd-ucode", "siderolabs/gvisor"), "ed510afb"},
		"kernel arguments": {&imagefactory.Schematic{Customization: imagefactory.Customization{
			ExtraKernelArgs: []string{"noapic", "nolapic"},
		}}, "9cba8e32"},
		"META": {&imagefactory.Schematic{Customization: imagefactory.Customization{
			Meta: []imagefactory.MetaValue{{Key: 10, Value: "foo"}},
		}}, "d308a2a5"},
		"certificates": {&imagefactory.Schematic{Customization: imagefactory.Customization{
			SecureBoot: imagefactory.SecureBootKeys{IncludeWellKnownCertificates: true},
		}}, "fa8e05f1"},
		"overlay": {&imagefactory.Schematic{
			Overlay: &imagefactory.Overlay{Image: "siderolabs/sbc-raspberrypi", Name: "rpi_generic"},
		}, "ee21ef4a"},
		"sectors": {&imagefactory.Schematic{Customization: imagefactory.Customization{
			DiskImage: imagefactory.DiskImage{SectorSize: 4096},
		}}, "92833e9d"},
	} {
		id, err := c.of.ID()
		if err != nil || !strings.HasPrefix(id, c.want) || len(id) != len(vanilla) {
			t.Errorf("%s: got %s, %v, want %s", name, id, err, c.want)
		}
	}
}

// TestImage: names depend on the version, the platform and Secure Boot.
func TestImage(t *testing.T) {
	const id = "/" + vanilla

	for name, c := range map[string]struct {
		of              imagefactory.Image
		installer, boot string
	}{
		"defaults": {
			imagefactory.Image{Version: "1.13.9"},
			"factory.talos.dev/metal-installer" + id + ":v1.13.9",
			"https://factory.talos.dev/image" + id + "/v1.13.9/metal-amd64.raw.zst",
		},
		"before 1.10": {
			imagefactory.Image{Version: "v1.9.5", SecureBoot: true},
			"factory.talos.dev/installer-secureboot" + id + ":v1.9.5",
			"https://factory.talos.dev/image" + id + "/v1.9.5/metal-amd64-secureboot.raw.xz",
		},
		"another platform": {
			imagefactory.Image{Version: "v1.13.9", Platform: "nocloud", Arch: "arm64", SecureBoot: true},
			"factory.talos.dev/nocloud-installer-secureboot" + id + ":v1.13.9",
			"https://factory.talos.dev/image" + id + "/v1.13.9/nocloud-arm64-secureboot.raw.xz",
		},
		"a factory of one's own": {
			imagefactory.Image{Version: "v1.13.9", Address: "http://factory.example:8080/"},
			"factory.example:8080/metal-installer" + id + ":v1.13.9",
			"http://factory.example:8080/image" + id + "/v1.13.9/metal-amd64.raw.zst",
		},
		"a factory below a path": {
			imagefactory.Image{Version: "v1.13.9", Address: "https://mirror.example:8443/talos/factory"},
			"mirror.example:8443/metal-installer" + id + ":v1.13.9",
			"https://mirror.example:8443/talos/factory/image" + id + "/v1.13.9/metal-amd64.raw.zst",
		},
		"a registry of one's own": {
			imagefactory.Image{Version: "v1.13.9", Registry: "mirror.example/talos"},
			"mirror.example/talos/metal-installer" + id + ":v1.13.9",
			"https://factory.talos.dev/image" + id + "/v1.13.9/metal-amd64.raw.zst",
		},
		"an ID": {
			imagefactory.Image{Version: "v1.13.9", ID: "0a"},
			"factory.talos.dev/metal-installer/0a:v1.13.9",
			"https://factory.talos.dev/image/0a/v1.13.9/metal-amd64.raw.zst",
		},
	} {
		image, err := c.of.Resolve()
		if err != nil {
			t.Fatal(err)
		}

		if got := image.Installer(); got != c.installer {
			t.Errorf("%s: the installer is %s, want %s", name, got, c.installer)
		}

		if got := image.Disk(imagefactory.DiskSuffix(image.Platform, image.Version)); got != c.boot {
			t.Errorf("%s: the disk image is %s, want %s", name, got, c.boot)
		}
	}
}

// TestCheck refuses what no factory builds.
func TestCheck(t *testing.T) {
	overlay := func(image, name string) *imagefactory.Schematic {
		return &imagefactory.Schematic{Overlay: &imagefactory.Overlay{Image: image, Name: name}}
	}
	pi := overlay("siderolabs/sbc-raspberrypi", "rpi_generic")

	for name, c := range map[string]struct {
		of          imagefactory.Image
		field, want string
	}{
		"nothing":           {imagefactory.Image{}, "", ""},
		"extensions":        {imagefactory.Image{Schematic: extensions("siderolabs/a", "other.io/b")}, "", ""},
		"no vendor":         {imagefactory.Image{Schematic: extensions("iscsi-tools")}, "schematic.extensions[0]", "with its vendor"},
		"no name":           {imagefactory.Image{Schematic: extensions("siderolabs/A b")}, "schematic.extensions[0]", "not the name"},
		"twice":             {imagefactory.Image{Schematic: extensions("a/b", "a/b")}, "schematic.extensions[1]", "twice"},
		"no such platform":  {imagefactory.Image{Platform: "vsphere"}, "platform", "no platform"},
		"in capitals":       {imagefactory.Image{Platform: "equinixMetal"}, "platform", "no registry"},
		"an early platform": {imagefactory.Image{Platform: "akamai", Version: "v1.6.8"}, "platform", "has no installer"},
		"Secure Boot":       {imagefactory.Image{Platform: "nocloud", SecureBoot: true, Version: "v1.13.9"}, "", ""},
		"not on AWS":        {imagefactory.Image{Platform: "aws", SecureBoot: true}, "secureBoot", "platform aws"},
		"not before 1.5":    {imagefactory.Image{Version: "v1.4.8", SecureBoot: true}, "secureBoot", "has no images"},
		"a board":           {imagefactory.Image{Version: "v1.13.9", Schematic: pi}, "", ""},
		"a board on AWS": {
			imagefactory.Image{Version: "v1.13.9", Schematic: pi, Platform: "aws"}, "schematic.overlay", "single-board",
		},
		"a board with Secure Boot": {
			imagefactory.Image{Version: "v1.13.9", Schematic: pi, SecureBoot: true}, "schematic.overlay", "boot loader",
		},
		"a board before 1.7": {imagefactory.Image{Version: "v1.6.8", Schematic: pi}, "schematic.overlay", "no overlays"},
		"a board of another image": {
			imagefactory.Image{Version: "v1.13.9", Schematic: overlay("siderolabs/sbc-rockchip", "rpi_generic")},
			"schematic.overlay", "not in siderolabs/sbc-rockchip",
		},
		"a board that is new": {imagefactory.Image{Version: "v1.13.9", Schematic: overlay("mine/sbc", "rpi_generic")}, "", ""},
		"half a board":        {imagefactory.Image{Version: "v1.13.9", Schematic: overlay("mine/sbc", "")}, "schematic.overlay", "needs"},
		"grub with Secure Boot": {
			imagefactory.Image{Version: "v1.13.9", SecureBoot: true, Schematic: &imagefactory.Schematic{
				Customization: imagefactory.Customization{Bootloader: "grub"},
			}}, "schematic.bootloader", "grub",
		},
	} {
		if c.of.Version == "" {
			c.of.Version = "v1.13.9"
		}

		switch found := c.of.Check(); {
		case c.want == "" && len(found) > 0:
			t.Errorf("%s: refused: %+v", name, found)
		case c.want != "" && (len(found) != 1 || found[0].Field != c.field || !strings.Contains(found[0].Text, c.want)):
			t.Errorf("%s: got %+v, want %s of %s", name, found, c.want, c.field)
		}
	}
}

// TestSigning: the name of an installer of a factory tells whether it is signed.
func TestSigning(t *testing.T) {
	for reference, want := range map[string][2]bool{
		"ghcr.io/siderolabs/installer:v1.13.9":                                        {false, true},
		"mirror.example:5000/siderolabs/installer:v1.13.9":                            {false, true},
		"factory.talos.dev/metal-installer/" + vanilla + ":v1.13.9":                   {false, true},
		"factory.talos.dev/metal-installer-secureboot/" + vanilla + ":v1.13.9":        {true, true},
		"factory.example:8080/installer-secureboot/" + vanilla + "@sha256:" + vanilla: {true, true},
		"mirror.example:5000/mine/installer:v1.13.9":                                  {false, false},
		"mirror.example/mine/" + vanilla:                                              {false, false},
		"":                                                                            {false, false},
	} {
		if signed, known := imagefactory.Signing(reference); [2]bool{signed, known} != want {
			t.Errorf("%s: %t, %t", reference, signed, known)
		}
	}
}

// TestLost compares the names of a node, which have no vendor and may be old ones, to those of a factory.
func TestLost(t *testing.T) {
	running := []string{"iscsi-tools", "i915-ucode", "mine"}

	for name, c := range map[string]struct {
		wanted, mayGo []string
		want          string
	}{
		"all stay":   {[]string{"siderolabs/iscsi-tools", "siderolabs/i915", "other/mine"}, nil, ""},
		"some go":    {[]string{"siderolabs/i915"}, nil, "iscsi-tools mine"},
		"they may":   {[]string{"siderolabs/i915"}, []string{"siderolabs/iscsi-tools", "mine"}, ""},
		"all may go": {nil, []string{"*"}, ""},
	} {
		if got := strings.Join(imagefactory.Lost(running, c.wanted, c.mayGo), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}

	names := []string{"nvidia-fabricmanager", "nvidia-fabric-manager-lts", "nvidia-fabricmanager-lts"}
	for _, name := range names {
		if lost := imagefactory.Lost(names, []string{"siderolabs/" + name}, nil); len(lost) > 0 {
			t.Errorf("%s is not %s", name, lost)
		}
	}
}

// TestHasOverlay: a schematic tells of its overlay if its text is that of its ID, and the one that adds nothing has
// none.
func TestHasOverlay(t *testing.T) {
	board := &imagefactory.Schematic{Overlay: &imagefactory.Overlay{Image: "siderolabs/sbc-raspberrypi", Name: "rpi_generic"}}
	embedded := &imagefactory.Schematic{Customization: imagefactory.Customization{
		EmbeddedMachineConfiguration: "a: b\noverlay: none\n",
	}}

	for name, c := range map[string]struct {
		of         *imagefactory.Schematic
		lies       bool
		has, known bool
	}{
		"an overlay":           {board, false, true, true},
		"extensions":           {extensions("siderolabs/gvisor"), false, false, true},
		"the word in a config": {embedded, false, false, true},
		"another text":         {board, true, false, false},
		"nothing":              {&imagefactory.Schematic{}, true, false, true},
	} {
		text, err := c.of.Text()
		if err != nil {
			t.Fatal(err)
		}

		id, err := c.of.ID()
		if err != nil {
			t.Fatal(err)
		}

		if c.lies {
			text = nil
		}

		if has, known := imagefactory.HasOverlay(id, string(text)); has != c.has || known != c.known {
			t.Errorf("%s: %t, known %t", name, has, known)
		}
	}
}
