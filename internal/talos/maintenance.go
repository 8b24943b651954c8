package talos

import (
	"context"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"google.golang.org/grpc"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/text"
)

// Maintenance is a connection to a machine in maintenance mode. Its certificate is not issued by a known CA, so nothing
// secret is sent over it except the initial configuration, for which there is no other way.
type Maintenance struct {
	address string
	line    line
	pin     pin
	c       *talosclient.Client
}

// Maintenance connects to a machine in maintenance mode, whose certificate must have the fingerprint; without a
// fingerprint, every certificate is accepted. If the certificate does not match, each call fails, and Mismatch returns
// the reason. The caller must close the connection.
func (p *Pool) Maintenance(ctx context.Context, address, fingerprint string) (*Maintenance, error) {
	m := &Maintenance{address: address, pin: pin{expected: fingerprint}}

	var err error
	m.c, err = dial(ctx, address, m.pin.tls(), &m.line, grpc.WithChainUnaryInterceptor(p.measure))

	return m, err
}

// MaintenanceUUID returns the UUID that the machine in maintenance mode at an address shows; empty if it shows none.
// Nothing is sent to it. An empty fingerprint accepts every certificate.
func (p *Pool) MaintenanceUUID(ctx context.Context, address, fingerprint string) (string, error) {
	m, err := p.Maintenance(ctx, address, fingerprint)
	if err != nil {
		return "", err
	}
	defer m.Close()

	facts, err := m.Facts(ctx)

	return facts.UUID, err
}

// Close closes the connection.
func (m *Maintenance) Close() { _ = m.c.Close() }

// Facts reads what a machine in maintenance mode reports. From then on, only the same connection is used: the
// configuration is for the machine that was observed, and not for another one that takes over its address.
func (m *Maintenance) Facts(ctx context.Context) (Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()

	// This establishes the connection.
	r := &reader{c: m.c}
	if readStage(ctx, r, &Facts{}); r.err != nil {
		return Facts{}, m.pin.classify("its state", m.address, r.err)
	}

	m.line.hold()

	f, err := readFacts(ctx, m.c)

	return f, m.pin.classify("its state", m.address, err)
}

// Apply sends the initial configuration.
func (m *Maintenance) Apply(ctx context.Context, config []byte) ([]string, error) {
	ctx, cancel := act(ctx, slowTimeout)
	defer cancel()

	return m.apply(ctx, config, false)
}

// DryRun asks the machine whether it accepts an initial configuration, and changes nothing. The machine gets the
// configuration, with all its secrets, as Apply sends it.
func (m *Maintenance) DryRun(ctx context.Context, config []byte) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, slowTimeout)
	defer cancel()

	return m.apply(ctx, config, true)
}

func (m *Maintenance) apply(ctx context.Context, config []byte, dryRun bool) ([]string, error) {
	resp, err := m.c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
		Data: config, Mode: machineapi.ApplyConfigurationRequest_AUTO, DryRun: dryRun,
	})
	if err != nil {
		return nil, m.pin.classify("the machine config", m.address, err)
	}

	return applied(resp).Warnings, nil
}

// Disk is a disk of a machine.
type Disk struct {
	// DevPath is the device path, Symlinks its other names.
	DevPath  string
	Symlinks []string
	// Size in bytes.
	Size uint64
	// Model, Serial, WWID, BusPath, SubSystem and Transport as the kernel reports them.
	Model, Serial, WWID, BusPath, SubSystem, Transport string
	// Rotational, Readonly and CDROM as the kernel reports them.
	Rotational, Readonly, CDROM bool
	// Holds lists what was found on the disk. That is nothing until Probed: the machine has read it.
	Holds  []Volume
	Probed bool
}

// Volume is a partition or filesystem that was found on a disk.
type Volume struct {
	// Name of the filesystem or partition table.
	Name string
	// Partition is false for a volume that covers the whole disk.
	Partition bool
	// PartitionLabel and Label of the filesystem.
	PartitionLabel, Label string
}

// Disks lists the disks and their contents. A machine may have no disks, or report none yet.
func (m *Maintenance) Disks(ctx context.Context) ([]Disk, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	found, err := safe.ReaderListAll[*block.Disk](ctx, m.c.COSI)
	if err != nil {
		return nil, m.pin.classify("its disks", m.address, err)
	}

	volumes, err := safe.ReaderListAll[*block.DiscoveredVolume](ctx, m.c.COSI)
	if err != nil {
		return nil, m.pin.classify("its volumes", m.address, err)
	}

	var out []Disk

	for d := range found.All() {
		s := d.TypedSpec()
		out = append(out, Disk{
			DevPath: text.Name(s.DevPath), Symlinks: names(s.Symlinks), Size: s.Size, Model: text.Name(s.Model),
			Serial: text.Name(s.Serial), WWID: text.Name(s.WWID), BusPath: text.Name(s.BusPath),
			SubSystem: text.Name(s.SubSystem), Transport: text.Name(s.Transport), Rotational: s.Rotational,
			Readonly: s.Readonly, CDROM: s.CDROM, Holds: held(volumes, d.Metadata().ID()),
			Probed: isProbed(volumes, d.Metadata().ID()),
		})
	}

	slices.SortFunc(out, func(a, b Disk) int { return strings.Compare(a.DevPath, b.DevPath) })

	return out, nil
}

// Candidates returns disks as machineconfig.ChooseDisk compares them.
func Candidates(found []Disk) []machineconfig.Disk {
	out := make([]machineconfig.Disk, 0, len(found))

	for _, d := range found {
		disk := machineconfig.Disk{
			DevPath: d.DevPath, Symlinks: d.Symlinks, Size: d.Size, Model: d.Model, Serial: d.Serial, WWID: d.WWID,
			BusPath: d.BusPath, SubSystem: d.SubSystem, Transport: d.Transport, Rotational: d.Rotational,
			Readonly: d.Readonly, CDROM: d.CDROM,
		}
		for _, v := range d.Holds {
			disk.Holds = append(disk.Holds, machineconfig.Volume(v))
		}

		out = append(out, disk)
	}

	return out
}

func names(of []string) []string {
	out := make([]string, 0, len(of))
	for _, name := range of {
		out = append(out, text.Name(name))
	}

	return out
}

// isProbed reports whether a machine has read what a disk holds: it lists an empty one as a volume, too.
func isProbed(volumes safe.List[*block.DiscoveredVolume], disk string) bool {
	for v := range volumes.All() {
		if v.Metadata().ID() == disk {
			return true
		}
	}

	return false
}

func held(volumes safe.List[*block.DiscoveredVolume], disk string) []Volume {
	var out []Volume

	for v := range volumes.All() {
		s := v.TypedSpec()
		whole := v.Metadata().ID() == disk

		if !whole && s.Parent != disk || whole && s.Name == "" {
			continue
		}

		out = append(out, Volume{
			Name: text.Name(s.Name), Partition: !whole, PartitionLabel: text.Name(s.PartitionLabel), Label: text.Name(s.Label),
		})
	}

	return out
}
