// Package metal waits for emulated machines to do what metal does, for tests that drive them without an operator.
package metal

import (
	"context"
	"fmt"
	"testing"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// Installed waits until a machine that got its first config in the boot with an ID is installed and has booted again,
// from its disk. It responds as a member of its cluster already while it is being installed, and then goes away.
func Installed(t testing.TB, n *node.Node, first string) {
	t.Helper()

	wait.For(t, n.Name()+" is installed and has booted again", func(context.Context) error {
		if s := n.Status(); !s.Installed || s.BootID == first {
			return fmt.Errorf("it is %+v", s)
		}

		return nil
	})
}
