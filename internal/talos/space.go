package talos

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// FreeSpace returns how many bytes are free on /var, the volume EPHEMERAL, where images are stored. A node that does
// not report that is an error: nothing is known then.
func (n *Node) FreeSpace(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	resp, err := n.c.Mounts(ctx)
	if err != nil {
		return 0, classify("its free disk space", n.name(), err)
	}

	var (
		free  uint64
		found bool
	)

	for _, m := range resp.GetMessages() {
		for _, stat := range m.GetStats() {
			// What is mounted later hides what was mounted before.
			if stat.GetMountedOn() == constants.EphemeralMountPoint {
				free, found = stat.GetAvailable(), true
			}
		}
	}

	if !found {
		return 0, failure.Waiting(v1alpha1.ReasonBooting, n.name()+" does not report the free space of "+
			constants.EphemeralMountPoint, retryPrecondition)
	}

	return free, nil
}
