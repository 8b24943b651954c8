// Package hardware is what an emulated machine is made of, and how a node shows it.
package hardware

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-operator/talos-operator/lab/node/disk"
)

// Disk is one disk of a machine.
type Disk struct {
	// Name is the device name, for example sda or nvme0n1.
	Name string `json:"name"`
	// Size in bytes.
	Size uint64 `json:"size"`
	// Model, Serial, WWID, BusPath and Transport (sata, nvme, virtio, usb) are as the kernel reports them.
	Model     string `json:"model,omitempty"`
	Serial    string `json:"serial,omitempty"`
	WWID      string `json:"wwid,omitempty"`
	BusPath   string `json:"busPath,omitempty"`
	Transport string `json:"transport,omitempty"`
	// Rotational, Readonly and CDROM say what kind of disk it is.
	Rotational bool `json:"rotational,omitempty"`
	Readonly   bool `json:"readonly,omitempty"`
	CDROM      bool `json:"cdrom,omitempty"`
	// Content is what another installation left on the disk: the file systems of its partitions, or "talos".
	Content []string `json:"content,omitempty"`
}

// GiB is a size of disks.
const GiB = 1 << 30

// NoUUID is the system UUID of a machine whose firmware has none.
const NoUUID = "none"

// Machine is what a machine keeps whatever happens to its disks.
type Machine struct {
	UUID  string `json:"uuid"`
	Disks []Disk `json:"disks"`
}

// Load reads the machine's hardware from its directory, or puts it together the first time: id is the system UUID, made
// up from the machine's name when empty.
func Load(dir, name, id string, disks []Disk) (*Machine, error) {
	m := &Machine{}

	found, err := disk.ReadJSON(file(dir), m)
	if err != nil {
		return nil, err
	}

	if found {
		return m, nil
	}

	m.UUID, m.Disks = id, complete(name, disks)

	switch id {
	case NoUUID:
		m.UUID = ""
	case "":
		m.UUID = uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String()
	}

	return m, m.Save(dir)
}

// Save writes the machine's hardware to its directory.
func (m *Machine) Save(dir string) error { return disk.WriteJSON(file(dir), m) }

// Disk returns the disk of a device name, nil when there is none.
func (m *Machine) Disk(name string) *Disk {
	for i := range m.Disks {
		if m.Disks[i].Name == name {
			return &m.Disks[i]
		}
	}

	return nil
}

// complete fills in what tells one disk from another.
func complete(machine string, disks []Disk) []Disk {
	disks = slices.Clone(disks)

	for i, d := range disks {
		id := uuid.NewSHA1(uuid.NameSpaceURL, []byte(machine+"/"+d.Name))

		if d.Serial == "" && !d.CDROM {
			d.Serial = fmt.Sprintf("LAB%X", id[:6])
		}

		if d.WWID == "" && !d.CDROM {
			d.WWID = fmt.Sprintf("naa.5%x", id[:8])[:20]
		}

		if d.BusPath == "" {
			d.BusPath = fmt.Sprintf("/pci0000:00/0000:00:1f.2/ata%d/host%d/target%d:0:0/%d:0:0:0/", i+1, i, i, i)
		}

		disks[i] = d
	}

	return disks
}

func file(dir string) string { return filepath.Join(dir, "machine.json") }

// DeviceName is the name of the device at a path.
func DeviceName(path string) string { return strings.TrimPrefix(filepath.Clean(path), "/dev/") }

// Spec is what the node shows of a disk.
func (d Disk) Spec() block.DiskSpec {
	return block.DiskSpec{
		DevPath: "/dev/" + d.Name, Size: d.Size, PrettySize: fmt.Sprintf("%d GB", d.Size/1e9), IOSize: 512, SectorSize: 512,
		Readonly: d.Readonly, CDROM: d.CDROM, Model: d.Model, Serial: d.Serial, WWID: d.WWID, BusPath: d.BusPath,
		SubSystem: "/sys/class/block", Transport: d.Transport, Rotational: d.Rotational,
	}
}

// Kind is what kind of disk it is for the StorageService.
func (d Disk) Kind() storage.Disk_DiskType {
	switch {
	case d.CDROM:
		return storage.Disk_CD
	case d.Transport == "nvme":
		return storage.Disk_NVME
	case d.Transport == "mmc":
		return storage.Disk_SD
	case d.Rotational:
		return storage.Disk_HDD
	case d.Transport != "":
		return storage.Disk_SSD
	}

	return storage.Disk_UNKNOWN
}

// Choose returns the disk that a config wants Talos on.
func Choose(disks []Disk, install config.Install) (string, error) {
	expression, err := install.DiskMatchExpression()
	if err != nil {
		return "", fmt.Errorf("install failed: %w", err)
	}

	if expression == nil {
		name := DeviceName(install.Disk())
		if !slices.ContainsFunc(disks, func(d Disk) bool { return d.Name == name }) {
			return "", fmt.Errorf("install failed: the disk %q was not found", install.Disk())
		}

		return name, nil
	}

	for _, d := range disks {
		r := block.NewDisk(block.NamespaceName, d.Name)
		*r.TypedSpec() = d.Spec()

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
