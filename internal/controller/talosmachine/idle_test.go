package talosmachine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestIdle: an idle machine causes no writes, and is asked for its configuration only every ten minutes, unless the
// stream reports a change.
func TestIdle(t *testing.T) {
	e := found(t, 1, 1)
	e.Eventually("the stream tells of the config", func(context.Context) error {
		e.pass("w-0")

		s, ok := e.r.Watcher.Get(e.Namespace + "/w-0")
		if s.Watched.Config == "" {
			return fmt.Errorf("it told %+v (%t)", s, ok)
		}

		return nil
	})

	// reads counts the queries of a reconciliation: those of each reconciliation, and the configuration if that is read.
	reads := func(after time.Duration) int {
		e.sleep(after)

		before := e.nodes["w-0"].Faults().Calls("Get")
		if _, _, err := e.pass("w-0"); err != nil {
			t.Error(err)
		}

		return e.nodes["w-0"].Faults().Calls("Get") - before
	}

	reads(11 * time.Minute)

	calls := e.mutations("w-0")
	usual := min(reads(time.Second), reads(time.Second), reads(time.Second))

	api.NoWrites(t, e.Namespace, func() {
		e.undisturbed(func() error {
			reads(11 * time.Minute)

			for range 4 {
				if got := reads(140 * time.Second); got != usual {
					return fmt.Errorf("%d reads instead of %d", got, usual)
				}
			}

			if got := reads(time.Minute); got <= usual {
				return fmt.Errorf("%d reads: the config was not looked at for ten minutes", got)
			}

			if got := reads(time.Second); got != usual {
				return fmt.Errorf("%d reads after it was looked at", got)
			}

			return nil
		})
	})

	if e.mutations("w-0") != calls {
		t.Error("an idle node was changed")
	}

	e.edit("w-0", handMade)
	e.Eventually("the stream tells of the edit", func(context.Context) error {
		m, _, err := e.pass("w-0")
		if !drifted(m) {
			return fmt.Errorf("%s; last pass: %w", show(m), err)
		}

		return nil
	})

	// Drift that is only reported causes no repeated reads, either.
	e.undisturbed(func() error {
		for range 4 {
			if got := reads(time.Second); got != usual {
				return fmt.Errorf("%d reads of a node that is left alone", got)
			}
		}

		return nil
	})

	api.NoWrites(t, e.Namespace, func() { reads(time.Second) })
}

// undisturbed makes several attempts: the stream of a node asks for a sign of life from time to time, which counts as a
// read.
func (e *env) undisturbed(try func() error) {
	e.Helper()

	var err error
	for range 5 {
		if err = try(); err == nil {
			return
		}
	}

	e.Error(err)
}

// TestHangingStream: a stream that brings nothing any more while the node responds hides a change for ten minutes at
// most, and costs no write before. Then the node is asked which configuration it runs.
func TestHangingStream(t *testing.T) {
	e := found(t, 1, 1)
	e.Eventually("the stream tells of the config", func(context.Context) error {
		e.pass("w-0")

		s, _ := e.r.Watcher.Get(e.Namespace + "/w-0")
		if s.Watched.Config == "" {
			return fmt.Errorf("it told %+v", s)
		}

		return nil
	})
	e.pass("w-0")
	e.nodes["w-0"].Faults().Mute(true)
	e.edit("w-0", handMade)

	api.NoWrites(t, e.Namespace, func() {
		e.sleep(9 * time.Minute)

		if m, _, err := e.pass("w-0"); err != nil || drifted(m) {
			t.Fatalf("the stream has told of the change, or the node was asked too soon: %s, %v", show(m), err)
		}
	})

	e.sleep(time.Minute)

	if m, _, err := e.pass("w-0"); err != nil || !drifted(m) {
		t.Errorf("a change that the stream hides is not found: %s, %v", show(m), err)
	}
}

// TestIdleWhilePlanned: a change that waits for its slot in the rollout causes no reads or writes, either.
func TestIdleWhilePlanned(t *testing.T) {
	e := found(t, 1, 1)
	e.patchAll(needsReboot)
	e.planned("w-0")

	api.NoWrites(t, e.Namespace, func() {
		for range 3 {
			e.sleep(15 * time.Minute)
			e.pass("w-0")
		}
	})
}

// TestStaleCache: the operator's cache does not contain its own last write yet. It takes no step based on that.
func TestStaleCache(t *testing.T) {
	for name, patch := range map[string]struct{ patch, undo string }{
		"reboot":    {needsReboot, ""},
		"immediate": {immediate, "machine: {nodeLabels: {shelf: {$patch: delete}}}"},
		"try":       {connection, "machine: {certSANs: {$patch: delete}}"},
	} {
		t.Run(name, func(t *testing.T) {
			e := found(t, 1, 1)

			e.patchAll(patch.patch)
			e.planned("w-0")
			e.grant("w-0", true)

			old := e.machine("w-0")

			// The step is recorded and its effect is not visible yet.
			e.nodes["w-0"].Faults().Fail("Reboot", 14, 1, 1)
			e.pass("w-0")

			now, calls := e.machine("w-0"), e.mutations("w-0")
			if now.Status.Change.Phase == v1alpha1.ChangePending {
				t.Fatalf("nothing has begun: %s", show(now))
			}

			if patch.undo != "" {
				// The node rolls it back, so that it looks as if nothing had been sent.
				e.edit("w-0", patch.undo)
				calls = e.mutations("w-0")
			}

			e.cache.lag(old)

			m, res, err := e.pass("w-0")
			if err != nil || res.RequeueAfter == 0 || res.RequeueAfter > time.Second || e.mutations("w-0") != calls {
				t.Errorf("%v, %+v, %d calls", err, res, e.mutations("w-0")-calls)
			}

			if diff := cmp.Diff(now.Status, m.Status); diff != "" {
				t.Errorf("the status is what it was before (-want +got):\n%s", diff)
			}

			e.cache.lag()
			e.until("w-0", "it goes on", func(m *v1alpha1.TalosMachine) bool { return done(m) || m.Status.Intent == nil })
		})
	}
}

// TestUnwatched: a reachable machine without a stream is reconciled soon.
func TestUnwatched(t *testing.T) {
	e := found(t, 1, 1)
	key := e.Namespace + "/w-0"

	e.nodes["w-0"].Faults().Fail("Watch", codes.Unavailable, 1, 1_000_000)
	e.r.Watcher.Remove(key)

	if _, res, err := e.pass("w-0"); err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > 15*time.Second {
		t.Errorf("without a stream it is looked at again after %s: %v", res.RequeueAfter, err)
	}

	// A rejected configuration stops only writes: the node continues to change.
	e.patchAll("machine: [")

	if _, res, err := e.pass("w-0"); err == nil || res.RequeueAfter <= 0 || res.RequeueAfter > 15*time.Second {
		t.Errorf("with a refused config it is looked at again after %s: %v", res.RequeueAfter, err)
	}

	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.ClusterConfigPatches = nil })
	e.nodes["w-0"].Faults().Clear()
	e.Eventually("the stream is up", func(context.Context) error {
		_, res, err := e.pass("w-0")
		if s, _ := e.r.Watcher.Get(key); err != nil || !s.Reachable || res.RequeueAfter != e.r.Resync {
			return fmt.Errorf("%+v: again after %s, %w", s, res.RequeueAfter, err)
		}

		return nil
	})
}
