package machineconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

const gb = 1_000_000_000

type (
	disks     = []machineconfig.Disk
	wish      = machineconfig.DiskWish
	selecting = machineconfig.DiskSelector
	volume    = machineconfig.Volume
)

var (
	ssd = machineconfig.Disk{
		DevPath: "/dev/sda", Symlinks: []string{"/dev/disk/by-id/ata-A1"}, Size: 500 * gb, Model: "Samsung 870", Serial: "A1",
		Transport: "sata",
	}
	nvme  = machineconfig.Disk{DevPath: "/dev/nvme0n1", Size: 1000 * gb, Model: "KIOXIA", Serial: "B2", Transport: "nvme"}
	cdrom = machineconfig.Disk{DevPath: "/dev/sr0", Size: 1 * gb, CDROM: true, Readonly: true}
	stick = machineconfig.Disk{DevPath: "/dev/sdb", Size: 32 * gb, Transport: "usb"}
	loop  = machineconfig.Disk{DevPath: "/dev/loop0", Size: 70 * gb, Transport: "virtual"}
	flash = machineconfig.Disk{DevPath: "/dev/mmcblk0", Size: 4 * gb, Transport: "mmc"}
)

func holding(d machineconfig.Disk, volumes ...volume) machineconfig.Disk {
	d.Holds = volumes

	return d
}

var (
	ubuntu = []volume{{Name: "gpt"}, {Name: "ext4", Partition: true, PartitionLabel: "root", Label: "ubuntu"}}
	talos  = []volume{{Name: "gpt"}, {Name: "xfs", Partition: true, PartitionLabel: "STATE"}}
)

var diskTests = map[string]struct {
	found disks
	asked wish
	want  string
	says  string
}{
	"the only one":          {found: disks{cdrom, stick, loop, flash, ssd}, want: "/dev/sda"},
	"two":                   {found: disks{ssd, nvme}, says: "2 disks are suitable"},
	"none":                  {found: disks{cdrom, stick}, says: "no disk is suitable"},
	"no disks":              {says: "no disks"},
	"by path":               {found: disks{ssd, nvme}, asked: wish{Path: "/dev/nvme0n1"}, want: "/dev/nvme0n1"},
	"by link":               {found: disks{ssd, nvme}, asked: wish{Path: "/dev/disk/by-id/ata-A1"}, want: "/dev/sda"},
	"a small one asked for": {found: disks{ssd, flash}, asked: wish{Path: "/dev/mmcblk0"}, want: "/dev/mmcblk0"},
	"no such path":          {found: disks{ssd}, asked: wish{Path: "/dev/vda"}, says: "/dev/vda does not exist"},
	"CD-ROM by path":        {found: disks{cdrom}, asked: wish{Path: "/dev/sr0", Wipe: true}, says: "CD-ROM"},
	"by selector": {
		found: disks{ssd, nvme, cdrom},
		asked: wish{Selector: selecting{Type: "nvme"}},
		want:  "/dev/nvme0n1",
	},
	"by size": {
		found: disks{ssd, nvme},
		asked: wish{Selector: selecting{MinSize: "400GB", MaxSize: "600GB"}},
		want:  "/dev/sda",
	},
	"selector of none": {found: disks{ssd}, asked: wish{Selector: selecting{Model: "WD*"}}, says: "no disk matches"},
	"selector of two": {
		found: disks{ssd, nvme},
		asked: wish{Selector: selecting{Type: "ssd"}},
		says:  "2 disks match",
	},
	"bad size":             {found: disks{ssd}, asked: wish{Selector: selecting{MinSize: "big"}}, says: "not a size"},
	"bad type":             {found: disks{ssd}, asked: wish{Selector: selecting{Type: "tape"}}, says: "tape"},
	"another system":       {found: disks{holding(ssd, ubuntu...)}, says: "ext4 root ubuntu"},
	"another, by path":     {found: disks{holding(ssd, ubuntu...)}, asked: wish{Path: "/dev/sda"}, says: "install.wipe"},
	"another Talos":        {found: disks{holding(ssd, talos...)}, says: "STATE"},
	"a bare filesystem":    {found: disks{holding(ssd, volume{Name: "xfs"})}, says: "xfs"},
	"a nameless partition": {found: disks{holding(ssd, volume{Partition: true})}, says: "a partition"},
	"wipe":                 {found: disks{holding(ssd, ubuntu...)}, asked: wish{Wipe: true}, want: "/dev/sda"},
	"an empty table":       {found: disks{holding(ssd, volume{Name: "gpt"}, volume{})}, want: "/dev/sda"},
	"wipe is no choice":    {found: disks{ssd, nvme}, asked: wish{Wipe: true}, says: "2 disks"},
	"one of two is full":   {found: disks{holding(ssd, ubuntu...), nvme}, says: "2 disks"},
	"installed": {
		found: disks{holding(ssd, talos...), nvme},
		asked: wish{SystemDisk: "/dev/sda"},
		want:  "/dev/sda",
	},
	"installed, as asked": {
		found: disks{holding(ssd, talos...)},
		asked: wish{SystemDisk: "/dev/sda", Path: "/dev/disk/by-id/ata-A1"},
		want:  "/dev/sda",
	},
	"installed elsewhere": {
		found: disks{holding(ssd, talos...), nvme},
		asked: wish{SystemDisk: "/dev/sda", Path: "/dev/nvme0n1"},
		says:  "already installed on /dev/sda",
	},
	"installed, selected": {
		found: disks{holding(ssd, talos...), nvme},
		asked: wish{SystemDisk: "/dev/sda", Selector: selecting{Serial: "A1"}},
		want:  "/dev/sda",
	},
}

func TestChooseDisk(t *testing.T) {
	t.Parallel()

	for name, tt := range diskTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := machineconfig.ChooseDisk(tt.found, tt.asked)

			if tt.says == "" {
				if err != nil || got != tt.want {
					t.Fatalf("got %q %v, want %q", got, err, tt.want)
				}

				return
			}

			var disk *machineconfig.DiskError
			if !errors.As(err, &disk) {
				t.Fatalf("got %q %v, want a DiskError", got, err)
			}

			if !strings.Contains(err.Error(), tt.says) || len(disk.Found) != len(tt.found) || disk.Remedy == "" {
				t.Errorf("%q does not say %q, or not what was found", err, tt.says)
			}

			for _, d := range tt.found {
				if !strings.Contains(err.Error(), d.DevPath) {
					t.Errorf("%q does not list %s", err, d.DevPath)
				}
			}
		})
	}
}

// TestSelectorDecidesLikeTalos holds our matching against the expression that Talos makes of the same selector.
func TestSelectorDecidesLikeTalos(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(r *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "ab", "abc", "b", "xab"})
		pattern := rapid.SampledFrom([]string{"", "a", "a*", "*b", "*a*", "ab"})
		size := rapid.SampledFrom([]uint64{50 * gb, 100 * gb, 100 << 30, 200 * gb})

		disk := machineconfig.Disk{
			DevPath: "/dev/sda", Size: size.Draw(r, "size"), Model: text.Draw(r, "model"), Serial: text.Draw(r, "serial"),
			WWID: text.Draw(r, "wwid"), BusPath: text.Draw(r, "bus"), Rotational: rapid.Bool().Draw(r, "rotational"),
			Transport: rapid.SampledFrom([]string{"sata", "nvme", "mmc"}).Draw(r, "transport"),
			Readonly:  rapid.Bool().Draw(r, "readonly"), CDROM: rapid.Bool().Draw(r, "cdrom"),
		}

		selector := selecting{
			Type:  rapid.SampledFrom([]string{"", "ssd", "hdd", "nvme", "sd"}).Draw(r, "type"),
			Model: pattern.Draw(r, "models"), Serial: pattern.Draw(r, "serials"), WWID: pattern.Draw(r, "wwids"),
			BusPath: pattern.Draw(r, "buses"),
		}

		fields := map[string]string{
			"type": selector.Type, "model": selector.Model, "serial": selector.Serial, "wwid": selector.WWID,
			"busPath": selector.BusPath,
		}

		if bound := rapid.SampledFrom([]string{"", ">= 100GB", "<= 100GiB"}).Draw(r, "bound"); bound != "" {
			fields["size"] = bound
			selector.MinSize, _ = strings.CutPrefix(bound, ">= ")

			if limit, found := strings.CutPrefix(bound, "<= "); found {
				selector.MinSize, selector.MaxSize = "", limit
			}
		}

		if selector == (selecting{}) {
			return // that means something else: the only sensible one
		}

		_, err := machineconfig.ChooseDisk(disks{disk}, wish{Selector: selector})

		if want := talosMatches(r, fields, disk); want != (err == nil) {
			r.Fatalf("Talos says %v, ChooseDisk says %v", want, err)
		}
	})
}

func talosMatches(r *rapid.T, fields map[string]string, disk machineconfig.Disk) bool {
	for key, value := range fields {
		if value == "" {
			delete(fields, key)
		}
	}

	raw, err := yaml.Marshal(map[string]any{"diskSelector": fields})
	if err != nil {
		r.Fatal(err)
	}

	var install v1alpha1.InstallConfig
	if err := yaml.Unmarshal(raw, &install); err != nil {
		r.Fatal(err)
	}

	expression, err := install.DiskMatchExpression()
	if err != nil {
		r.Fatal(err)
	}

	matches, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{
		"disk": &block.DiskSpec{
			Size: disk.Size, Model: disk.Model, Serial: disk.Serial, Wwid: disk.WWID, BusPath: disk.BusPath,
			Rotational: disk.Rotational, Transport: disk.Transport, Readonly: disk.Readonly, Cdrom: disk.CDROM,
		},
		"system_disk": false,
	})
	if err != nil {
		r.Fatal(err)
	}

	return matches
}
