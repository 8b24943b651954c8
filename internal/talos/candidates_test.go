package talos_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestCandidates: what tells disks apart, and what they hold, is compared when one is chosen.
func TestCandidates(t *testing.T) {
	t.Parallel()

	got := talos.Candidates([]talos.Disk{{
		DevPath: "/dev/sda", Symlinks: []string{"/dev/disk/by-id/a"}, Size: 1, Model: "model", Serial: "serial", WWID: "wwid",
		BusPath: "bus", SubSystem: "subsystem", Transport: "transport", Rotational: true, Readonly: true, CDROM: true,
		Holds: []talos.Volume{{Name: "xfs", Partition: true, PartitionLabel: "EPHEMERAL", Label: "label"}}, Probed: true,
	}})
	want := []machineconfig.Disk{{
		DevPath: "/dev/sda", Symlinks: []string{"/dev/disk/by-id/a"}, Size: 1, Model: "model", Serial: "serial", WWID: "wwid",
		BusPath: "bus", SubSystem: "subsystem", Transport: "transport", Rotational: true, Readonly: true, CDROM: true,
		Holds: []machineconfig.Volume{{Name: "xfs", Partition: true, PartitionLabel: "EPHEMERAL", Label: "label"}},
	}}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
