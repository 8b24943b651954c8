package apid_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/wait"
)

// silence is how long a test watches that nothing happens.
const silence = 300 * time.Millisecond

func version(t *testing.T, c *talosclient.Client, d time.Duration) error {
	t.Helper()

	_, err := c.Version(within(t, d))

	return err
}

func connect(addr netip.Addr, d time.Duration) error {
	conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(addr, 50000).String(), d)
	if err != nil {
		return err
	}

	return conn.Close()
}

func isTimeout(err error) bool {
	var timeout net.Error

	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestFreeze(t *testing.T) {
	t.Parallel()

	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))
	c := cluster.client(t, n, role.Admin)

	if err := version(t, c, patience); err != nil {
		t.Fatal(err)
	}

	n.faults.Freeze(true)

	wantCode(t, version(t, c, silence), codes.DeadlineExceeded, "")

	// A frozen machine's kernel still accepts connections.
	if err := connect(addr, patience); err != nil {
		t.Errorf("connecting: %v", err)
	}

	wantCode(t, version(t, cluster.client(t, n, role.Admin), silence), codes.DeadlineExceeded, "")

	before := n.faults.Calls("")
	pending := make(chan error, 1)

	go func() { pending <- version(t, c, patience) }()

	wait.Stays(t, "the call waits", silence, func(context.Context) error {
		select {
		case err := <-pending:
			return fmt.Errorf("answered while frozen: %w", err)
		default:
			return nil
		}
	})

	if n.faults.Calls("") != before {
		t.Error("a call got in")
	}

	// Thawed, it goes on where it was.
	n.faults.Freeze(false)

	if err := wait.Done(t, "the answer", pending); err != nil {
		t.Errorf("after thawing: %v", err)
	}
}

// TestStopWhileFrozen: a node that does not respond, and has connections to others, can still be switched off.
func TestStopWhileFrozen(t *testing.T) {
	t.Parallel()

	for _, reload := range []bool{false, true} {
		cluster, cp1, cp2, _ := fleet(t)
		c := cluster.client(t, cp1, role.Admin)

		if _, err := c.Version(talosclient.WithNode(within(t, patience), cp2.addr.String())); err != nil {
			t.Fatal(err)
		}

		cp1.faults.Freeze(true)

		if reload {
			cp1.server.Reload()
		}

		stopped := make(chan struct{})

		go func() {
			cp1.server.Stop()
			close(stopped)
		}()

		wait.Done(t, "the power goes off", stopped)
		wantCode(t, version(t, c, patience), codes.Unavailable, "")
	}
}

func TestPartition(t *testing.T) {
	t.Parallel()

	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))
	c := cluster.client(t, n, role.Admin)

	if err := version(t, c, patience); err != nil {
		t.Fatal(err)
	}

	n.faults.Partition(true)

	if !n.faults.Partitioned() {
		t.Error("not partitioned")
	}

	wantCode(t, version(t, c, silence), codes.DeadlineExceeded, "")

	// Not even a TCP connection comes about.
	if err := connect(addr, silence); !isTimeout(err) {
		t.Errorf("connecting: %v, want a timeout", err)
	}

	n.faults.Partition(false)

	if err := version(t, c, patience); err != nil {
		t.Errorf("the old connection after the partition: %v", err)
	}

	if err := version(t, cluster.client(t, n, role.Admin), patience); err != nil {
		t.Errorf("a new connection after the partition: %v", err)
	}
}

func TestPartitionOutlivesReboot(t *testing.T) {
	t.Parallel()

	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))

	n.server.Stop()
	n.faults.Partition(true)

	if err := n.server.Start(); err != nil {
		t.Fatal(err)
	}

	if err := connect(addr, silence); !isTimeout(err) {
		t.Errorf("connecting: %v, want a timeout", err)
	}

	n.faults.Clear()

	if err := version(t, cluster.client(t, n, role.Admin), patience); err != nil {
		t.Error(err)
	}
}

// TestNetworkPartition cuts between nodes; the client still reaches both sides.
func TestNetworkPartition(t *testing.T) {
	t.Parallel()

	network := &apid.Network{}
	cluster, cp1, cp2, worker := fleet(t, func(o *apid.Options) { o.Network = network })
	c1, c2 := cluster.client(t, cp1, role.Reader), cluster.client(t, cp2, role.Reader)

	across := func(c *talosclient.Client, to *node, d time.Duration) error {
		_, err := c.Version(talosclient.WithNode(within(t, d), to.addr.String()))

		return err
	}

	if err := across(c1, cp2, patience); err != nil {
		t.Fatal(err)
	}

	network.Partition("split", apid.Hosts(cp1.addr), apid.Hosts(cp2.addr, worker.addr))

	for _, c := range []*talosclient.Client{c1, c2} {
		if err := version(t, c, patience); err != nil {
			t.Errorf("the client is not cut off: %v", err)
		}
	}

	wantCode(t, across(c1, cp2, silence), codes.DeadlineExceeded, "")    // an established connection
	wantCode(t, across(c1, worker, silence), codes.DeadlineExceeded, "") // a new one
	wantCode(t, across(c2, cp1, silence), codes.DeadlineExceeded, "")

	if err := across(c2, worker, patience); err != nil {
		t.Errorf("on the same side: %v", err)
	}

	network.Heal("split")

	for _, to := range []*node{cp2, worker} {
		if err := across(c1, to, patience); err != nil {
			t.Errorf("after the partition: %v", err)
		}
	}
}

func TestSlowAndFail(t *testing.T) {
	t.Parallel()

	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))
	c := cluster.client(t, n, role.Admin)
	ctx := within(t, patience)

	if err := version(t, c, patience); err != nil {
		t.Fatal(err)
	}

	n.faults.Slow("/machine.MachineService/Version", silence)

	began := wait.Now()
	err := version(t, c, patience)

	if took := wait.Now().Sub(began); err != nil || took < silence {
		t.Errorf("%v after %s", err, took)
	}

	n.faults.Slow("/machine.MachineService/Version", forever)

	wantCode(t, version(t, c, silence/3), codes.DeadlineExceeded, "")

	if err := c.Reboot(ctx); err != nil {
		t.Errorf("another method: %v", err)
	}

	n.faults.Clear()
	n.faults.Fail("Version", codes.ResourceExhausted, 2, 2)

	var got []codes.Code
	for range 4 {
		got = append(got, status.Code(version(t, c, patience)))
	}

	want := []codes.Code{codes.OK, codes.ResourceExhausted, codes.ResourceExhausted, codes.OK}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	if n.faults.Answers("Version", codes.ResourceExhausted) != 2 {
		t.Error("answers not counted")
	}
}

// TestLostAnswer: the node does what it is asked, and the caller does not learn it.
func TestLostAnswer(t *testing.T) {
	addr := addresses(t, 1)[0]
	n := startNode(t, "m-1", addr, maintenance(t, "m-1", addr))
	c := insecure(t, n)

	n.faults.Add(apid.Rule{
		Method: "ApplyConfiguration", Code: codes.Unavailable, Message: "transport is closing", Late: true, Count: 1,
		Changes: true,
	})

	if _, err := c.ApplyConfiguration(within(t, patience), &machine.ApplyConfigurationRequest{DryRun: true}); err != nil {
		t.Errorf("a dry run: %v", err)
	}

	_, err := c.ApplyConfiguration(within(t, patience), &machine.ApplyConfigurationRequest{})
	wantCode(t, err, codes.Unavailable, "transport is closing")

	if n.appliedTimes() != 2 {
		t.Errorf("applied %d times", n.appliedTimes())
	}

	n.faults.Fail("ApplyConfiguration", codes.Unavailable, 1, 1)

	_, err = c.ApplyConfiguration(within(t, patience), &machine.ApplyConfigurationRequest{})
	wantCode(t, err, codes.Unavailable, "injected fault")

	if n.appliedTimes() != 2 {
		t.Error("a failing call was carried out")
	}
}

func TestCounters(t *testing.T) {
	cluster, cp1, cp2, _ := fleet(t)
	reader, admin := cluster.client(t, cp1, role.Reader), cluster.client(t, cp1, role.Admin)
	ctx := within(t, patience)

	var (
		mu   sync.Mutex
		seen []apid.Call
	)

	cancel := cp2.faults.Subscribe(func(c apid.Call) {
		mu.Lock()
		defer mu.Unlock()

		seen = append(seen, c)
	})

	calls := []func(context.Context) error{
		func(ctx context.Context) error { _, err := reader.Version(ctx); return err },
		func(ctx context.Context) error { return reader.Reboot(ctx) }, // refused
		func(ctx context.Context) error { _, err := admin.Version(ctx); return err },
		func(ctx context.Context) error {
			_, err := admin.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{DryRun: true})

			return err
		},
	}
	for i, fn := range calls {
		if err := fn(talosclient.WithNode(ctx, cp2.addr.String())); (err != nil) != (i == 1) {
			t.Fatalf("call %d: %v", i, err)
		}
	}

	if got := cp2.faults.MutatingCalls(); got != 0 {
		t.Errorf("%d mutating calls before any", got)
	}

	cancel()

	if err := admin.Reboot(talosclient.WithNode(ctx, cp2.addr.String())); err != nil {
		t.Fatal(err)
	}

	for name, pair := range map[string][2]int{
		"mutating":  {cp2.faults.MutatingCalls(), 1},
		"all":       {cp2.faults.Calls(""), 5},
		"versions":  {cp2.faults.Calls("Version"), 2},
		"refused":   {cp2.faults.Answers("Reboot", codes.PermissionDenied), 1},
		"forwarder": {cp1.faults.Calls(""), 0},
		"seen":      {len(seen), 3},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: got %d, want %d", name, pair[0], pair[1])
		}
	}

	if len(seen) > 0 && (!seen[0].Forwarded || seen[0].Peer != cp1.addr || seen[0].Roles[0] != "os:reader") {
		t.Errorf("first call: %+v", seen[0])
	}

	if r, ok := seen[len(seen)-1].Request.(*machine.ApplyConfigurationRequest); !ok || !r.GetDryRun() {
		t.Errorf("last call: %+v", seen[len(seen)-1])
	}
}
