package talos_test

import (
	"context"
	"errors"
	"testing"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestLatency: of a node that is connected and has responded the pool tells how long it takes, and of no other one: a
// series ends with its connection.
func TestLatency(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	ours := newCluster(t, address)
	n := boot(t, address)
	ours.configure(n)

	pool := talos.NewPool()
	defer pool.Close()

	ref := talos.NodeRef{Key: "ns/n", Address: address, Credentials: ours.creds()}

	node, err := pool.Node(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}

	unknown := func(when string) {
		t.Helper()

		if took, ok := pool.Latency(ref.Key); ok {
			t.Errorf("%s it takes %s", when, took)
		}
	}

	unknown("before the first call")

	if _, err := node.Service(t.Context(), "etcd"); err != nil {
		t.Fatal(err)
	}

	unknown("after another call")

	if probe, err := pool.Meet(t.Context(), ref); err != nil || probe.State != talos.StateMember {
		t.Fatalf("%v, %v", probe.State, err)
	}

	if took, ok := pool.Latency(ref.Key); !ok || took <= 0 {
		t.Errorf("it takes %s, %t", took, ok)
	}

	n.Kill()
	wait.For(t, "the connection has ended", func(context.Context) error {
		if _, ok := pool.Latency(ref.Key); ok {
			return errors.New("the latency is still told")
		}

		return nil
	})

	pool.Drop(ref.Key)
	unknown("after it was dropped")
}
