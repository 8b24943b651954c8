package talos

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// TestVolumeOf: what a node reports about the keys of a volume is taken over, as far as it can be.
func TestVolumeOf(t *testing.T) {
	t.Parallel()

	slot := 3
	got := volumeOf("EPHEMERAL", &block.VolumeStatusSpec{
		Phase: block.VolumePhaseReady, EncryptionProvider: block.EncryptionProviderLUKS2, EncryptionSlot: &slot,
		ConfiguredEncryptionKeys: []string{"tpm", "static"}, EncryptionLockedToState: true,
		EncryptionFailedSyncs: []string{"slot 4: no TPM"},
		TPMEncryptionOptions:  block.TPMEncryptionOptionsInfo{PCRs: []int{7, 4, 4, -1, 24}, PubKeyPCRs: []int{11}},
	})
	want := VolumeStatus{
		Name: "EPHEMERAL", Phase: "ready", Encryption: "luks2", Slot: &slot, Keys: []string{"tpm", "static"},
		LockedToState: true, PCRs: []int{4, 7}, SignedPCRs: []int{11}, Unsynced: []string{"slot 4: no TPM"},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
