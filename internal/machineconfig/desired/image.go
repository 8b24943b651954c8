package desired

import (
	"fmt"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
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

// Level is whose options ask for a part of an image.
type Level int

// The levels, each with precedence over those before it.
const (
	ClusterLevel Level = iota
	GroupLevel
	MachineLevel
)

// ImageProblem is why there is no such image. Its field is below the options of a level.
type ImageProblem struct {
	imagefactory.Problem

	Level Level
}

// CheckImage finds out why there is no image of a Talos version as the options of a cluster, of a group and of a
// machine ask for it together, and which of them sets the field that has to be corrected.
func CheckImage(
	version string, cluster *v1alpha1.ImageOptions, group, machine *v1alpha1.InstallOptions,
) []ImageProblem {
	var out []ImageProblem

	for _, p := range problemsOf(installOptions(cluster, group, machine), version) {
		level := ClusterLevel

		switch {
		case sets(machine, p.Field):
			level = MachineLevel
		case sets(group, p.Field):
			level = GroupLevel
		}

		out = append(out, ImageProblem{Problem: p, Level: level})
	}

	return out
}

func problemsOf(options v1alpha1.InstallOptions, version string) []imagefactory.Problem {
	if image := imageOf(options, version); image != nil {
		return image.Check()
	}

	signed, known := imagefactory.Signing(options.Image)
	if !ptr.Deref(options.SecureBoot, false) || signed || !known {
		return nil
	}

	return []imagefactory.Problem{{
		Field: "image", Text: fmt.Sprintf("%s is not signed for Secure Boot", options.Image),
		Remedy: "name the installer whose name ends with -secureboot, or set schematic instead",
	}}
}

// sets reports whether options say what is at a field of the image.
func sets(o *v1alpha1.InstallOptions, field string) bool {
	if o == nil {
		return false
	}

	switch name, _, _ := strings.Cut(field, "."); name {
	case "platform":
		return o.Platform != ""
	case "secureBoot":
		return o.SecureBoot != nil
	}

	return o.Image != "" || o.Schematic != nil
}

// refusal says why no installer is as the objects ask for it together; nil if nothing is known against it.
func (s Sources) refusal() *machineconfig.InputError {
	cp := s.ControlPlane

	problems := CheckImage(cp.Spec.TalosVersion, cp.Spec.ClusterImage, s.group().Install, s.Machine.Spec.Install)
	if len(problems) == 0 {
		return nil
	}

	var at string

	switch first := problems[0]; {
	case first.Level == MachineLevel:
		at = fmt.Sprintf("machine %s: install.%s", s.Machine.Name, first.Field)
	case first.Level == GroupLevel && s.Worker != nil:
		at = fmt.Sprintf("TalosWorker %s: spec.install.%s", s.Worker.Name, first.Field)
	case first.Level == GroupLevel:
		at = fmt.Sprintf("TalosControlPlane %s: spec.install.%s", cp.Name, first.Field)
	default:
		at = fmt.Sprintf("TalosControlPlane %s: spec.clusterImage.%s", cp.Name, first.Field)
	}

	return &machineconfig.InputError{Field: at, Problem: problems[0].Text + "; " + problems[0].Remedy}
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
	asks := o.Schematic != nil || o.Factory != nil || o.Platform != "" || ptr.Deref(o.SecureBoot, false)
	if o.Image != "" || !asks {
		return nil
	}

	out := &imagefactory.Image{Version: version, Platform: o.Platform, SecureBoot: ptr.Deref(o.SecureBoot, false)}

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
