package node_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// TestNothingOutlivesAPowerCut cuts the power at every moment of a bootstrap. An etcd that was being started just then
// must not live on: the others would join it, and the machine itself could start no other.
func TestNothingOutlivesAPowerCut(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 42, false)
	n := f.boot(1)
	data := f.render(configmachine.TypeControlPlane)

	for round := range 8 {
		f.first(n, data)
		c := f.preparing(n)

		if err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{}); err != nil {
			t.Fatal(err)
		}

		if round > 0 {
			<-time.After(time.Duration(round) * time.Millisecond)
		}

		if err := n.WipeDisk(); err != nil {
			t.Fatal(err)
		}

		for _, port := range []string{"2379", "2380"} {
			if answers(t.Context(), net.JoinHostPort(n.Address(), port)) {
				t.Fatalf("round %d: something listens on port %s of a machine without power", round, port)
			}
		}

		if err := n.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}

		f.stage(n, "maintenance")
	}
}

// answers tells whether anything listens within the time that an etcd needs to start.
func answers(ctx context.Context, address string) bool {
	end := time.After(150 * time.Millisecond)

	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()

	for {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address); err == nil {
			_ = conn.Close()

			return true
		}

		select {
		case <-end:
			return false
		case <-tick.C:
		}
	}
}
