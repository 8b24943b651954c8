package talos_test

import (
	"context"
	"testing"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// TestMeet: a member that responds over its connection is not probed again, and whatever else may be at its address is
// found out all the same.
func TestMeet(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	ours := newCluster(t, address)
	ref := talos.NodeRef{Key: "ns/n", Address: address, Credentials: ours.creds()}
	n := boot(t, address)

	pool := talos.NewPool()
	defer pool.Close()

	// It returns how many reads of resources the last answer took.
	meet := func(name string, want talos.State) (reads int) {
		t.Helper()

		p, err := answered(t, name, want == talos.StateUnreachable, func(ctx context.Context) (talos.Probe, error) {
			before := n.Faults().Calls("Get")
			defer func() { reads = n.Faults().Calls("Get") - before }()

			return pool.Meet(ctx, ref)
		})
		if p.State != want || (err == nil) != (want != talos.StateUnreachable) {
			t.Errorf("%s: state %d, error %v; want state %d", name, p.State, err, want)
		}

		return reads
	}

	meet("maintenance", talos.StateMaintenance)
	ours.configure(n)
	meet("a member without a connection", talos.StateMember)

	node, err := pool.Node(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := node.BootID(t.Context()); err != nil {
		t.Fatal(err)
	}

	if calls := meet("a member with a connection", talos.StateMember); calls != 1 {
		t.Errorf("asked %d times over the connection, want once", calls)
	}

	n.Freeze(true)
	meet("frozen", talos.StateUnreachable)
	n.Freeze(false)
	meet("thawed", talos.StateMember)

	other := ref
	other.Credentials = newCluster(t, address).creds()

	if p, err := pool.Meet(t.Context(), other); p.State != talos.StateForeign || err != nil {
		t.Errorf("with credentials of another cluster: state %d, error %v", p.State, err)
	}

	if err := n.WipeDisk(); err != nil {
		t.Fatal(err)
	}

	meet("off", talos.StateUnreachable)

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	awaitState(t, n, nil, talos.StateMaintenance)
	meet("with another disk", talos.StateMaintenance)
}
