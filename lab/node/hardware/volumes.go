package hardware

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"

	"github.com/talos-operator/talos-operator/lab/node/disk"
)

// partitionFS are the file systems of a Talos disk.
var partitionFS = map[string]string{
	disk.EFI: "vfat", disk.BIOS: "", disk.Boot: "xfs", disk.Meta: "talosmeta", disk.State: "xfs", disk.Ephemeral: "xfs",
}

const mib = 1 << 20

// partitionSize are the sizes of a Talos disk's partitions. The last one takes what room is left.
var partitionSize = map[string]uint64{
	disk.EFI: 100 * mib, disk.BIOS: mib, disk.Boot: 1000 * mib, disk.Meta: mib, disk.State: 100 * mib,
}

// otherSize is the size of a partition that is not one of Talos.
const otherSize = 100 * mib

// Volumes are the disks and what lies on them, by device name. One of them may be the system disk.
func Volumes(disks []Disk, system string) map[string]block.DiscoveredVolumeSpec {
	volumes := map[string]block.DiscoveredVolumeSpec{}

	for _, d := range disks {
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

	return volumes
}

// addPartitions adds the partitions of a disk, the last of which takes what room is left.
func addPartitions(
	volumes map[string]block.DiscoveredVolumeSpec, d Disk, labels []string, fs func(string) string,
) {
	parent := volumes[d.Name]
	parent.Name = "gpt"
	volumes[d.Name] = parent

	separator := ""
	if strings.HasPrefix(d.Name, "nvme") {
		separator = "p"
	}

	rest := d.Size

	for i, label := range labels {
		name := fmt.Sprintf("%s%s%d", d.Name, separator, i+1)

		size := partitionSize[label]
		if size == 0 {
			size = otherSize
		}

		if size = min(size, rest); i == len(labels)-1 {
			size = rest
		}

		rest -= size

		volumes[name] = block.DiscoveredVolumeSpec{
			DevPath: "/dev/" + name, Type: "partition", Parent: d.Name, ParentDevPath: "/dev/" + d.Name, Size: size,
			SectorSize: 512, IOSize: 512, PartitionIndex: uint(i + 1), PartitionLabel: label, Name: fs(label),
			PrettySize: prettySize(size), PartitionUUID: partitionID(d, label), UUID: partitionID(d, label+" contents"),
		}
	}
}

// partitionID makes up an identifier that stays the same for a disk.
func partitionID(d Disk, label string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(d.Serial+"/"+d.WWID+"/"+label)).String()
}

func prettySize(size uint64) string {
	if size >= 1e9 {
		return fmt.Sprintf("%.1f GB", float64(size)/1e9)
	}

	return fmt.Sprintf("%.1f MB", float64(size)/1e6)
}

// SystemVolumes says where the system volumes are: partitions of the system disk, which a machine that is not installed
// has not.
func SystemVolumes(system string, found map[string]block.DiscoveredVolumeSpec) map[string]block.VolumeStatusSpec {
	volumes := map[string]block.VolumeStatusSpec{}
	for _, label := range []string{disk.Meta, disk.State, disk.Ephemeral} {
		volumes[label] = block.VolumeStatusSpec{Phase: block.VolumePhaseMissing, Type: block.VolumeTypePartition}
	}

	for _, v := range found {
		spec, ok := volumes[v.PartitionLabel]
		if !ok || v.Parent != system || system == "" {
			continue
		}

		spec.Phase, spec.Location, spec.MountLocation, spec.ParentLocation = block.VolumePhaseReady, v.DevPath, v.DevPath,
			v.ParentDevPath
		spec.PartitionIndex = int(v.PartitionIndex)
		spec.UUID, spec.PartitionUUID = v.UUID, v.PartitionUUID
		spec.Size, spec.PrettySize = v.Size, v.PrettySize

		if v.PartitionLabel != disk.Meta {
			spec.Filesystem = block.FilesystemTypeXFS
		}

		volumes[v.PartitionLabel] = spec
	}

	return volumes
}

// PCIDevices are those of a small virtual machine, with a controller for each kind of disk that it has.
func PCIDevices(disks []Disk) map[string]hardware.PCIDeviceSpec {
	devices := map[string]hardware.PCIDeviceSpec{
		"0000:00:00.0": {
			Class: "Bridge", ClassID: "0x06", Subclass: "Host bridge", SubclassID: "0x00", Vendor: "Intel Corporation",
			VendorID: "0x8086", Product: "82G33/G31/P35/P31 Express DRAM Controller", ProductID: "0x29c0",
		},
		"0000:00:02.0": {
			Class: "Network controller", ClassID: "0x02", Subclass: "Ethernet controller", SubclassID: "0x00",
			Vendor: "Red Hat, Inc.", VendorID: "0x1af4", Product: "Virtio network device", ProductID: "0x1000",
			Driver: "virtio-pci",
		},
		"0000:00:1f.0": {
			Class: "Bridge", ClassID: "0x06", Subclass: "ISA bridge", SubclassID: "0x01", Vendor: "Intel Corporation",
			VendorID: "0x8086", Product: "82801IB (ICH9) LPC Interface Controller", ProductID: "0x2918", Driver: "lpc_ich",
		},
	}

	for _, d := range disks {
		switch d.Transport {
		case "nvme":
			devices["0000:00:04.0"] = hardware.PCIDeviceSpec{
				Class: "Mass storage controller", ClassID: "0x01", Subclass: "Non-Volatile memory controller",
				SubclassID: "0x08", Vendor: "Red Hat, Inc.", VendorID: "0x1b36", Product: "QEMU NVM Express Controller",
				ProductID: "0x0010", Driver: "nvme",
			}
		case "sata":
			devices["0000:00:1f.2"] = hardware.PCIDeviceSpec{
				Class: "Mass storage controller", ClassID: "0x01", Subclass: "SATA controller", SubclassID: "0x06",
				Vendor: "Intel Corporation", VendorID: "0x8086", Driver: "ahci", ProductID: "0x2922",
				Product: "82801IR/IO/IH (ICH9R/DO/DH) 6 port SATA Controller [AHCI mode]",
			}
		case "virtio":
			devices["0000:00:03.0"] = hardware.PCIDeviceSpec{
				Class: "Mass storage controller", ClassID: "0x01", Subclass: "SCSI storage controller", SubclassID: "0x00",
				Vendor: "Red Hat, Inc.", VendorID: "0x1af4", Product: "Virtio block device", ProductID: "0x1001",
				Driver: "virtio-pci",
			}
		}
	}

	return devices
}
