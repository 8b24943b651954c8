package cosi

import (
	"maps"
	"slices"
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
)

// SetDisks shows the machine's disks by device name: sda, vda, nvme0n1.
func (s *Store) SetDisks(disks map[string]block.DiskSpec) {
	show(s, block.DiskType, maps.All(disks), func(id string, spec block.DiskSpec) resource.Resource {
		return withSpec(block.NewDisk(block.NamespaceName, id), spec)
	})
	show(s, block.DeviceType, maps.All(disks), func(id string, _ block.DiskSpec) resource.Resource {
		return withSpec(block.NewDevice(block.NamespaceName, id),
			block.DeviceSpec{Type: "disk", DevicePath: "/devices/" + id})
	})
}

// SetSystemDisk says which disk Talos is installed on, by device name; empty when it is not installed.
func (s *Store) SetSystemDisk(id string) {
	if id == "" {
		s.Replace(block.SystemDiskType)

		return
	}

	s.Replace(block.SystemDiskType, withSpec(block.NewSystemDisk(block.NamespaceName, block.SystemDiskID),
		block.SystemDiskSpec{DiskID: id, DevPath: "/dev/" + id}))
}

// SetDiscoveredVolumes shows the disks and partitions with what was found on them, by device name.
func (s *Store) SetDiscoveredVolumes(volumes map[string]block.DiscoveredVolumeSpec) {
	show(s, block.DiscoveredVolumeType, maps.All(volumes),
		func(id string, spec block.DiscoveredVolumeSpec) resource.Resource {
			return withSpec(block.NewDiscoveredVolume(block.NamespaceName, id), spec)
		})
}

// SetVolumes says of system volumes (META, STATE, EPHEMERAL) where they are. How they are mounted stays as recorded.
func (s *Store) SetVolumes(volumes map[string]block.VolumeStatusSpec) {
	for id, spec := range volumes {
		s.Amend(block.VolumeStatusType, id, func(r resource.Resource) {
			if status, ok := r.(*block.VolumeStatus); ok {
				spec.MountSpec = status.TypedSpec().MountSpec
				*status.TypedSpec() = spec
			}
		})
	}
}

// SetSystemInformation shows manufacturer, product, serial number and UUID.
func (s *Store) SetSystemInformation(spec hardware.SystemInformationSpec) {
	s.Set(withSpec(hardware.NewSystemInformation(hardware.SystemInformationID), spec))
}

// SetProcessors shows the processors.
func (s *Store) SetProcessors(processors ...hardware.ProcessorSpec) {
	show(s, hardware.ProcessorType, slices.All(processors), func(i int, spec hardware.ProcessorSpec) resource.Resource {
		return withSpec(hardware.NewProcessorInfo("CPU-"+strconv.Itoa(i)), spec)
	})
}

// SetMemoryModules shows the memory modules.
func (s *Store) SetMemoryModules(modules ...hardware.MemoryModuleSpec) {
	show(s, hardware.MemoryModuleType, slices.All(modules), func(i int, spec hardware.MemoryModuleSpec) resource.Resource {
		return withSpec(hardware.NewMemoryModuleInfo("DIMM-"+strconv.Itoa(i)), spec)
	})
}

// SetPCIDevices shows the devices on the PCI bus by their addresses: 0000:00:1f.2.
func (s *Store) SetPCIDevices(devices map[string]hardware.PCIDeviceSpec) {
	show(s, hardware.PCIDeviceType, maps.All(devices), func(id string, spec hardware.PCIDeviceSpec) resource.Resource {
		return withSpec(hardware.NewPCIDeviceInfo(id), spec)
	})
}
