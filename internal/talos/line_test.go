package talos_test

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// takeOver gives the address of one machine to another one, which responds there when it returns.
func takeOver(t *testing.T, from, to *node.Node, creds *talos.Credentials, want talos.State) {
	t.Helper()

	address := from.Address()
	from.Kill()

	if err := to.Readdress(address); err != nil {
		t.Fatal(err)
	}

	if err := to.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	awaitState(t, to, creds, want)
}

// TestToItself: what is meant for one machine in one boot reaches no other one, also where another machine of the
// cluster takes its address in the last moment.
func TestToItself(t *testing.T) {
	t.Parallel()

	c, n, _ := member(t)
	second := boot(t, loopback.Address(t))
	c.configure(second)

	creds := c.creds()
	conn := c.open(n, creds)

	facts, err := conn.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	self := talos.Self{UUID: facts.UUID, BootID: facts.BootID}
	other := talos.Self{UUID: second.UUID()}
	earlier := talos.Self{UUID: facts.UUID, BootID: "b0075a3e-0000-4000-8000-000000000000"}

	for name, want := range map[string]talos.Self{"another machine": other, "an earlier boot": earlier} {
		err := conn.ToItself(t.Context(), want, func() error {
			t.Errorf("%s: acted on", name)

			return nil
		})
		if failure.Reason(err) != v1alpha1.ReasonWrongMachine {
			t.Errorf("%s: %v", name, err)
		}
	}

	acted := 0
	if err := conn.ToItself(t.Context(), self, func() error { acted++; return nil }); err != nil || acted != 1 {
		t.Errorf("the machine itself: %d acts, %v", acted, err)
	}

	err = conn.ToItself(t.Context(), self, func() error {
		takeOver(t, n, second, &creds, talos.StateMember)

		return conn.Reset(t.Context(), talos.ResetOptions{Reboot: true})
	})
	if calls := second.Faults().Calls("Reset"); err == nil || calls > 0 {
		t.Errorf("%d resets of the machine that took the address; %v", calls, err)
	}

	// The next query finds the other machine.
	if got, err := conn.Facts(t.Context()); err != nil || got.UUID != second.UUID() {
		t.Errorf("afterwards: %s, %v", got.UUID, err)
	}
}

// TestToItselfInTime: an action is reached although the reconciliation has spent its time on queries.
func TestToItselfInTime(t *testing.T) {
	t.Parallel()

	c, n, _ := member(t)
	conn := c.open(n, c.creds())

	facts, err := conn.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := talos.Pass(t.Context(), time.Nanosecond)
	defer cancel()

	<-ctx.Done()

	acted := false
	if err := conn.ToItself(ctx, talos.Self{UUID: facts.UUID, BootID: facts.BootID}, func() error {
		acted = true

		return nil
	}); err != nil || !acted {
		t.Errorf("acted: %t, %v", acted, err)
	}
}

// TestFirstConfigToItself: a config goes to the machine in maintenance mode that was observed, and to no other one that
// takes its address.
func TestFirstConfigToItself(t *testing.T) {
	t.Parallel()

	n, second := boot(t, loopback.Address(t)), boot(t, loopback.Address(t))

	m, err := talos.NewPool().Maintenance(t.Context(), n.Address(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	if facts, err := m.Facts(t.Context()); err != nil || facts.UUID != n.UUID() {
		t.Fatalf("%s, %v", facts.UUID, err)
	}

	takeOver(t, n, second, nil, talos.StateMaintenance)

	_, err = m.Apply(t.Context(), []byte("a config"))
	if calls := second.Faults().Calls("ApplyConfiguration"); err == nil || calls > 0 {
		t.Errorf("%d configs for the machine that took the address; %v", calls, err)
	}
}
