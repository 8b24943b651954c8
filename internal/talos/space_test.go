package talos_test

import (
	"context"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestFreeSpace: the node says how much of its volume is free. Nothing can be pulled to a full one, which is told with
// its reason, and a node that is off says nothing.
func TestFreeSpace(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)
	c.configure(n)

	conn := c.open(n, c.creds())

	wait.For(t, "the volume is mounted", func(ctx context.Context) error {
		free, err := conn.FreeSpace(ctx)
		if err != nil {
			return err
		}

		return wait.True(free == 15*node.GiB) // three quarters of its disk
	})

	n.FillDisk(true)

	if free, err := conn.FreeSpace(t.Context()); err != nil || free != 0 {
		t.Errorf("a full disk has %d bytes, %v", free, err)
	}

	err := conn.Pull(t.Context(), installer+"v1.13.10")
	if failure.Reason(err) != v1alpha1.ReasonImagePull || !strings.Contains(failure.Message(err), "no space left on device") {
		t.Errorf("pulling to a full disk: %v", err)
	}

	n.FillDisk(false)

	if err := conn.Pull(t.Context(), installer+"v1.13.10"); err != nil {
		t.Errorf("pulling to a disk with space: %v", err)
	}

	n.Kill()

	if _, err := conn.FreeSpace(t.Context()); failure.Reason(err) != v1alpha1.ReasonNodeUnreachable {
		t.Errorf("of a node that is off: %v", err)
	}
}
