package talos_test

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// calls are what an observer was told: by method and code.
type calls struct {
	mu    sync.Mutex
	told  map[string]bool
	wrong []string
}

func (c *calls) observe(method string, code codes.Code, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.told[method+" "+code.String()] = true

	if took <= 0 {
		c.wrong = append(c.wrong, method)
	}
}

// has checks that a call has ended with a code, and that each had a duration.
func (c *calls) has(t *testing.T, call string) {
	t.Helper()

	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.told[call] || len(c.wrong) > 0 {
		t.Errorf("%s is not among %v; calls without a duration: %v", call, c.told, c.wrong)
	}
}

// TestObserve: the observer is told of calls over each kind of connection, with the code of the result.
func TestObserve(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	ours := newCluster(t, address)
	n := boot(t, address)
	seen := &calls{told: map[string]bool{}}

	pool := talos.NewPool()
	pool.Observe = seen.observe

	defer pool.Close()

	m, err := pool.Maintenance(t.Context(), address, "")
	if err != nil {
		t.Fatal(err)
	}

	_, err = m.Facts(t.Context())
	m.Close()

	if err != nil {
		t.Fatal(err)
	}

	seen.has(t, "Get OK")

	ours.configure(n)

	node, err := pool.Node(t.Context(), talos.NodeRef{Key: "ns/n", Address: address, Credentials: ours.creds()})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := node.Service(t.Context(), "etcd"); err != nil {
		t.Fatal(err)
	}

	seen.has(t, "ServiceList OK")

	n.Faults().Fail("ServiceList", codes.Unavailable, 1, 1)

	if _, err := node.Service(t.Context(), "etcd"); err == nil {
		t.Error("the call succeeds")
	}

	seen.has(t, "ServiceList Unavailable")

	// The stream of a machine in maintenance mode has a connection of its own.
	other := loopback.Address(t)
	boot(t, other)

	streaming, watching := &calls{told: map[string]bool{}}, talos.NewPool()
	watching.Observe = streaming.observe
	open := make(chan struct{})

	var once sync.Once

	go func() {
		_ = watching.StreamMaintenance(t.Context(), other, "", func(talos.Watched) { once.Do(func() { close(open) }) })
	}()

	wait.Done(t, "the stream is open", open)

	streaming.has(t, "Get OK")
}
