package machineconfig

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/ryanuber/go-glob"
)

// MinDiskSize is the least size of a disk that is taken without being asked for: Talos needs about 4 GiB, and smaller
// disks are flash modules of a server's management more often than anything else.
const MinDiskSize uint64 = 5_000_000_000

// DiskSelector picks a disk by its properties; every property that is set must match. Texts may hold * as wildcard.
type DiskSelector struct {
	// MinSize and MaxSize, for example 100GB or 100GiB.
	MinSize, MaxSize string
	// Type is ssd, hdd, nvme or sd.
	Type    string
	Model   string
	Serial  string
	WWID    string
	BusPath string
}

// Disk is a disk of a node, as its Disk and DiscoveredVolume resources show it.
type Disk struct {
	DevPath    string
	Symlinks   []string
	Size       uint64
	Model      string
	Serial     string
	WWID       string
	BusPath    string
	SubSystem  string
	Transport  string
	Rotational bool
	Readonly   bool
	CDROM      bool
	// Holds lists what was found on the disk: partitions and filesystems, whole-disk ones too. A blank volume and an empty
	// partition table do not count as something.
	Holds []Volume
}

// Volume is a partition or filesystem that a node found on a disk.
type Volume struct {
	// Name of the filesystem or partition table: gpt, xfs, ext4, vfat, luks …
	Name string
	// Partition is true for a partition, false for something that covers the whole disk.
	Partition bool
	// PartitionLabel and Label (of the filesystem).
	PartitionLabel string
	Label          string
}

// DiskWish is the disk that a user asked for.
type DiskWish struct {
	// Path wins over Selector. Without both the only sensible disk is taken.
	Path     string
	Selector DiskSelector
	// Wipe allows to install over what the disk holds.
	Wipe bool
	// SystemDisk is the device path of the disk that Talos already runs from, empty when it booted from elsewhere.
	SystemDisk string
}

// DiskError says why no disk could be chosen, and what was found.
type DiskError struct {
	// Problem and Remedy are sentences for a person.
	Problem, Remedy string
	// Found describes the disks of the node, sorted.
	Found []string
}

// Error implements error.
func (e *DiskError) Error() string {
	found := "no disks"
	if len(e.Found) > 0 {
		found = strings.Join(e.Found, ", ")
	}

	return e.Problem + "; found: " + found + "; " + e.Remedy
}

// ChooseDisk returns the device path of the disk to install to: the one asked for, or the only sensible one. When in
// doubt the error is a *DiskError that says what was found.
func ChooseDisk(disks []Disk, want DiskWish) (string, error) {
	if want.SystemDisk != "" {
		return systemDisk(disks, want)
	}

	disk, err := pick(disks, want)
	if err != nil {
		return "", err
	}

	if holds := disk.holds(); holds != "" && !want.Wipe {
		return "", problem(disks, fmt.Sprintf("disk %s holds another installation or data (%s)", disk.DevPath, holds),
			"choose another disk, or set install.wipe to overwrite it")
	}

	return disk.DevPath, nil
}

// systemDisk keeps a node on the disk that it runs from. Talos does not install a second time, so a wish for another
// disk would be ignored without a word.
func systemDisk(disks []Disk, want DiskWish) (string, error) {
	at := slices.IndexFunc(disks, func(d Disk) bool { return d.hasPath(want.SystemDisk) })

	switch {
	case want.Path != "":
		if want.Path == want.SystemDisk || at >= 0 && disks[at].hasPath(want.Path) {
			return want.SystemDisk, nil
		}
	case want.Selector != (DiskSelector{}):
		m, err := want.Selector.compile()
		if err != nil {
			return "", problem(disks, err.Error(), "correct install.diskSelector")
		}

		if at >= 0 && m.matches(disks[at]) {
			return want.SystemDisk, nil
		}
	default:
		return want.SystemDisk, nil
	}

	return "", problem(disks, "Talos is already installed on "+want.SystemDisk+", which is not the disk asked for",
		"ask for that disk, or wipe the machine and boot it from other media")
}

func pick(disks []Disk, want DiskWish) (Disk, error) {
	switch {
	case want.Path != "":
		return pickPath(disks, want.Path)
	case want.Selector != (DiskSelector{}):
		return pickSelector(disks, want.Selector)
	default:
		return pickOnly(disks)
	}
}

func pickPath(disks []Disk, wanted string) (Disk, error) {
	at := slices.IndexFunc(disks, func(d Disk) bool { return d.hasPath(wanted) })
	if at < 0 {
		return Disk{}, problem(disks, "disk "+wanted+" does not exist", "correct install.disk")
	}

	if reason := disks[at].unwritable(); reason != "" {
		return Disk{}, problem(disks, "disk "+wanted+" is "+reason, "correct install.disk")
	}

	return disks[at], nil
}

func pickSelector(disks []Disk, selector DiskSelector) (Disk, error) {
	m, err := selector.compile()
	if err != nil {
		return Disk{}, problem(disks, err.Error(), "correct install.diskSelector")
	}

	var matching []Disk

	for _, disk := range disks {
		if disk.unwritable() == "" && m.matches(disk) {
			matching = append(matching, disk)
		}
	}

	switch len(matching) {
	case 1:
		return matching[0], nil
	case 0:
		return Disk{}, problem(disks, "no disk matches install.diskSelector", "correct install.diskSelector")
	default:
		return Disk{}, problem(disks, fmt.Sprintf("%d disks match install.diskSelector (%s)", len(matching), names(matching)),
			"make install.diskSelector narrower")
	}
}

func pickOnly(disks []Disk) (Disk, error) {
	var sensible []Disk

	for _, disk := range disks {
		if disk.unsuitable() == "" {
			sensible = append(sensible, disk)
		}
	}

	const remedy = "name one in install.disk or install.diskSelector"

	switch len(sensible) {
	case 1:
		return sensible[0], nil
	case 0:
		return Disk{}, problem(disks, "no disk is suitable for an installation", remedy)
	default:
		return Disk{}, problem(disks, fmt.Sprintf("%d disks are suitable for an installation (%s)",
			len(sensible), names(sensible)), remedy)
	}
}

func problem(disks []Disk, what, remedy string) *DiskError {
	found := make([]string, 0, len(disks))
	for _, disk := range disks {
		found = append(found, disk.describe())
	}

	slices.Sort(found)

	return &DiskError{Problem: what, Remedy: remedy, Found: found}
}

func names(disks []Disk) string {
	out := make([]string, 0, len(disks))
	for _, disk := range disks {
		out = append(out, disk.DevPath)
	}

	slices.Sort(out)

	return strings.Join(out, ", ")
}

func (d Disk) hasPath(p string) bool { return d.DevPath == p || slices.Contains(d.Symlinks, p) }

// unwritable says why a disk cannot hold an installation at all.
func (d Disk) unwritable() string {
	switch {
	case d.CDROM:
		return "a CD-ROM"
	case d.Readonly:
		return "read-only"
	default:
		return ""
	}
}

// virtualDevices are block devices without hardware of their own. Network block devices belong to other machines.
var virtualDevices = []string{"loop", "zram", "ram", "dm-", "md", "nbd", "drbd", "rbd", "zd", "fd"}

// unsuitable says why a disk is not taken without being asked for.
func (d Disk) unsuitable() string {
	if reason := d.unwritable(); reason != "" {
		return reason
	}

	name := path.Base(d.DevPath)

	switch {
	case strings.EqualFold(d.Transport, "usb"):
		return "removable"
	case slices.ContainsFunc(virtualDevices, func(prefix string) bool { return strings.HasPrefix(name, prefix) }),
		strings.EqualFold(d.Transport, "virtual"), strings.EqualFold(d.Transport, "iscsi"):
		return "virtual"
	case d.Size < MinDiskSize:
		return "too small"
	default:
		return ""
	}
}

var partitionTables = []string{"", "gpt", "mbr", "dos"}

// holds describes what an installation would overwrite.
func (d Disk) holds() string {
	var out []string

	for _, volume := range d.Holds {
		if !volume.Partition && slices.Contains(partitionTables, volume.Name) {
			continue
		}

		var parts []string

		for _, part := range []string{volume.Name, volume.PartitionLabel, volume.Label} {
			if part != "" && !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}

		if len(parts) == 0 {
			parts = []string{"a partition"}
		}

		out = append(out, strings.Join(parts, " "))
	}

	slices.Sort(out)

	return strings.Join(slices.Compact(out), ", ")
}

func (d Disk) describe() string {
	parts := []string{humanize.Bytes(d.Size)}

	for _, part := range []string{d.Model, d.Transport, d.unsuitable()} {
		if part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}

	if holds := d.holds(); holds != "" {
		parts = append(parts, "holds "+holds)
	}

	return d.DevPath + " (" + strings.Join(parts, ", ") + ")"
}

// matcher is a compiled selector. It decides as Talos does; the tests hold both against each other.
type matcher struct {
	DiskSelector

	min, max uint64
}

func (s DiskSelector) compile() (*matcher, error) {
	m := &matcher{DiskSelector: s, max: ^uint64(0)}

	for _, bound := range []struct {
		field, text string
		into        *uint64
	}{{"minSize", s.MinSize, &m.min}, {"maxSize", s.MaxSize, &m.max}} {
		if bound.text == "" {
			continue
		}

		size, err := humanize.ParseBytes(bound.text)
		if err != nil {
			return nil, fmt.Errorf("install.diskSelector.%s %q is not a size like 100GB", bound.field, bound.text)
		}

		*bound.into = size
	}

	if s.Type != "" && !slices.Contains([]string{"ssd", "hdd", "nvme", "sd"}, s.Type) {
		return nil, fmt.Errorf("install.diskSelector.type %q is none of ssd, hdd, nvme, sd", s.Type)
	}

	return m, nil
}

func (m *matcher) matches(d Disk) bool {
	for _, pair := range [][2]string{{m.Model, d.Model}, {m.Serial, d.Serial}, {m.WWID, d.WWID}, {m.BusPath, d.BusPath}} {
		if pair[0] != "" && !glob.Glob(pair[0], pair[1]) {
			return false
		}
	}

	switch {
	case m.Type == "nvme" && d.Transport != "nvme",
		m.Type == "sd" && d.Transport != "mmc",
		m.Type == "hdd" && !d.Rotational,
		m.Type == "ssd" && d.Rotational:
		return false
	}

	return d.Size >= m.min && d.Size <= m.max
}
