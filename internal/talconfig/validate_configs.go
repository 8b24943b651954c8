package talconfig

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/talos-operator/talos-operator/internal/imagefactory"
)

// validateConfigs checks the settings of a group or of a node by themselves.
func (l *loader) validateConfigs(field string, c NodeConfigs) {
	l.validateMetadata(field, c)
	l.validateFiles(field, c)

	for i, server := range c.Nameservers {
		if _, err := netip.ParseAddr(server); err != nil {
			l.add(fmt.Sprintf("%s.nameservers[%d]", field, i), "%q is not an IP address", server)
		}
	}

	if tail := c.TalosImageURL[strings.LastIndex(c.TalosImageURL, "/")+1:]; strings.ContainsAny(tail, ":@") {
		l.add(field+".talosImageURL", "has a tag or a digest: remove it, talosVersion is the tag")
	}

	if c.TalosImageURL != "" && c.Schematic != nil {
		l.add(field+".schematic", "has no effect with talosImageURL: keep one of both")
	}

	for i, module := range c.KernelModules {
		l.required(fmt.Sprintf("%s.kernelModules[%d].name", field, i), module.ModuleName, "the name of the kernel module")
	}

	l.validateSchematic(field+".schematic", c.Schematic)
	l.validateSchematic(field+".imageSchematic", c.ImageSchematic)
	l.validateSpec(field+".machineSpec", c.MachineSpec)
	l.validateNamed(field, c)
}

func (l *loader) validateMetadata(field string, c NodeConfigs) {
	for _, key := range slices.Sorted(maps.Keys(c.NodeLabels)) {
		value := c.NodeLabels[key]

		// A template is checked after it is executed.
		if !strings.Contains(value, "{{") && labels.Validate(map[string]string{key: value}) != nil {
			l.add(field+".nodeLabels."+key, "is not a valid label: at most 63 letters, digits, -, _ and .")
		}
	}

	for _, key := range slices.Sorted(maps.Keys(c.NodeAnnotations)) {
		if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 {
			l.add(field+".nodeAnnotations."+key, "is not a valid name of an annotation")
		}
	}

	if err := labels.ValidateTaints(c.NodeTaints); err != nil {
		l.add(field+".nodeTaints", "has a taint that is not VALUE:EFFECT or EFFECT, with the effect NoSchedule, "+
			"PreferNoSchedule or NoExecute")
	}
}

// fileOps are what Talos does with a machine file.
var fileOps = []string{"create", "append", "overwrite"}

func (l *loader) validateFiles(field string, c NodeConfigs) {
	for i, file := range c.MachineFiles {
		at := fmt.Sprintf("%s.machineFiles[%d]", field, i)

		if !slices.Contains(fileOps, file.Op) {
			l.add(at+".op", "%q is not one of %s", file.Op, strings.Join(fileOps, ", "))
		}

		if !path.IsAbs(file.Path) {
			l.add(at+".path", "%q is not an absolute path", file.Path)
		}
	}

	for i, disk := range c.MachineDisks {
		at := fmt.Sprintf("%s.machineDisks[%d]", field, i)
		l.required(at+".device", disk.DeviceName, "the device, such as /dev/sdb")

		for j, partition := range disk.DiskPartitions {
			if partition == nil || partition.DiskSize == 0 && j < len(disk.DiskPartitions)-1 {
				l.add(fmt.Sprintf("%s.partitions[%d].size", at, j), "is missing: only the last partition may fill the disk")
			}
		}
	}
}

func (l *loader) validateSchematic(field string, s *imagefactory.Schematic) {
	if s == nil {
		return
	}

	seen := map[string]bool{}

	for i, name := range s.Customization.SystemExtensions.OfficialExtensions {
		at := fmt.Sprintf("%s.customization.systemExtensions.officialExtensions[%d]", field, i)

		switch {
		case !strings.Contains(name, "/"):
			l.add(at, "%q is not a name with its owner; did you mean siderolabs/%s?", name, name)
		case seen[name]:
			l.add(at, "%q occurs twice; keep one", name)
		}

		seen[name] = true
	}

	if s.Overlay != nil && (s.Overlay.Name == "" || s.Overlay.Image == "") {
		l.add(field+".overlay", "needs a name and an image, such as rpi_generic and siderolabs/sbc-raspberrypi")
	}
}

var (
	bootMethods = []string{BootISO, BootDisk, BootPXE}
	archs       = []string{"amd64", "arm64"}
)

func (l *loader) validateSpec(field string, s *MachineSpec) {
	if s == nil {
		return
	}

	s.check(func(name, format string, args ...any) { l.add(field+"."+name, format, args...) })
}

// check reports what no image has, by the name of the field.
func (s *MachineSpec) check(add func(field, format string, args ...any)) {
	if s.Arch != "" && !slices.Contains(archs, s.Arch) {
		add("arch", "%q is not one of %s", s.Arch, strings.Join(archs, ", "))
	}

	if s.BootMethod != "" && !slices.Contains(bootMethods, s.BootMethod) {
		add("bootMethod", "%q is not one of %s", s.BootMethod, strings.Join(bootMethods, ", "))
	}

	if s.UseUKI && !s.Secureboot {
		add("useUKI", "needs secureboot: true")
	}

	if s.ImageSuffix != "" && s.BootMethod != BootDisk {
		add("imageSuffix", "is of disk images only: set bootMethod to disk-image, or remove it")
	}
}

// Check reports why there is no such image, as far as that is known without asking a factory. Fields are those of a
// talconfig.yaml, below machineSpec, or below schematic.
func (i Image) Check(schematic *imagefactory.Schematic) error {
	var problems []error

	i.Spec.check(func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf(field+": "+format, args...))
	})

	image := imagefactory.Image{
		Schematic: schematic, Version: i.Version, Platform: i.Spec.Mode, Arch: i.Spec.Arch, SecureBoot: i.Spec.Secureboot,
	}

	for _, p := range image.Check() {
		problems = append(problems, fmt.Errorf("%s: %s: %s", p.Field, p.Text, p.Remedy))
	}

	return errors.Join(problems...)
}

// validateNamed checks what becomes a document with a name.
func (l *loader) validateNamed(field string, c NodeConfigs) {
	if c.IngressFirewall != nil {
		// The library takes a missing action for accept, which is the opposite of what talhelper documents.
		if at := field + ".ingressFirewall.defaultAction"; l.lines[at] == 0 {
			l.add(at, "is missing: block, or accept for a firewall that lets everything in")
		}

		names := map[string]string{}

		for i, rule := range c.IngressFirewall.Rules {
			at := fmt.Sprintf("%s.ingressFirewall.rules[%d]", field, i)
			l.required(at+".name", rule.Name, "the name of the rule")
			l.unique(names, at+".name", rule.Name)

			if len(rule.PortSelector.Ports) == 0 {
				l.add(at+".portSelector.ports", "is missing: the ports that the rule opens")
			}

			if len(rule.Ingress) == 0 {
				l.add(at+".ingress", "is missing: the subnets that the rule lets in")
			}
		}
	}

	services, volumes, users := map[string]string{}, map[string]string{}, map[string]string{}

	for i, service := range c.ExtensionServices {
		at := fmt.Sprintf("%s.extensionServices[%d].name", field, i)
		l.required(at, service.Name, "the name of the extension service")
		l.unique(services, at, service.Name)
	}

	for i, volume := range c.Volumes {
		at := fmt.Sprintf("%s.volumes[%d].name", field, i)
		l.required(at, volume.Name, "STATE, EPHEMERAL or IMAGECACHE")
		l.unique(volumes, at, volume.Name)
	}

	for i, volume := range c.UserVolumes {
		at := fmt.Sprintf("%s.userVolumes[%d].name", field, i)
		l.required(at, volume.Name, "the name of the volume")
		l.unique(users, at, volume.Name)
	}
}
