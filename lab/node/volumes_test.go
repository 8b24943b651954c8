package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestVolumesOpen: an encrypted volume opens with the lowest slot whose key it has, and gets the others of the
// configuration then. One that does not open ends the boot, and the machine says why; wiped, it is made anew.
func TestVolumesOpen(t *testing.T) {
	t.Parallel()

	const (
		none   = "machine: {sysctls: {a.b: c}}"
		volume = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption: {provider: luks2, keys: ["
		nodeID = "{slot: 0, nodeID: {}}"
		kms    = "{slot: 2, kms: {endpoint: 'https://a'}}"
	)

	b := newBench(t, loopback.Address(t))
	plain := b.config

	configured := func(patch string) []byte {
		b.config = plain
		b.config = b.patched(patch)

		return b.config
	}
	shows := func(what, want string) {
		t.Helper()

		c := b.secure()
		wait.For(t, what, func(ctx context.Context) error {
			v, err := safe.StateGetByID[*block.VolumeStatus](ctx, c.COSI, "EPHEMERAL")
			if err != nil {
				return err
			}

			s, slot := v.TypedSpec(), -1
			if s.EncryptionSlot != nil {
				slot = *s.EncryptionSlot
			}

			got := fmt.Sprint(s.Phase, " ", s.EncryptionProvider, " ", slot, " ", s.ConfiguredEncryptionKeys, " ", s.ErrorMessage)
			if !strings.HasPrefix(got, want) {
				return fmt.Errorf("%s", got)
			}

			return nil
		})
	}
	boots := func(patch string) {
		t.Helper()

		if _, err := b.apply(b.secure(), configured(patch), machine.ApplyConfigurationRequest_STAGED, false); err != nil {
			t.Fatal(err)
		}

		if err := b.n.PowerOff(t.Context()); err != nil {
			t.Fatal(err)
		}

		if err := b.n.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	configured(volume + nodeID + "]}")
	b.configure()
	shows("it is encrypted", "ready luks2 0 [nodeID]")
	boots(volume + nodeID + ", " + kms + "]}")
	shows("a key is added", "ready luks2 0 [kms nodeID]")
	boots(volume + kms + "]}")
	shows("the other key opens it", "ready luks2 2 [kms]")
	boots(volume + kms + ", {slot: 3, kms: {endpoint: 'https://b'}}]}")
	shows("each type is told once", "ready luks2 2 [kms] ")
	boots(volume + nodeID + "]}")
	shows("a key that it does not have", "failed none -1 [] error opening encrypted volume: no handlers available")
	boots(none)
	shows("no key", "failed none -1 [] filesystem type mismatch: luks != xfs")

	err := b.secure().ResetGeneric(t.Context(), &machine.ResetRequest{
		Reboot: true, Mode: machine.ResetRequest_SYSTEM_DISK,
		SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
	})
	if err != nil {
		t.Fatal(err)
	}

	shows("it is made anew", "ready none -1 []")
	boots(volume + nodeID + "]}")
	shows("it has data", "failed none -1 [] error opening encrypted volume: block dev type mismatch: xfs != luks")
}
