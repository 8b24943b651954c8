package desired

import (
	"fmt"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
)

// Install returns what the objects say about the installation of a machine: what the machine sets takes precedence over
// its group, and that over the whole cluster.
func (s Sources) Install() v1alpha1.InstallOptions {
	return installOptions(s.ControlPlane.Spec.ClusterImage, s.group().Install, s.Machine.Spec.Install)
}

// Image returns the image of a factory that the machine should have; nil if the objects name another installer, or
// none.
func (s Sources) Image() *imagefactory.Image {
	return imageOf(s.Install(), s.ControlPlane.Spec.TalosVersion)
}

// CheckImage finds out why there is no image of a Talos version as the options of a cluster, of a group and of a
// machine ask for it together.
func CheckImage(
	version string, cluster *v1alpha1.ImageOptions, group, machine *v1alpha1.InstallOptions,
) []imagefactory.Problem {
	options := installOptions(cluster, group, machine)

	if image := imageOf(options, version); image != nil {
		return image.Check()
	}

	signed, known := imagefactory.Signing(options.Image)
	if !deref(options.SecureBoot) || signed || !known {
		return nil
	}

	return []imagefactory.Problem{{
		Field: "image", Text: fmt.Sprintf("%s is not signed for Secure Boot", options.Image),
		Remedy: "name the installer whose name ends with -secureboot, or set schematic instead",
	}}
}

// overrideImage replaces what other options set. An image and a schematic are two ways to say the same, so that the one
// replaces the other.
func overrideImage(into *v1alpha1.InstallOptions, image string, o v1alpha1.ImageOptions) {
	if image != "" || o.Schematic != nil {
		into.Image, into.Schematic = image, o.Schematic
	}

	if o.Factory != nil {
		into.Factory = o.Factory
	}

	if o.Platform != "" {
		into.Platform = o.Platform
	}

	if o.SecureBoot != nil {
		into.SecureBoot = o.SecureBoot
	}

	if o.DropExtensions != nil {
		into.DropExtensions = o.DropExtensions
	}
}

func imageOf(o v1alpha1.InstallOptions, version string) *imagefactory.Image {
	asks := o.Schematic != nil || o.Factory != nil || o.Platform != "" || deref(o.SecureBoot)
	if o.Image != "" || !asks {
		return nil
	}

	out := &imagefactory.Image{Version: version, Platform: o.Platform, SecureBoot: deref(o.SecureBoot)}

	if f := o.Factory; f != nil {
		out.Address, out.Registry = f.Address, f.Registry
	}

	if s := o.Schematic; s != nil && s.ID != "" {
		out.ID = s.ID
	} else {
		out.Schematic = schematic(s)
	}

	return out
}

// schematic translates a schematic that is written in a spec. Without one, nothing is added to Talos.
func schematic(s *v1alpha1.Schematic) *imagefactory.Schematic {
	out := &imagefactory.Schematic{}
	if s == nil {
		return out
	}

	out.Customization = imagefactory.Customization{
		ExtraKernelArgs:  s.ExtraKernelArgs,
		SystemExtensions: imagefactory.SystemExtensions{OfficialExtensions: s.Extensions},
		Bootloader:       s.Bootloader,
		SecureBoot: imagefactory.SecureBootKeys{
			IncludeWellKnownCertificates: s.SecureBootCertificates == v1alpha1.WellKnownCertificates,
		},
	}

	for _, m := range s.Meta {
		value := imagefactory.MetaValue{Key: uint8(m.Key), Value: m.Value}
		out.Customization.Meta = append(out.Customization.Meta, value)
	}

	if o := s.Overlay; o != nil {
		out.Overlay = &imagefactory.Overlay{Image: o.Image, Name: o.Name}

		for name, value := range o.Options {
			if out.Overlay.Options == nil {
				out.Overlay.Options = map[string]any{}
			}

			out.Overlay.Options[name] = value
		}
	}

	return out
}
