package node

import (
	"fmt"
	"path/filepath"
	"strings"

	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/node/disk"
)

func deviceName(path string) string { return strings.TrimPrefix(filepath.Clean(path), "/dev/") }

// systemDisk is the name of the disk that Talos is installed on; empty when it is not installed.
func (s *session) systemDisk() string {
	if loader := s.n.system.Loader(); loader != nil {
		return loader.Disk
	}

	return ""
}

// spec is what the node shows of a disk.
func (d Disk) spec() block.DiskSpec {
	return block.DiskSpec{
		DevPath: "/dev/" + d.Name, Size: d.Size, PrettySize: fmt.Sprintf("%d GB", d.Size/1e9), IOSize: 512, SectorSize: 512,
		Readonly: d.Readonly, CDROM: d.CDROM, Model: d.Model, Serial: d.Serial, WWID: d.WWID, BusPath: d.BusPath,
		SubSystem: "/sys/class/block", Transport: d.Transport, Rotational: d.Rotational,
	}
}

// disks returns a copy of the machine's disks.
func (n *Node) disks() []Disk {
	n.mu.Lock()
	defer n.mu.Unlock()

	return append([]Disk(nil), n.hw.Disks...)
}

// showHardware shows the machine's hardware in the resources.
func (s *session) showHardware() {
	s.store.SetSystemInformation(hardware.SystemInformationSpec{
		Manufacturer: "Talos Lab", ProductName: "Emulated Machine", Version: "1", SerialNumber: s.n.opts.Name,
		UUID: s.n.hw.UUID, WakeUpType: "Power Switch",
	})
	s.store.SetProcessors(hardware.ProcessorSpec{
		Socket: "CPU 0", Manufacturer: "Lab", ProductName: "Lab Virtual CPU", MaxSpeed: 2000, BootSpeed: 2000, Status: 65,
		CoreCount: uint32(s.n.opts.CPUs), CoreEnabled: uint32(s.n.opts.CPUs),
		ThreadCount: uint32(s.n.opts.CPUs),
	})
	s.store.SetMemoryModules(hardware.MemoryModuleSpec{
		Size: uint32(s.n.opts.MemoryMiB), DeviceLocator: "DIMM 0", Manufacturer: "Lab",
	})
	s.store.SetVersion(s.tag)
	s.store.SetNodeID(s.nodeID)
	s.store.SetMetaKeys(s.n.system.MetaValues())
	s.store.SetBootedEntry("Talos-" + s.tag)
	s.store.SetPlatformMetadata(runtime.PlatformMetadataSpec{Platform: platform, Hostname: s.n.opts.Name})
	s.showPCI()
	s.showDisks()
	s.showExtensions()
}

func (s *session) showExtensions() {
	loader := s.n.system.Loader()
	if loader == nil || loader.Current() == nil || loader.Current().Schematic == "" {
		return
	}

	var ext runtime.ExtensionStatusSpec

	ext.Image = loader.Current().Image
	ext.Metadata.Name = "schematic"
	ext.Metadata.Version = loader.Current().Schematic
	ext.Metadata.Author = "Image Factory"
	s.store.SetExtensions(ext)
}

// showDisks shows the disks and what lies on them.
func (s *session) showDisks() {
	specs := map[string]block.DiskSpec{}
	volumes := map[string]block.DiscoveredVolumeSpec{}
	system := s.systemDisk()

	for _, d := range s.n.disks() {
		specs[d.Name] = d.spec()
		volumes[d.Name] = block.DiscoveredVolumeSpec{
			DevPath: "/dev/" + d.Name, Type: "disk", Size: d.Size, SectorSize: 512, IOSize: 512,
			PrettySize: fmt.Sprintf("%d GB", d.Size/1e9),
		}

		switch {
		case d.Name == system:
			addPartitions(volumes, d, disk.Labels(), func(label string) string { return partitionFS[label] })
		case len(d.Content) > 0:
			labels := d.Content
			if labels[0] == "talos" {
				labels = disk.Labels()
			}

			addPartitions(volumes, d, labels, func(label string) string {
				if fs, ok := partitionFS[label]; ok {
					return fs
				}

				return label
			})
		}
	}

	s.store.SetDisks(specs)
	s.store.SetSystemDisk(system)
	s.store.SetDiscoveredVolumes(volumes)
	s.showVolumes(volumes)
}

// installDisk is the disk that a config wants Talos on.
func (s *session) installDisk(cfg config.Provider) (string, error) {
	install := cfg.Machine().Install()

	expression, err := install.DiskMatchExpression()
	if err != nil {
		return "", fmt.Errorf("install failed: %w", err)
	}

	if expression == nil {
		name := deviceName(install.Disk())
		if s.n.hw.disk(name) == nil {
			return "", errNoDisk(install.Disk())
		}

		return name, nil
	}

	for _, d := range s.n.disks() {
		r := block.NewDisk(block.NamespaceName, d.Name)
		*r.TypedSpec() = d.spec()

		spec := &blockpb.DiskSpec{}
		if err := proto.ResourceSpecToProto(r, spec); err != nil {
			return "", fmt.Errorf("install failed: %w", err)
		}

		ok, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{"disk": spec})
		if err != nil {
			return "", fmt.Errorf("install failed: %w", err)
		}

		if ok && !d.Readonly && !d.CDROM {
			return d.Name, nil
		}
	}

	return "", fmt.Errorf("install failed: no disks matched the expression: %s", expression)
}
