package node_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/node"
)

// TestNoQuorum: what the last of three modelled voters answers is what a real one does, while it runs on and after it
// was started alone.
func TestNoQuorum(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	nodes := []*node.Node{f.boot(1), f.boot(2), f.boot(3)}
	c := f.found(nodes...)[0]

	nodes[1].Kill()
	nodes[2].Kill()
	checkLostWhileRunning(t, c)

	nodes[0].Kill()

	if err := nodes[0].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	c = f.client(nodes[0])
	f.serviceShows("etcd runs again", c, "etcd", func(s service) bool { return s.state == "Running" })
	checkStartedAlone(t, c)

	for _, n := range nodes[1:] {
		if err := n.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	f.ready(nodes...)
}

// checkLostWhileRunning: some calls fail, some work, the rest never ends.
func checkLostWhileRunning(t *testing.T, c *client.Client) {
	t.Helper()

	ctx := t.Context()

	st, err := c.EtcdStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}

	if m := st.GetMessages()[0].GetMemberStatus(); m.GetLeader() != 0 || m.GetMemberId() == 0 ||
		!slices.Equal(m.GetErrors(), []string{"etcdserver: no leader"}) {
		t.Errorf("status: %v", m)
	}

	for _, local := range []bool{false, true} {
		_, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: local})
		if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "etcdserver: no leader") {
			t.Errorf("member list, local %v: %v", local, err)
		}
	}

	err = c.EtcdRemoveMemberByID(ctx, &machine.EtcdRemoveMemberByIDRequest{MemberId: 7})
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "failed to remove member 7: etcdserver: no leader") {
		t.Errorf("remove: %v", err)
	}

	if n, err := snapshotSize(ctx, c); err != nil || n == 0 {
		t.Errorf("snapshot: %d bytes, %v", n, err)
	}

	if _, err := c.EtcdDefragment(ctx); err != nil {
		t.Errorf("defragment: %v", err)
	}

	calls := etcdCalls(c)
	for _, name := range []string{"alarms", "disarm", "forfeit", "leave"} {
		if !hangs(ctx, calls[name]) {
			t.Errorf("%s ends", name)
		}
	}

	checkBootstrapRefused(t, c)
}

// checkStartedAlone: nothing but a bootstrap is answered.
func checkStartedAlone(t *testing.T, c *client.Client) {
	t.Helper()

	for name, call := range etcdCalls(c) {
		if !hangs(t.Context(), call) {
			t.Errorf("%s ends", name)
		}
	}

	checkBootstrapRefused(t, c)
}

func checkBootstrapRefused(t *testing.T, c *client.Client) {
	t.Helper()

	if err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("bootstrap: %v", err)
	}
}

func etcdCalls(c *client.Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"status": func(ctx context.Context) error { _, err := c.EtcdStatus(ctx); return err },
		"members": func(ctx context.Context) error {
			_, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{})
			return err
		},
		"alarms":     func(ctx context.Context) error { _, err := c.EtcdAlarmList(ctx); return err },
		"disarm":     func(ctx context.Context) error { _, err := c.EtcdAlarmDisarm(ctx); return err },
		"defragment": func(ctx context.Context) error { _, err := c.EtcdDefragment(ctx); return err },
		"snapshot":   func(ctx context.Context) error { _, err := snapshotSize(ctx, c); return err },
		"remove": func(ctx context.Context) error {
			return c.EtcdRemoveMemberByID(ctx, &machine.EtcdRemoveMemberByIDRequest{MemberId: 7})
		},
		"forfeit": func(ctx context.Context) error {
			_, err := c.EtcdForfeitLeadership(ctx, &machine.EtcdForfeitLeadershipRequest{})
			return err
		},
		"leave": func(ctx context.Context) error {
			return c.EtcdLeaveCluster(ctx, &machine.EtcdLeaveClusterRequest{})
		},
	}
}

// snapshotSize reads a snapshot to its end.
func snapshotSize(ctx context.Context, c *client.Client) (int64, error) {
	r, err := c.EtcdSnapshot(ctx, &machine.EtcdSnapshotRequest{})
	if err != nil {
		return 0, err
	}

	return io.Copy(io.Discard, r)
}
