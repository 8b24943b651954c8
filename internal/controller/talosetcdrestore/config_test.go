package talosetcdrestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/harness"
)

// ask asks a node until that works.
func (e *env) ask(i int, what string, do func(context.Context, *talos.Node) error) {
	e.Helper()
	e.Eventually(e.fleet.Nodes[i].Name()+" "+what, func(ctx context.Context) error {
		return e.fleet.Ask(ctx, i, func(n *talos.Node) error { return do(ctx, n) })
	})
}

// sends the live config of a node once more, changed.
func (e *env) sends(i int, o talos.ApplyOptions, change func([]byte) []byte) {
	e.Helper()
	e.ask(i, "takes a config", func(ctx context.Context, n *talos.Node) error {
		live, err := n.MachineConfig(ctx)
		if err == nil {
			_, err = n.Apply(ctx, change(live), o)
		}

		return err
	})
}

func unchanged(config []byte) []byte { return config }

// shelved has a field more, which takes effect with a reboot only.
func shelved(config []byte) []byte {
	return bytes.Replace(config, []byte("    token: "), []byte("    env: {SHELF: seven}\n    token: "), 1)
}

// boots makes a node boot anew, and waits until it is what the check says.
func (e *env) boots(i int, boot func(context.Context, *talos.Node) error, check func(context.Context, *talos.Node) error) {
	e.Helper()

	before := e.fleet.Nodes[i].Status().BootID

	e.ask(i, "is asked to boot anew", boot)
	e.ask(i, "has booted anew", func(ctx context.Context, n *talos.Node) error {
		if e.fleet.Nodes[i].Status().BootID == before {
			return errors.New("it has not")
		}

		return check(ctx, n)
	})
}

func (e *env) reboots(i int) {
	e.Helper()
	e.boots(i, func(ctx context.Context, n *talos.Node) error { return n.Reboot(ctx) },
		func(ctx context.Context, n *talos.Node) error {
			_, err := n.ConfigState(ctx)

			return err
		})
}

// losesEphemeral has a node lose its data and keep its config.
func (e *env) losesEphemeral(i int) {
	e.Helper()
	e.boots(i, func(ctx context.Context, n *talos.Node) error {
		return n.Reset(ctx, talos.ResetOptions{Reboot: true, KeepConfig: true})
	}, func(ctx context.Context, n *talos.Node) error {
		if data, err := n.EtcdDataPresent(ctx); err != nil || data {
			return fmt.Errorf("it has data: %t, %w", data, err)
		}

		return nil
	})
}

// TestNextBoots: nodes that have booted from their disk, that were sent a config since, and that have another one for
// their next boot are restored alike: a wipe ends in a boot.
func TestNextBoots(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 3)

	e.reboots(0)
	e.sends(1, talos.ApplyOptions{Mode: talos.ApplyNoReboot}, unchanged)
	e.sends(2, talos.ApplyOptions{Mode: talos.ApplyStaged}, shelved)

	if err := e.fleet.Whole(t.Context()); err != nil {
		t.Fatal(err)
	}

	r := e.restore("r", discard)
	e.complete(r)
	e.once(1)

	for i := range e.fleet.Nodes {
		e.holds(e.fleet.State, i, early, late)
		e.ask(i, "runs what its disk had", func(ctx context.Context, n *talos.Node) error {
			live, err := n.MachineConfig(ctx)
			if err == nil && bytes.Contains(live, []byte("SHELF: seven")) != (i == 2) {
				err = errors.New("it does not")
			}

			return err
		})
	}
}

// TestLostEphemeral: nodes that have lost their data, and not their config, get it back without leave to lose anything.
func TestLostEphemeral(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)
	e.losesEphemeral(0)

	resets := e.fleet.Calls("Reset")
	r := e.restore("r")
	e.complete(r)
	e.once(1)
	e.holds(e.fleet.State, 0, early, late)

	if r.Status.LastSnapshot != "" || e.fleet.Calls("Reset") != resets {
		t.Errorf("there was nothing to wipe: %s", harness.Show(r))
	}
}

// patience is for how long a restore waits before it says what it saw.
const patience = 2 * time.Minute

// TestAdvice: what a restore waits for it says with what it saw on the nodes, it wipes nothing meanwhile, and it goes on
// once a person has done what it advises.
func TestAdvice(t *testing.T) {
	t.Parallel()

	try := func(e *env) {
		e.sends(0, talos.ApplyOptions{Mode: talos.ApplyTry, TryTimeout: time.Hour}, unchanged)
	}
	stage := func(e *env) {
		e.losesEphemeral(0)
		e.sends(0, talos.ApplyOptions{Mode: talos.ApplyStaged}, shelved)
	}
	worker := func(e *env) {
		config, err := harness.Config(e.fleet.State, configmachine.TypeWorker)
		if err != nil {
			e.Fatal(err)
		}

		e.sends(0, talos.ApplyOptions{Mode: talos.ApplyStaged}, func([]byte) []byte { return config })
	}
	reboot := func(e *env) { e.reboots(0) }
	send := func(e *env) { e.sends(0, talos.ApplyOptions{Mode: talos.ApplyNoReboot}, unchanged) }

	for name, tt := range map[string]struct {
		before, after func(*env)
		reason        string
		advice, seen  string
	}{
		"reboot after a trial": {
			try, reboot, v1alpha1.ReasonWaitingForEvidence, "reboot it, or send it", "a config was tried since its boot",
		},
		"send after a trial": {
			try, send, v1alpha1.ReasonWaitingForEvidence, "send it the config to keep", "a config was tried since its boot",
		},
		"reboot into what is staged": {
			stage, reboot, v1alpha1.ReasonWaitingForMachines, "cp-0: reboot it", "controlplane is staged",
		},
		"replace what is staged": {
			stage, send, v1alpha1.ReasonWaitingForMachines, "send it the config to keep", "controlplane is staged",
		},
		"replace another type": {
			worker, send, v1alpha1.ReasonWaitingForMachines, "send it one of the type controlplane", "worker is staged",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := backedUp(t, 1)
			tt.before(e)

			mutations := e.fleet.Mutations()
			r := e.restore("r", discard)
			e.waits(r, tt.reason, tt.advice)
			e.Clock.Sleep(patience)
			e.waits(r, tt.reason, "; observed: cp-0: ")
			e.waits(r, tt.reason, tt.seen)

			if got := e.fleet.Mutations(); got != mutations {
				t.Errorf("%d calls changed something while it waited", got-mutations)
			}

			tt.after(e)
			e.complete(r)
			e.holds(e.fleet.State, 0, early, late)
		})
	}
}
