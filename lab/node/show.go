package node

import (
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/node/configuration"
	"github.com/talos-operator/talos-operator/lab/node/hardware"
)

// systemDisk is the name of the disk that Talos is installed on; empty when it is not installed.
func (s *session) systemDisk() string {
	if loader := s.n.system.Loader(); loader != nil {
		return loader.Disk
	}

	return ""
}

// disks returns a copy of the machine's disks.
func (n *Node) disks() []Disk {
	n.mu.Lock()
	defer n.mu.Unlock()

	return append([]Disk(nil), n.hw.Disks...)
}

// showHardware shows the machine's hardware in the resources.
func (s *session) showHardware() {
	s.store.SetSystemInformation(resources.SystemInformationSpec{
		Manufacturer: "Talos Lab", ProductName: "Emulated Machine", Version: "1", SerialNumber: s.n.opts.Name,
		UUID: s.n.hw.UUID, WakeUpType: "Power Switch",
	})
	s.store.SetProcessors(resources.ProcessorSpec{
		Socket: "CPU 0", Manufacturer: "Lab", ProductName: "Lab Virtual CPU", MaxSpeed: 2000, BootSpeed: 2000, Status: 65,
		CoreCount: uint32(s.n.opts.CPUs), CoreEnabled: uint32(s.n.opts.CPUs),
		ThreadCount: uint32(s.n.opts.CPUs),
	})
	s.store.SetMemoryModules(resources.MemoryModuleSpec{
		Size: uint32(s.n.opts.MemoryMiB), DeviceLocator: "DIMM 0", Manufacturer: "Lab",
	})
	s.store.SetVersion(s.tag)
	s.store.SetNodeID(s.nodeID)
	s.store.SetMetaKeys(s.n.system.MetaValues())
	s.store.SetBootedEntry("Talos-" + s.tag)
	s.store.SetPlatformMetadata(runtime.PlatformMetadataSpec{Platform: configuration.Platform, Hostname: s.n.opts.Name})
	s.store.SetPCIDevices(hardware.PCIDevices(s.n.disks()))
	s.showDisks()
	s.showExtensions()
	s.showSecurity()
}

// showDisks shows the disks and what lies on them.
func (s *session) showDisks() {
	disks, system := s.n.disks(), s.systemDisk()
	specs := map[string]block.DiskSpec{}

	for _, d := range disks {
		specs[d.Name] = d.Spec()
	}

	found := hardware.Volumes(disks, system)

	s.store.SetDisks(specs)
	s.store.SetSystemDisk(system)
	s.store.SetDiscoveredVolumes(found)

	volumes := hardware.SystemVolumes(system, found)

	s.mu.Lock()
	for label, v := range s.volumes {
		volumes[label] = v.show(label, volumes[label])
	}
	s.mu.Unlock()

	s.store.SetVolumes(volumes)
}
