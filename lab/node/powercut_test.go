package node_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/test/wait"
)

// TestNothingOutlivesAPowerCut cuts the power at every moment of a bootstrap. An etcd that was being started just then
// must not live on: the others would join it, and the machine itself could start no other.
func TestNothingOutlivesAPowerCut(t *testing.T) {
	t.Parallel()

	f := newFleet(t, false)
	n := f.boot(1)
	data := f.render(configmachine.TypeControlPlane)

	for round := range 8 {
		f.first(n, data)
		c := f.preparing(n)

		if err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{}); err != nil {
			t.Fatal(err)
		}

		if round > 0 {
			wait.Pass(t, time.Duration(round)*time.Millisecond)
		}

		if err := n.WipeDisk(); err != nil {
			t.Fatal(err)
		}

		// An etcd that was being started listens within some 150 ms.
		for range 6 {
			if port := listens(t.Context(), n.Address()); port != "" {
				t.Fatalf("round %d: something listens on port %s of a machine without power", round, port)
			}

			wait.Pass(t, 25*time.Millisecond)
		}

		if err := n.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}

		f.stage(n, "maintenance")
	}
}

// listens is the port of etcd at which something listens, if any.
func listens(ctx context.Context, address string) string {
	for _, port := range []string{"2379", "2380"} {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(address, port)); err == nil {
			_ = conn.Close()

			return port
		}
	}

	return ""
}
