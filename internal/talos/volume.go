package talos

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/internal/text"
)

// VolumeStatus is what a node reports about a volume of its disks.
type VolumeStatus struct {
	// Name as Talos calls it: STATE, EPHEMERAL, u-NAME and so on.
	Name string
	// Phase as Talos reports it: ready, failed, missing and so on.
	Phase string
	// Size in bytes.
	Size uint64
	// Encryption is the provider that opened the volume; empty for none.
	Encryption string
	// Slot of the key that opened it; nil if the node does not tell.
	Slot *int
	// Keys are the types of the keys that it was configured for when it was opened.
	Keys []string
	// LockedToState: the keys are useless without the state volume of the node.
	LockedToState bool
	// PCRs are the registers of the TPM whose values a key is bound to, and SignedPCRs those that the signed policy of the
	// boot image is about. Both are empty without a key of the TPM.
	PCRs, SignedPCRs []int
	// Unsynced are keys that could not be written or removed then, and why.
	Unsynced []string
	// Problem is what Talos says about a volume that failed.
	Problem string
}

// Failed reports whether the node cannot use the volume.
func (v VolumeStatus) Failed() bool { return v.Phase == block.VolumePhaseFailed.String() }

// Open reports whether the node has opened the volume in this boot.
func (v VolumeStatus) Open() bool { return v.Phase == block.VolumePhaseReady.String() }

// Settles reports whether a volume of a user is about to be provisioned or opened, or waits for a disk.
func (v VolumeStatus) Settles() bool {
	return !v.System() && !v.Failed() && !v.Open()
}

// System reports whether the volume is one of Talos itself.
func (v VolumeStatus) System() bool { return slices.Contains(ownVolumes, v.Name) }

// maxKeys is how many keys of a volume are reported.
const maxKeys = 8

// ownVolumes are reported first.
var ownVolumes = []string{
	constants.StatePartitionLabel, constants.EphemeralPartitionLabel, constants.ImageCachePartitionLabel,
}

// userVolumes are the beginnings of the names of volumes of users. What else a node reports are directories.
var userVolumes = []string{
	constants.UserVolumePrefix, constants.RawVolumePrefix, constants.SwapVolumePrefix, constants.ExistingVolumePrefix,
	constants.ExternalVolumePrefix,
}

// Volumes returns the volumes that the node has: those of Talos, those of users, and what else failed. It is empty for
// a node in a container.
func (n *Node) Volumes(ctx context.Context) ([]VolumeStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	out, err := readVolumes(ctx, n.c)

	return out, classify("its volumes", n.name(), err)
}

func readVolumes(ctx context.Context, c *talosclient.Client) ([]VolumeStatus, error) {
	list, err := safe.ReaderListAll[*block.VolumeStatus](ctx, c.COSI)
	if err != nil {
		if state.IsNotFoundError(err) || status.Code(err) == codes.NotFound {
			return nil, nil
		}

		return nil, err // without permission nothing is known, which is not the same as having none
	}

	var out []VolumeStatus

	for v := range list.All() {
		volume := volumeOf(v.Metadata().ID(), v.TypedSpec())
		if volume.System() || volume.Failed() || slices.ContainsFunc(userVolumes, func(prefix string) bool {
			return strings.HasPrefix(volume.Name, prefix)
		}) {
			out = append(out, volume)
		}
	}

	slices.SortFunc(out, func(a, b VolumeStatus) int {
		return cmp.Or(cmp.Compare(rank(a.Name), rank(b.Name)), cmp.Compare(a.Name, b.Name))
	})

	return out, nil
}

// Partitions returns what the partitions of the disks of a node hold, by their labels, which are the names of volumes:
// luks, xfs, ext4 and so on; empty for what the node does not recognize.
func (n *Node) Partitions(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	list, err := safe.ReaderListAll[*block.DiscoveredVolume](ctx, n.c.COSI)
	if err != nil {
		return nil, classify("its partitions", n.name(), err)
	}

	out := map[string]string{}

	for v := range list.All() {
		if label := text.Name(v.TypedSpec().PartitionLabel); label != "" {
			out[label] = text.Name(v.TypedSpec().Name)
		}
	}

	return out, nil
}

// maxRegister is the last register of a TPM.
const maxRegister = 23

// registers returns those that a TPM has, each once.
func registers(pcrs []int) []int {
	var out []int

	for pcr := range maxRegister + 1 {
		if slices.Contains(pcrs, pcr) {
			out = append(out, pcr)
		}
	}

	return out
}

func rank(name string) int {
	if at := slices.Index(ownVolumes, name); at >= 0 {
		return at
	}

	return len(ownVolumes)
}

func volumeOf(name string, spec *block.VolumeStatusSpec) VolumeStatus {
	out := VolumeStatus{
		Name: clip(text.Line(name), maxSummary), Phase: spec.Phase.String(), Size: spec.Size, Slot: spec.EncryptionSlot,
		Problem: clip(text.Line(redactText(spec.ErrorMessage)), maxSummary),
	}

	out.LockedToState = spec.EncryptionLockedToState
	out.PCRs, out.SignedPCRs = registers(spec.TPMEncryptionOptions.PCRs), registers(spec.TPMEncryptionOptions.PubKeyPCRs)

	if spec.EncryptionProvider != block.EncryptionProviderNone {
		out.Encryption = spec.EncryptionProvider.String()
	}

	for _, key := range spec.ConfiguredEncryptionKeys[:min(len(spec.ConfiguredEncryptionKeys), maxKeys)] {
		out.Keys = append(out.Keys, clip(text.Name(key), maxPlatform))
	}

	for _, why := range spec.EncryptionFailedSyncs[:min(len(spec.EncryptionFailedSyncs), maxKeys)] {
		out.Unsynced = append(out.Unsynced, clip(text.Line(redactText(why)), maxSummary))
	}

	return out
}
