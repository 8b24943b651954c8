package talos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestEtcd: the calls that decide about etcd, against real members.
func TestEtcd(t *testing.T) {
	t.Parallel()

	registry, subnet := node.NewRegistry(), loopback.Subnet(t)
	c := newCluster(t, subnet+".1")
	nodes := []*node.Node{
		boot(t, subnet+".1", assets(t), in(registry)), boot(t, subnet+".2", assets(t), in(registry)),
	}
	conns := make([]*talos.Node, len(nodes))

	for i, n := range nodes {
		c.configure(n)
		conns[i] = c.open(n, c.creds())
	}

	t.Run("before the bootstrap", func(t *testing.T) { beforeBootstrap(t, conns[0]) })

	if err := conns[0].Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}

	vote(t, 2, conns...)

	t.Run("serving", func(t *testing.T) { serving(t, conns) })
	t.Run("leadership", func(t *testing.T) { leadership(t, conns) })
	t.Run("defragmentation", func(t *testing.T) { defragmentation(t, conns[1]) })

	var data []byte

	t.Run("snapshot", func(t *testing.T) { data = snapshot(t, conns[0]) })
	t.Run("leaving", func(t *testing.T) { leaving(t, conns) })
	t.Run("recovery", func(t *testing.T) { recovery(t, c, data) })
	t.Run("power", func(t *testing.T) { silence(t, nodes[0], conns[0]) })
}

// in has a machine share a discovery service with others.
func in(r *node.Registry) func(*node.Options) { return func(o *node.Options) { o.Cluster = r } }

// vote waits until nodes tell of so many voting members.
func vote(t *testing.T, want int, nodes ...*talos.Node) {
	t.Helper()

	wait.For(t, fmt.Sprintf("voting members: %d", want), func(ctx context.Context) error {
		for _, n := range nodes {
			members, err := n.EtcdMembers(ctx)
			if err != nil {
				return err
			}

			voters := slices.DeleteFunc(members, func(m talos.Member) bool { return m.Learner })
			if len(voters) != want {
				return fmt.Errorf("%d vote", len(voters))
			}
		}

		return nil
	})
}

// unfounded waits until the etcd of a node waits for a bootstrap.
func unfounded(t *testing.T, n *talos.Node) {
	t.Helper()

	wait.For(t, "etcd waits for a bootstrap", func(ctx context.Context) error {
		if state, err := n.EtcdService(ctx); err != nil || state != talos.EtcdPreparing {
			return fmt.Errorf("it is %v: %w", state, err)
		}

		return nil
	})
}

// beforeBootstrap: etcd calls never answer where etcd does not run. That is told apart from a caller without time.
func beforeBootstrap(t *testing.T, n *talos.Node) {
	unfounded(t, n)

	if present, err := n.EtcdDataPresent(t.Context()); err != nil || present {
		t.Errorf("etcd data before the bootstrap: %v, %v", present, err)
	}

	notServing(t, n)

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()

	_, err := n.EtcdStatus(ctx)
	if errors.Is(err, talos.ErrNotServing) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller without time learns something of etcd: %v", err)
	}
}

// notServing: every call of etcd says so, and does not wait for an etcd.
func notServing(t *testing.T, n *talos.Node) {
	t.Helper()

	var wg sync.WaitGroup

	for name, call := range map[string]func(context.Context) error{
		"members":         func(ctx context.Context) error { _, err := n.EtcdMembers(ctx); return err },
		"status":          func(ctx context.Context) error { _, err := n.EtcdStatus(ctx); return err },
		"alarms":          func(ctx context.Context) error { _, err := n.EtcdAlarms(ctx); return err },
		"snapshot":        func(ctx context.Context) error { _, err := n.EtcdSnapshot(ctx, nil); return err },
		"defragmentation": n.EtcdDefragment,
	} {
		wg.Go(func() {
			if err := call(t.Context()); !errors.Is(err, talos.ErrNotServing) {
				t.Errorf("%s where etcd does not run: %v", name, err)
			}
		})
	}

	ended := make(chan struct{})

	go func() {
		wg.Wait()
		close(ended)
	}()

	wait.Done(t, "every call ends by itself", ended)
}

func defragmentation(t *testing.T, n *talos.Node) {
	if err := n.EtcdDefragment(t.Context()); err != nil {
		t.Fatal(err)
	}

	st, err := n.EtcdStatus(t.Context())
	if err != nil || st.DBSize == 0 || st.DBSizeInUse == 0 || st.DBSizeInUse > st.DBSize {
		t.Errorf("sizes after a defragmentation: %+v, %v", st, err)
	}
}

// snapshot reads a snapshot to its end.
func snapshot(t *testing.T, n *talos.Node) []byte {
	t.Helper()

	var told int64

	r, err := n.EtcdSnapshot(t.Context(), func(total int64) { told = total })
	if err != nil {
		t.Fatal(err)
	}

	defer r.Close()

	data, err := io.ReadAll(r)
	if err != nil || len(data)%512 != 32 || told != int64(len(data)) {
		t.Errorf("a snapshot of %d bytes, told of %d: %v", len(data), told, err)
	}

	return data
}

// recovery founds a cluster from the snapshot of another, on a node that belongs to none.
func recovery(t *testing.T, c *cluster, data []byte) {
	fresh := boot(t, loopback.Address(t), assets(t))
	c.configure(fresh)

	n := c.open(fresh, c.creds())

	unfounded(t, n)

	bad := slices.Clone(data)
	bad[len(bad)-1] ^= 0xff

	err := n.EtcdRecover(t.Context(), talos.VerifySnapshot(bytes.NewReader(bad)))
	if !errors.Is(err, talos.ErrSnapshotDamaged) {
		t.Errorf("a damaged snapshot is uploaded: %v", err)
	}

	if err := n.EtcdRecover(t.Context(), talos.VerifySnapshot(bytes.NewReader(data))); err != nil {
		t.Fatal(err)
	}

	if err := n.BootstrapRecover(t.Context(), false); err != nil {
		t.Fatal(err)
	}

	vote(t, 1, n)

	st, err := n.EtcdStatus(t.Context())
	if err != nil || st.DBSize < int64(len(data))/2 {
		t.Errorf("the database holds %d bytes, the snapshot %d; %v", st.DBSize, len(data), err)
	}

	if err := n.BootstrapRecover(t.Context(), false); !errors.Is(err, talos.ErrAlreadyExists) {
		t.Errorf("a second recovery: %v", err)
	}
}

// silence: a node that is frozen or off proves nothing about its etcd.
func silence(t *testing.T, machine *node.Node, n *talos.Node) {
	for name, fault := range map[string]func(){"frozen": func() { machine.Freeze(true) }, "off": machine.Kill} {
		fault()

		_, err := n.EtcdMembers(t.Context())
		if errors.Is(err, talos.ErrNotServing) || failure.Reason(err) != v1alpha1.ReasonNodeUnreachable {
			t.Errorf("the member list of a node that is %s: %v", name, err)
		}

		machine.Freeze(false)
	}
}

// led is the status of a member that has a leader: on a busy computer etcd may lose its leader for a moment.
func led(t *testing.T, n *talos.Node) (st talos.EtcdStatus, err error) {
	t.Helper()

	wait.For(t, "a leader", func(ctx context.Context) error {
		if st, err = n.EtcdStatus(ctx); err == nil && st.Leader == 0 {
			return fmt.Errorf("there is none: %+v", st)
		}

		return nil
	})

	return st, err
}

func serving(t *testing.T, conns []*talos.Node) {
	if err := conns[0].Bootstrap(t.Context()); !errors.Is(err, talos.ErrAlreadyExists) {
		t.Errorf("a second bootstrap: %v", err)
	}

	if present, err := conns[0].EtcdDataPresent(t.Context()); err != nil || !present {
		t.Errorf("etcd data after the bootstrap: %v, %v", present, err)
	}

	var ids []uint64

	for i, n := range conns {
		st, err := led(t, n)
		if err != nil || st.MemberID == 0 || st.Leader == 0 || st.RaftIndex == 0 || st.Learner {
			t.Errorf("status of %d: %+v, %v", i, st, err)
		}

		if alarms, err := n.EtcdAlarms(t.Context()); err != nil || len(alarms) != 0 {
			t.Errorf("alarms of %d: %v, %v", i, alarms, err)
		}

		members, err := n.EtcdMembers(t.Context())
		if err != nil || !slices.ContainsFunc(members, func(m talos.Member) bool {
			return m.ID == st.MemberID && len(m.PeerHosts) == 1 && m.Name != ""
		}) {
			t.Errorf("node %d is not on its own list: %+v, %v", i, members, err)
		}

		own, ok := talos.MemberByID(members, st.MemberID)
		if parsed, err := talos.ParseMemberID(talos.FormatMemberID(own.ID)); !ok || err != nil || parsed != st.MemberID {
			t.Errorf("member %x of node %d is found as %+v, %v", st.MemberID, i, own, err)
		}

		if _, ok := talos.MemberByID(members, 42); ok {
			t.Error("a member that is not there is found")
		}

		ids = append(ids, st.MemberID)
	}

	if ids[0] == ids[1] {
		t.Errorf("two nodes are one member: %x", ids)
	}
}

func leadership(t *testing.T, conns []*talos.Node) {
	st, err := led(t, conns[0])
	if err != nil {
		t.Fatal(err)
	}

	leader := 1
	if st.Leader == st.MemberID {
		leader = 0
	}

	// Twice: the second call finds that it no longer leads.
	for range 2 {
		if err := conns[leader].ForfeitLeadership(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	wait.For(t, "the other one leads", func(ctx context.Context) error {
		if other, err := conns[1-leader].EtcdStatus(ctx); err != nil || other.Leader != other.MemberID {
			return fmt.Errorf("it says %+v: %w", other, err)
		}

		return nil
	})
}

// leaving: an unknown member is as good as a removed one, and a node that left has no data.
func leaving(t *testing.T, conns []*talos.Node) {
	if err := conns[0].RemoveMember(t.Context(), 42); err != nil {
		t.Errorf("removing a member that is not there: %v", err)
	}

	if err := conns[1].LeaveEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}

	vote(t, 1, conns[0])

	if present, err := conns[1].EtcdDataPresent(t.Context()); err != nil || present {
		t.Errorf("etcd data of a node that left: %v, %v", present, err)
	}

	if err := conns[0].LeaveEtcd(t.Context()); err == nil || failure.ClassOf(err) == failure.ClassTerminal {
		t.Errorf("the last member leaves: %v", err)
	}
}
