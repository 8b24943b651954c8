package nodewatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

// bench is a watcher whose events are collected, and machines to watch.
type bench struct {
	t      *testing.T
	w      *nodewatch.Watcher
	cancel context.CancelFunc
	woken  chan string
}

func newBench(t *testing.T) *bench {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	pool := talos.NewPool()
	b := &bench{t: t, w: nodewatch.New(ctx, pool), cancel: cancel, woken: make(chan string, 4096)}

	t.Cleanup(func() {
		cancel()
		b.w.Wait()
		pool.Close()
	})

	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-b.w.Events():
				b.woken <- e.Object.GetNamespace() + "/" + e.Object.GetName()
			}
		}
	}()

	return b
}

func (b *bench) boot(address string) *node.Node {
	b.t.Helper()

	n, err := node.New(node.Options{Name: address, Address: address, Dir: b.t.TempDir(), Modelled: true})
	if err != nil {
		b.t.Fatal(err)
	}

	if err := n.PowerOn(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}

	b.t.Cleanup(n.Kill)

	return n
}

// until waits for a snapshot that is as desired.
func (b *bench) until(key, what string, want func(nodewatch.Snapshot) bool) {
	b.t.Helper()

	wait.For(b.t, key+": "+what, func(context.Context) error {
		if s, ok := b.w.Get(key); !ok || !want(s) {
			return fmt.Errorf("it is %+v", s)
		}

		return nil
	})
}

func (b *bench) drain() {
	for {
		select {
		case <-b.woken:
		default:
			return
		}
	}
}

// told waits for an event of the key.
func (b *bench) told(key string) {
	b.t.Helper()

	for wait.Done(b.t, "somebody is woken for "+key, b.woken) != key {
	}
}

func reachable(s nodewatch.Snapshot) bool { return s.Reachable }

func maintenance(s nodewatch.Snapshot) bool { return s.Reachable && s.Watched.Stage == "maintenance" }

// TestSlowNode: the calls that open a stream take longer than one of them may, all together.
func TestSlowNode(t *testing.T) {
	t.Parallel()

	const key = "ns/slow"

	address := loopback.Address(t)
	b := newBench(t)

	b.boot(address).Faults().Slow("", 1500*time.Millisecond)
	b.w.Set(nodewatch.Target{Key: key, Address: address, Mode: nodewatch.Maintenance})
	b.until(key, "the stream", maintenance)
}

// TestLifeOfAStream follows one machine from maintenance mode through its first config, a power cut and its return.
func TestLifeOfAStream(t *testing.T) {
	t.Parallel()

	const key = "ns/one"

	address := loopback.Address(t)
	b := newBench(t)
	n := b.boot(address)

	b.w.Set(nodewatch.Target{Key: key, Address: address, Mode: nodewatch.Maintenance})
	b.until(key, "maintenance mode", maintenance)
	b.told(key)

	creds := configure(t, n)
	b.w.Set(nodewatch.Target{Key: key, Address: address, Credentials: creds, Mode: nodewatch.Secure})
	b.until(key, "the boot", func(s nodewatch.Snapshot) bool { return s.Reachable && s.Watched.Stage == "booting" })

	installed(t, n)
	b.until(key, "the stream", reachable)
	b.drain()
	n.Kill()

	b.until(key, "the power cut", func(s nodewatch.Snapshot) bool { return !s.Reachable })
	b.told(key)

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	b.until(key, "the return", reachable)
	b.drain()
	b.w.Remove(key)

	if _, ok := b.w.Get(key); ok {
		t.Error("a removed node is still known")
	}
}

// TestFlappingNode: a node whose services go and come back for ever wakes the queue a hundred times, and seldom from
// then on.
func TestFlappingNode(t *testing.T) {
	t.Parallel()

	const key = "ns/flapping"

	address := loopback.Address(t)
	b := newBench(t)
	n := b.boot(address)

	b.w.Set(nodewatch.Target{Key: key, Address: address, Mode: nodewatch.Maintenance})
	b.until(key, "maintenance mode", maintenance)

	creds := configure(t, n)
	installed(t, n)

	n.Faults().Flap(10 * time.Millisecond)
	b.w.Set(nodewatch.Target{Key: key, Address: address, Credentials: creds, Mode: nodewatch.Secure})

	for range 50 {
		b.told(key)
	}

	wait.Pass(t, 3*time.Second)

	if more := len(b.woken); more > 60 {
		t.Errorf("in three seconds the queue is woken %d times more", more)
	}
}

// TestSilence: a node that keeps its connections open and responds to nothing shows within one heartbeat and its
// deadline.
func TestSilence(t *testing.T) {
	t.Parallel()

	const key = "ns/silent"

	address := loopback.Address(t)
	b := newBench(t)
	n := b.boot(address)

	b.w.Set(nodewatch.Target{Key: key, Address: address, Mode: nodewatch.Maintenance})
	b.until(key, "maintenance mode", maintenance)

	n.Freeze(true)
	b.until(key, "the silence", func(s nodewatch.Snapshot) bool { return !s.Reachable })

	n.Freeze(false)
	b.until(key, "the return", reachable)
}

// TestAddressChange: the same machine at another address is another stream.
func TestAddressChange(t *testing.T) {
	t.Parallel()

	const key = "ns/moved"

	b, subnet := newBench(t), loopback.Subnet(t)
	b.boot(subnet + ".1")

	b.w.Set(nodewatch.Target{Key: key, Address: subnet + ".9", Mode: nodewatch.Maintenance})
	b.told(key)

	if s, _ := b.w.Get(key); s.Reachable {
		t.Error("an address without a machine is reachable")
	}

	b.w.Set(nodewatch.Target{Key: key, Address: subnet + ".1", Mode: nodewatch.Maintenance})
	b.until(key, "the machine at its new address", maintenance)
}

// TestManyStreams: fifty machines, all of which lose power at once, and streams that all end with their watcher.
func TestManyStreams(t *testing.T) {
	t.Parallel()

	b, subnet := newBench(t), loopback.Subnet(t)

	var nodes []*node.Node

	for i := range 50 {
		address := fmt.Sprintf("%s.%d", subnet, i+1)
		nodes = append(nodes, b.boot(address))
		b.w.Set(nodewatch.Target{Key: "ns/" + address, Address: address, Mode: nodewatch.Maintenance})
	}

	for _, n := range nodes {
		b.until("ns/"+n.Address(), "maintenance mode", maintenance)
	}

	for _, n := range nodes {
		n.Kill()
	}

	for _, n := range nodes {
		b.until("ns/"+n.Address(), "the power cut", func(s nodewatch.Snapshot) bool { return !s.Reachable })
	}

	b.cancel()

	done := make(chan struct{})

	go func() {
		b.w.Wait()
		close(done)
	}()

	wait.Done(t, "the streams end with their watcher", done)
}

// configure gives a machine a config and returns the credentials of its cluster.
func configure(t *testing.T, n *node.Node) talos.Credentials {
	t.Helper()

	bundle, err := pki.Machinery()
	if err != nil {
		t.Fatal(err)
	}

	in, err := generate.NewInput("c", "https://"+n.Address()+":6443", "1.36.2", generate.WithSecretsBundle(bundle),
		generate.WithVersionContract(machineryconfig.TalosVersion1_13), generate.WithInstallDisk("/dev/sda"))
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := in.Config(configmachine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}

	data, err := cfg.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	pool := talos.NewPool()
	defer pool.Close()

	m, err := pool.Maintenance(t.Context(), n.Address(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	if _, err := m.Apply(t.Context(), data); err != nil {
		t.Fatal(err)
	}

	pair, err := secrets.NewAdminCertificateAndKey(wait.Now(), bundle.Certs.OS, role.MakeSet(role.Admin), time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	return talos.Credentials{CA: bundle.Certs.OS.Crt, Cert: pair.Crt, Key: pair.Key}
}

// installed waits until the machine has been installed and has booted from its disk.
func installed(t *testing.T, n *node.Node) {
	t.Helper()

	wait.For(t, "the machine is installed", func(context.Context) error {
		if s := n.Status(); !s.Installed || s.Stage != "booting" || len(s.Unmet) == 0 {
			return fmt.Errorf("it is %+v", s)
		}

		return nil
	})
}

// TestSilent: a node from which nothing at all comes is told from one that refuses, and its return is noticed.
func TestSilent(t *testing.T) {
	t.Parallel()

	const key = "ns/silent"

	b := newBench(t)
	address := loopback.Address(t)
	n := b.boot(address)

	n.Partition(true)
	b.w.Set(nodewatch.Target{Key: key, Address: address, Mode: nodewatch.Maintenance})

	if b.w.Silent(key) || b.w.Tried(t.Context(), key, 0) {
		t.Error("it is silent before it was asked")
	}

	wait.For(t, "it is silent", func(context.Context) error { return wait.True(b.w.Silent(key)) })

	if !b.w.Tried(t.Context(), key, 0) || !b.w.Tried(t.Context(), "ns/unknown", 0) {
		t.Error("it was not tried")
	}

	b.told(key)
	n.Partition(false)
	b.until(key, "its return", maintenance)

	if b.w.Silent(key) {
		t.Error("it is silent although it answers")
	}

	n.Kill()
	b.until(key, "the power cut", func(s nodewatch.Snapshot) bool { return !s.Reachable })

	if b.w.Silent(key) {
		t.Error("who refuses a connection is not silent")
	}
}

// TestFingerprint: a machine that shows another certificate in maintenance mode than it has to is not watched, until
// that one is expected: that begins a watch at once.
func TestFingerprint(t *testing.T) {
	t.Parallel()

	const key = "ns/pinned"

	address := loopback.Address(t)
	b := newBench(t)
	n := b.boot(address)

	b.w.Set(nodewatch.Target{
		Key: key, Address: address, Mode: nodewatch.Maintenance, Fingerprint: "pnduMqbUZ/sQyDW1o4kP6c1u1PoB2gRQu8KEV38guAM=",
	})
	b.told(key)

	if s, _ := b.w.Get(key); s.Reachable || n.Faults().Calls("Watch") != 0 {
		t.Errorf("a machine with another certificate is watched: %+v", s)
	}

	b.w.Set(nodewatch.Target{
		Key: key, Address: address, Mode: nodewatch.Maintenance, Fingerprint: n.Status().MaintenanceFingerprint,
	})
	b.until(key, "the machine with its own certificate", maintenance)
}

// TestStreams: streams are counted by mode and state, and one that was open and ended is lost once, however often it is
// tried again.
func TestStreams(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	up, never := loopback.Address(t), loopback.Address(t)
	n := b.boot(up)

	b.w.Set(nodewatch.Target{Key: "ns/up", Address: up, Mode: nodewatch.Maintenance})
	b.w.Set(nodewatch.Target{Key: "ns/never", Address: never, Mode: nodewatch.Maintenance})
	b.until("ns/up", "the stream is open", reachable)
	b.streams(nodewatch.Streams{Open: 1, Closed: 1})

	n.Kill()
	b.until("ns/up", "the stream is lost", func(s nodewatch.Snapshot) bool { return !s.Reachable })
	b.streams(nodewatch.Streams{Closed: 2, Lost: 1})

	b.w.Remove("ns/never")
	b.w.Remove("ns/up")
	b.streams(nodewatch.Streams{Lost: 1})
}

// streams checks the streams of maintenance mode. There are no others.
func (b *bench) streams(want nodewatch.Streams) {
	b.t.Helper()

	if got := b.w.Streams(); got[nodewatch.Maintenance] != want || got[nodewatch.Secure] != (nodewatch.Streams{}) {
		b.t.Errorf("streams are %+v, want %+v in maintenance mode", got, want)
	}
}
