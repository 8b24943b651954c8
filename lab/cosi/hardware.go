package cosi

import (
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// SetDisks shows the machine's disks by device name: sda, vda, nvme0n1.
func (s *Store) SetDisks(disks map[string]block.DiskSpec) {
	all := make([]resource.Resource, 0, len(disks))
	devices := make([]resource.Resource, 0, len(disks))

	for id, spec := range disks {
		r := block.NewDisk(block.NamespaceName, id)
		*r.TypedSpec() = spec
		all = append(all, r)

		d := block.NewDevice(block.NamespaceName, id)
		d.TypedSpec().Type = "disk"
		d.TypedSpec().DevicePath = "/devices/" + id
		devices = append(devices, d)
	}

	s.Replace(block.DiskType, all...)
	s.Replace(block.DeviceType, devices...)
}

// SetSystemDisk says which disk Talos is installed on, by device name; empty when it is not installed.
func (s *Store) SetSystemDisk(id string) {
	if id == "" {
		s.Replace(block.SystemDiskType)

		return
	}

	r := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
	*r.TypedSpec() = block.SystemDiskSpec{DiskID: id, DevPath: "/dev/" + id}
	s.Replace(block.SystemDiskType, r)
}

// SetDiscoveredVolumes shows the disks and partitions with what was found on them, by device name.
func (s *Store) SetDiscoveredVolumes(volumes map[string]block.DiscoveredVolumeSpec) {
	all := make([]resource.Resource, 0, len(volumes))

	for id, spec := range volumes {
		r := block.NewDiscoveredVolume(block.NamespaceName, id)
		*r.TypedSpec() = spec
		all = append(all, r)
	}

	s.Replace(block.DiscoveredVolumeType, all...)
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

// SetMounts shows the mounted file systems by name.
func (s *Store) SetMounts(mounts map[string]runtime.MountStatusSpec) {
	all := make([]resource.Resource, 0, len(mounts))

	for id, spec := range mounts {
		r := runtime.NewMountStatus(runtime.NamespaceName, id)
		*r.TypedSpec() = spec
		all = append(all, r)
	}

	s.Replace(runtime.MountStatusType, all...)
}

// SetSystemInformation shows manufacturer, product, serial number and UUID.
func (s *Store) SetSystemInformation(spec hardware.SystemInformationSpec) {
	r := hardware.NewSystemInformation(hardware.SystemInformationID)
	*r.TypedSpec() = spec
	s.Set(r)
}

// SetProcessors shows the processors.
func (s *Store) SetProcessors(processors ...hardware.ProcessorSpec) {
	all := make([]resource.Resource, 0, len(processors))

	for i, spec := range processors {
		r := hardware.NewProcessorInfo("CPU-" + strconv.Itoa(i))
		*r.TypedSpec() = spec
		all = append(all, r)
	}

	s.Replace(hardware.ProcessorType, all...)
}

// SetMemoryModules shows the memory modules.
func (s *Store) SetMemoryModules(modules ...hardware.MemoryModuleSpec) {
	all := make([]resource.Resource, 0, len(modules))

	for i, spec := range modules {
		r := hardware.NewMemoryModuleInfo("DIMM-" + strconv.Itoa(i))
		*r.TypedSpec() = spec
		all = append(all, r)
	}

	s.Replace(hardware.MemoryModuleType, all...)
}

// SetPCIDevices shows the devices on the PCI bus by their addresses: 0000:00:1f.2.
func (s *Store) SetPCIDevices(devices map[string]hardware.PCIDeviceSpec) {
	all := make([]resource.Resource, 0, len(devices))

	for id, spec := range devices {
		r := hardware.NewPCIDeviceInfo(id)
		*r.TypedSpec() = spec
		all = append(all, r)
	}

	s.Replace(hardware.PCIDeviceType, all...)
}

func indexID(i int) resource.ID {
	return strconv.Itoa(i)
}
