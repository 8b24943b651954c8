package talos_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestMeet: a member that answers over its connection is not probed again, and whatever else may be at its address is
// found out all the same.
func TestMeet(t *testing.T) {
	const address = "127.36.3.1"

	ours := newCluster(t, address)
	ref := talos.NodeRef{Key: "ns/n", Address: address, Credentials: ours.creds()}
	n := boot(t, address)

	pool := talos.NewPool()
	defer pool.Close()

	meet := func(name string, want talos.State) {
		t.Helper()

		if p, err := pool.Meet(t.Context(), ref); p.State != want || (err == nil) != (want != talos.StateUnreachable) {
			t.Errorf("%s: state %d, error %v; want state %d", name, p.State, err, want)
		}
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

	before := n.Faults().Calls("Get")

	meet("a member with a connection", talos.StateMember)

	if calls := n.Faults().Calls("Get") - before; calls != 1 {
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
