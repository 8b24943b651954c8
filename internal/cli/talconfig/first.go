package talconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/spec"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// bare is a machine in maintenance mode. Its certificate is made anew at each boot, so that the fingerprint is the same
// only for this boot of this machine.
type bare struct {
	fingerprint, uuid string
	// disk is the one that Talos is installed to, holds what that disk holds and the user allows to wipe. An image of
	// Talos that was written to it is kept: such a machine is not installed again.
	disk, holds string
	isInstalled bool
}

// stageMaintenance is what a machine in maintenance mode reports about itself.
const stageMaintenance = "maintenance"

// wipes reports whether the user allows to wipe the disk of a machine.
func (d *drive) wipes(m *model.Machine) bool {
	return slices.ContainsFunc(d.wipe, func(name string) bool { return isNamed(m, name) })
}

func isNamed(m *model.Machine, name string) bool {
	return m.Hostname == name || slices.Contains(m.Addresses(), name)
}

// checkWipe refuses names that are not those of machines that get their first config.
func (d *drive) checkWipe() error {
	for _, name := range d.wipe {
		i := slices.IndexFunc(d.nodes, func(t *target) bool { return isNamed(t.Machine, name) })

		switch {
		case i < 0:
			return fmt.Errorf("--wipe %s: no node of the talconfig.yaml has this host name or address", name)
		case !d.nodes[i].isSelected || !d.firstConfig:
			return fmt.Errorf("--wipe %s: the node does not get its first config; only what such a node holds is wiped", name)
		case d.nodes[i].bare == nil: // the same command is run again after an interruption
			d.warn("Note: --wipe %s has no effect: the node runs with a config already, and nothing of it is wiped", name)
		}
	}

	return nil
}

// bares are the selected machines in maintenance mode, control planes first.
func (d *drive) bares() []*target {
	out := slices.DeleteFunc(slices.Clone(d.nodes), func(t *target) bool { return !t.isSelected || t.bare == nil })

	slices.SortStableFunc(out, func(a, b *target) int {
		switch {
		case a.ControlPlane == b.ControlPlane:
			return 0
		case a.ControlPlane:
			return -1
		}

		return 1
	})

	return out
}

// meetBare plans the first config of a machine. Nothing is sent to it: it cannot prove what it is, and its config has
// the keys of the cluster.
func (d *drive) meetBare(ctx context.Context, t *target) error {
	node, err := d.pool.Maintenance(ctx, t.address, t.bare.fingerprint)
	if err != nil {
		return err
	}
	defer node.Close()

	seen, err := d.inspect(ctx, t, node)
	if err != nil {
		return err
	}

	*t.bare = seen
	t.desired = t.config

	if seen.holds != "" {
		t.desired, err = withWipe(t.config)
	}

	return err
}

// inspect reads what a machine in maintenance mode is, and chooses its disk. From then on, the connection leads to this
// machine only.
func (d *drive) inspect(ctx context.Context, t *target, node *talos.Maintenance) (bare, error) {
	facts, err := node.Facts(ctx)
	if wrong := talos.Mismatch(err); wrong != nil {
		return bare{}, fmt.Errorf("the machine at %s has rebooted, or another one has its address, since the plan was "+
			"made: %w", t.address, wrong)
	}

	switch {
	case err != nil:
		return bare{}, err
	case facts.Stage != stageMaintenance:
		return bare{}, fmt.Errorf("the machine at %s accepts unauthenticated requests, and does not report that it is in "+
			"maintenance mode (stage %q)", t.address, facts.Stage)
	}

	found, err := node.Disks(ctx)
	if err != nil {
		return bare{}, err
	}

	out := bare{fingerprint: t.bare.fingerprint, uuid: facts.UUID, isInstalled: facts.SystemDisk != ""}
	out.disk, out.holds, err = chooseDisk(t.config, talos.Candidates(found), facts.SystemDisk, d.wipes(t.Machine))

	switch {
	case err == nil && !isProbed(found, out.disk):
		err = fmt.Errorf("the machine does not report yet what disk %s holds: run the command again", out.disk)
	case errors.Is(err, errHolds):
		err = fmt.Errorf("%w; choose another disk, or overwrite it by --wipe %s", err, t.Hostname)
	}

	return out, err
}

var (
	errHolds = errors.New("nothing was installed")
	// bootMedia are the file systems of media that machines boot from to be installed.
	bootMedia = []string{"iso9660"}
)

// chooseDisk returns the disk that a config installs to, as the operator chooses it, and what it holds, which the user
// has to allow to be wiped. A disk that cannot be told for sure is an error.
func chooseDisk(config []byte, disks []machineconfig.Disk, system string, wipe bool) (disk, holds string, err error) {
	wish, err := diskWish(config)
	if err != nil {
		return "", "", err
	}

	if wish.SystemDisk = system; system != "" {
		disk, err := installedDisk(disks, wish, wipe)

		return disk, "", err
	}

	disk, err = machineconfig.ChooseDisk(disks, wish)
	if err == nil {
		return disk, "", nil
	}

	// The disk may be the right one, but for what it holds.
	wish.Wipe = true

	disk, again := machineconfig.ChooseDisk(disks, wish)

	var why *machineconfig.DiskError

	switch {
	case again != nil && errors.As(again, &why):
		return "", "", fmt.Errorf("%s; correct installDisk or installDiskSelector. Found: %s", why.Problem, foundDisks(why))
	case again != nil:
		return "", "", again
	case isBootMedium(disks, disk):
		return "", "", fmt.Errorf("disk %s is a boot medium; correct installDisk or installDiskSelector", disk)
	case errors.As(err, &why) && !wipe:
		return "", "", fmt.Errorf("%s: %w", why.Problem, errHolds)
	case errors.As(err, &why):
		return disk, why.Problem, nil
	}

	return "", "", err
}

// howToReset is what a user does with a machine that has a Talos of its own. In maintenance mode, a machine accepts no
// reset from the network.
const howToReset = "reset it: boot it once with the entry \"Reset Talos installation\" of its boot menu, or with the " +
	"kernel argument talos.experimental.wipe=system, and run the command again"

// installedDisk is for a machine on which Talos is installed already. Its first config keeps that Talos and all that is
// on the disk, whatever the config says about a wipe. So nothing is sent to it, unless the disk is the right one and
// holds nothing but an image of Talos that was never configured.
func installedDisk(disks []machineconfig.Disk, wish machineconfig.DiskWish, wipe bool) (string, error) {
	disk, err := machineconfig.ChooseDisk(disks, wish)

	var why *machineconfig.DiskError

	switch used := usedPartitions(disks, wish.SystemDisk); {
	case errors.As(err, &why):
		return "", fmt.Errorf("%s: %s", why.Problem, howToReset)
	case err != nil:
		return "", err
	case len(used) > 0:
		return "", fmt.Errorf("the machine has a Talos on %s that was configured before (%s), and a first config would keep "+
			"that, also with --wipe: %s", wish.SystemDisk, strings.Join(used, ", "), howToReset)
	case wipe:
		return "", fmt.Errorf("the machine has a Talos on %s, which a first config keeps, also with --wipe: leave out "+
			"--wipe to use this Talos; otherwise %s", wish.SystemDisk, howToReset)
	}

	return disk, nil
}

// imagePartitions are those of an image of Talos.
var imagePartitions = []string{
	constants.EFIPartitionLabel, constants.BIOSGrubPartitionLabel, constants.BootPartitionLabel,
	constants.MetaPartitionLabel, constants.StatePartitionLabel, constants.ImageCachePartitionLabel,
}

// usedPartitions names those of a disk which an image of Talos does not have, or has without an encryption. One without
// a file system holds nothing: it was reset.
func usedPartitions(disks []machineconfig.Disk, path string) []string {
	var out []string

	for _, d := range disks {
		if d.DevPath != path {
			continue
		}

		for _, v := range d.Holds {
			isOfImage := slices.Contains(imagePartitions, v.PartitionLabel) && v.Name != encrypted
			if v.Partition && v.Name != "" && !isOfImage {
				out = append(out, cmp.Or(v.PartitionLabel, v.Name))
			}
		}
	}

	return out
}

// encrypted is the name of what an encrypted partition holds.
const encrypted = "luks"

func foundDisks(e *machineconfig.DiskError) string {
	if len(e.Found) == 0 {
		return "no disks"
	}

	return strings.Join(e.Found, ", ")
}

func isBootMedium(disks []machineconfig.Disk, path string) bool {
	return slices.ContainsFunc(disks, func(d machineconfig.Disk) bool {
		return d.DevPath == path && slices.ContainsFunc(d.Holds, func(v machineconfig.Volume) bool {
			return slices.Contains(bootMedia, v.Name)
		})
	})
}

// diskWish reads which disk a config installs to: patches may have changed that of the talconfig.yaml.
func diskWish(config []byte) (machineconfig.DiskWish, error) {
	cfg, err := configloader.NewFromBytes(config)
	if err != nil {
		return machineconfig.DiskWish{}, errors.New("its config cannot be read") // the cause may quote secrets
	}

	main := cfg.RawV1Alpha1()
	if main == nil || main.MachineConfig == nil || main.MachineConfig.MachineInstall == nil {
		return machineconfig.DiskWish{}, errors.New("its config does not say which disk Talos is installed to")
	}

	install := main.MachineConfig.MachineInstall
	if install.InstallDisk != "" {
		return machineconfig.DiskWish{Path: install.InstallDisk}, nil
	}

	s := spec.DiskSelector(install.InstallDiskSelector)
	if s == nil {
		return machineconfig.DiskWish{}, errors.New("its installDiskSelector cannot be compared with the disks of the " +
			"machine: use installDisk, or select by size (>= or <=), type, model, serial, wwid or busPath")
	}

	return machineconfig.DiskWish{Selector: machineconfig.DiskSelector{
		MinSize: s.MinSize, MaxSize: s.MaxSize, Type: s.Type, Model: s.Model, Serial: s.Serial, WWID: s.WWID,
		BusPath: s.BusPath,
	}}, nil
}

// withWipe is a config whose installation wipes the disk.
func withWipe(config []byte) ([]byte, error) {
	cfg, err := configloader.NewFromBytes(config)
	if err != nil {
		return nil, errors.New("its config cannot be read")
	}

	cfg, err = cfg.PatchV1Alpha1(func(c *talosv1alpha1.Config) error {
		if c.MachineConfig.MachineInstall == nil {
			c.MachineConfig.MachineInstall = &talosv1alpha1.InstallConfig{}
		}

		wipe := true
		c.MachineConfig.MachineInstall.InstallWipe = &wipe

		return nil
	})
	if err != nil {
		return nil, errors.New("its config cannot be changed")
	}

	return cfg.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
}

func isProbed(found []talos.Disk, path string) bool {
	return slices.ContainsFunc(found, func(d talos.Disk) bool { return d.DevPath == path && d.Probed })
}

// checkVersions refuses a first config with other versions than the control planes run. They move by upgrades only, and
// a kubelet must not be newer than the API servers.
func (d *drive) checkVersions() error {
	for _, t := range d.bares() {
		for _, plane := range d.planes() {
			if plane.live == nil {
				continue
			}

			_, kept, err := machineconfig.KeepImageTags(plane.live, t.config, machineconfig.Released{})
			if err != nil {
				return fmt.Errorf("%s: %w", t.Hostname, err)
			}

			for _, k := range kept {
				if k.Field() == "machine.kubelet.image" || t.ControlPlane && k.Field() != "machine.install.image" {
					return fmt.Errorf("%s: %s runs another version of %s: correct the talconfig.yaml, or upgrade the cluster first",
						t.Hostname, plane.Hostname, k.Field())
				}
			}
		}
	}

	return nil
}
