package talos_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// connections of this computer to the Talos API at an address that are open, from the kernel.
func connections(t *testing.T, address string) int {
	t.Helper()

	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}

	// The address is in the order of the bytes of the processor, little endian; the port is 50000.
	octets := netip.MustParseAddr(address).As4()
	slices.Reverse(octets[:])

	remote, open := strings.ToUpper(hex.EncodeToString(octets[:]))+":C350", 0

	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 3 && f[2] == remote && f[3] == "01" {
			open++
		}
	}

	return open
}

// stream watches a node until the test ends or it breaks.
type stream struct {
	seen  chan talos.Watched
	ended chan error
	stop  context.CancelFunc
}

func watch(t *testing.T, pool *talos.Pool, ref talos.NodeRef) *stream {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{seen: make(chan talos.Watched, 256), ended: make(chan error, 1), stop: cancel}

	t.Cleanup(cancel)

	go func() { s.ended <- pool.Stream(ctx, ref, func(w talos.Watched) { s.seen <- w }) }()

	return s
}

func (s *stream) running(t *testing.T) {
	t.Helper()

	wait.For(t, "the stream to tell of the stage", func(context.Context) error {
		select {
		case w := <-s.seen:
			return wait.True(w.Stage != "")
		case err := <-s.ended:
			t.Fatalf("the stream ended: %v", err)
		default:
		}

		return errors.New("it says nothing")
	})
}

// connected waits until there is a number of connections to a node.
func connected(t *testing.T, address, what string, want int) {
	t.Helper()

	wait.For(t, fmt.Sprintf("connections to the node, %d: %s", want, what), func(context.Context) error {
		if open := connections(t, address); open != want {
			return fmt.Errorf("%d", open)
		}

		return nil
	})
}

// member boots a configured node of a cluster of its own.
func member(t *testing.T) (*cluster, *node.Node, talos.NodeRef) {
	t.Helper()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)
	c.configure(n)

	return c, n, talos.NodeRef{Key: "ns/" + address, Address: address, Credentials: c.creds()}
}

// watched boots a member and watches it over the connections of a pool.
func watched(t *testing.T) (*cluster, *node.Node, talos.NodeRef, *talos.Pool, *stream) {
	t.Helper()

	c, n, ref := member(t)
	pool := talos.NewPool()
	t.Cleanup(pool.Close)

	s := watch(t, pool, ref)
	s.running(t)
	// Those of the probes that waited for the machine close behind its back.
	connected(t, ref.Address, "that of the stream", 1)

	return c, n, ref, pool, s
}

// uuid asks for the UUID at the other end of the connection that there is, and returns how many reads of resources that
// took.
func uuid(t *testing.T, n *node.Node, conn *talos.Node) int {
	t.Helper()

	before := n.Faults().Calls("Get")

	if id, err := conn.UUIDOver(t.Context(), conn.Connection()); err != nil || id == "" {
		t.Fatalf("UUID %q, error %v", id, err)
	}

	return n.Faults().Calls("Get") - before
}

// TestOneConnection: the stream of a node and the calls to it share one connection, over which it is asked once who it
// is; a connection that broke is not kept, and its successor asks again.
func TestOneConnection(t *testing.T) {
	t.Parallel()

	_, n, ref, pool, s := watched(t)

	conn, err := pool.Node(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}

	if calls := uuid(t, n, conn); calls != 1 {
		t.Errorf("the first question took %d reads, want 1", calls)
	}

	if calls := uuid(t, n, conn); calls != 0 {
		t.Errorf("the second question took %d reads, want none", calls)
	}

	before := n.Faults().Calls("Get")
	if _, err := conn.UUID(t.Context()); err != nil || n.Faults().Calls("Get") == before {
		t.Errorf("who has to know now did not ask: %v", err)
	}

	connected(t, ref.Address, "of the stream and the calls", 1)
	n.Kill()

	if err := wait.Done(t, "the stream ends", s.ended); err == nil {
		t.Error("a stream to a node without power ended well")
	}

	wait.For(t, "the broken connection to go", func(ctx context.Context) error {
		// As a watcher of a node does.
		_ = pool.Stream(ctx, ref, func(talos.Watched) {})

		again, err := pool.Node(ctx, ref)
		if err != nil {
			return err
		}

		return wait.True(again != conn)
	})

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	awaitState(t, n, &ref.Credentials, talos.StateMember)

	next, err := pool.Node(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}

	if calls := uuid(t, n, next); calls != 1 {
		t.Errorf("over a new connection the question took %d reads, want 1", calls)
	}
}

// TestRenewedCredentials: a stream goes on over its connection when calls move on to newer credentials, does not bring
// the older ones back, and closes what is not in use when it ends.
func TestRenewedCredentials(t *testing.T) {
	t.Parallel()

	c, _, older, pool, s := watched(t)

	newer := older
	newer.Credentials = c.creds()

	conn, err := pool.Node(t.Context(), newer)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := conn.BootID(t.Context()); err != nil {
		t.Fatal(err)
	}

	late := watch(t, pool, older)
	late.running(t)

	if again, err := pool.Node(t.Context(), newer); err != nil || again != conn {
		t.Errorf("a late stream replaced the connection; error %v", err)
	}

	select {
	case err := <-s.ended:
		t.Errorf("the stream ended with its credentials: %v", err)
	default:
	}

	connected(t, older.Address, "of the calls and of two streams", 3)

	s.stop()
	late.stop()
	connected(t, older.Address, "those of the streams close", 1)

	if _, err := conn.BootID(t.Context()); err != nil {
		t.Errorf("calls broke with the stream: %v", err)
	}
}

// TestDroppedNode: a node that is dropped keeps its connection for as long as it is watched.
func TestDroppedNode(t *testing.T) {
	t.Parallel()

	_, _, ref, pool, s := watched(t)
	pool.Drop(ref.Key)

	wait.Stays(t, "the connection to a node that is watched", 200*time.Millisecond, func(context.Context) error {
		if open := connections(t, ref.Address); open != 1 {
			return fmt.Errorf("%d are open", open)
		}

		return nil
	})

	s.stop()
	connected(t, ref.Address, "it closes", 0)
}

// TestForget: the connections to the nodes of a cluster that is gone are closed, and those to other clusters are kept.
func TestForget(t *testing.T) {
	t.Parallel()

	_, _, ref, pool, s := watched(t)
	_, _, other := member(t)

	if _, err := pool.Node(t.Context(), other); err != nil {
		t.Fatal(err)
	}

	pool.Forget(ref.Credentials.CA)
	s.stop()
	connected(t, ref.Address, "its cluster is gone, and its stream has ended", 0)

	kept, err := pool.Node(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := kept.BootID(t.Context()); err != nil {
		t.Errorf("the node of another cluster: %v", err)
	}
}
