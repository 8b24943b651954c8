package imagefactory

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/platforms"
)

// Problem is why there is no such image.
type Problem struct {
	// Field below install, for example schematic.overlay.
	Field string
	// Text says what is wrong, Remedy what to do.
	Text, Remedy string
}

// extension is a name with its vendor.
var extension = regexp.MustCompile(`^[a-z0-9][-a-z0-9._]*/[a-z0-9][-a-z0-9._]*$`)

// Check finds out why there is no such image, as far as that is known without asking a factory.
func (i Image) Check() []Problem {
	out := i.checkPlatform()

	if i.Schematic == nil {
		return out
	}

	out = append(out, i.checkOverlay()...)

	seen := map[string]bool{}

	for n, name := range i.Schematic.Customization.SystemExtensions.OfficialExtensions {
		at := fmt.Sprintf("schematic.extensions[%d]", n)

		switch {
		case !strings.Contains(name, "/"):
			out = append(out, Problem{
				at, fmt.Sprintf("%q is not the name of an extension with its vendor", name), "write siderolabs/" + name,
			})
		case !extension.MatchString(name):
			out = append(out, Problem{
				at, fmt.Sprintf("%q is not the name of an extension", name), "write it like siderolabs/iscsi-tools",
			})
		case seen[name]:
			out = append(out, Problem{at, fmt.Sprintf("%q occurs twice", name), "keep one"})
		}

		seen[name] = true
	}

	if i.SecureBoot && i.Schematic.Customization.Bootloader == "grub" {
		out = append(out, Problem{
			"schematic.bootloader", "grub does not boot with Secure Boot", "use sd-boot, or leave it out",
		})
	}

	return out
}

func (i Image) checkPlatform() []Problem {
	name := i.Platform
	if name == "" {
		name = DefaultPlatform
	}

	p, known := platformOf(name)

	version, err := semver.ParseTolerant(i.Version)

	switch {
	case !known:
		return []Problem{{
			"platform", fmt.Sprintf("Talos has no platform %q", name), "use one of " + strings.Join(platformNames(), ", "),
		}}
	case err == nil && version.LT(p.MinVersion):
		return []Problem{{
			"platform", fmt.Sprintf("Talos %s has no installer for %s", i.Version, name),
			fmt.Sprintf("use v%s or later", p.MinVersion),
		}}
	case Since(i.Version, 10) && strings.ToLower(name) != name: // a registry has no such repository
		return []Problem{{
			"platform", fmt.Sprintf("no registry has an installer with the name of %s", name),
			"name an installer with install.image",
		}}
	case i.SecureBoot && !p.SecureBootSupported:
		return []Problem{{
			"secureBoot", "there are no images for Secure Boot for the platform " + name,
			"use one of " + strings.Join(securePlatforms(), ", "),
		}}
	case i.SecureBoot && !Since(i.Version, 5):
		return []Problem{{
			"secureBoot", fmt.Sprintf("Talos %s has no images for Secure Boot", i.Version), "use v1.5 or later",
		}}
	}

	return nil
}

func platformNames() []string {
	var out []string
	for _, p := range allPlatforms() {
		out = append(out, p.Name)
	}

	return out
}

func securePlatforms() []string {
	var out []string

	for _, p := range allPlatforms() {
		if p.SecureBootSupported {
			out = append(out, p.Name)
		}
	}

	return out
}

func (i Image) checkOverlay() []Problem {
	o := i.Schematic.Overlay
	if o == nil {
		return nil
	}

	problem := func(text, remedy string) []Problem { return []Problem{{"schematic.overlay", text, remedy}} }

	switch {
	case o.Image == "" || o.Name == "":
		return problem("needs an image and a name", "write them like siderolabs/sbc-raspberrypi and rpi_generic")
	case i.Platform != "" && i.Platform != DefaultPlatform:
		return problem("an overlay is for single-board computers, whose platform is metal, and not "+i.Platform,
			"remove one of them")
	case i.SecureBoot:
		return problem("an overlay replaces the boot loader that Secure Boot needs", "remove one of them")
	case !Since(i.Version, 7):
		return problem(fmt.Sprintf("Talos %s has no overlays", i.Version), "use v1.7 or later")
	}

	// An overlay that this library does not know may be new. One that it knows from another image is a mistake.
	for _, sbc := range platforms.SBCs() {
		if sbc.OverlayName == o.Name && sbc.OverlayImage != o.Image && isKnownOverlay(o.Image) {
			return problem(fmt.Sprintf("%s is not in %s", o.Name, o.Image), "it is in "+sbc.OverlayImage)
		}
	}

	return nil
}

func isKnownOverlay(image string) bool {
	return slices.ContainsFunc(platforms.SBCs(), func(s platforms.SBC) bool { return s.OverlayImage == image })
}
