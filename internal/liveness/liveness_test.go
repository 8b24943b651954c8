package liveness_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/internal/liveness"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// after is a moment, counted from the start.
func after(d time.Duration) time.Time { return start.Add(d) }

func object(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// stuck checks whether the watch reports a controller as stuck.
func stuck(t *testing.T, w *liveness.Watch, at time.Duration, want ...string) {
	t.Helper()

	err := w.Check(after(at))
	if err == nil && len(want) > 0 || err != nil && len(want) == 0 {
		t.Fatalf("after %s: %v", at, err)
	}

	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("after %s: %v names no %s", at, err, part)
		}
	}
}

// TestStuck: a controller is stuck when its reconciliations have run for the bound and none has ended; the first one is
// named. It recovers with the first one that ends.
func TestStuck(t *testing.T) {
	w := &liveness.Watch{}
	stuck(t, w, 0)

	first := w.Begin(t.Context(), "talosmachine", object("b"), after(0))
	second := w.Begin(t.Context(), "talosmachine", object("a"), after(time.Minute))

	stuck(t, w, liveness.Bound-1)
	stuck(t, w, liveness.Bound, "talosmachine", "ns/b", "2 running", "15m0s")

	second(after(liveness.Bound))
	stuck(t, w, 2*liveness.Bound-1)
	stuck(t, w, 2*liveness.Bound, "ns/b", "1 running", "30m0s")

	first(after(2 * liveness.Bound))
	stuck(t, w, 100*liveness.Bound)
}

// TestIdleIsNotStuck: the time in which nothing ran does not count.
func TestIdleIsNotStuck(t *testing.T) {
	w := &liveness.Watch{}
	w.Begin(t.Context(), "talosworker", object("a"), after(0))(after(1))

	w.Begin(t.Context(), "talosworker", object("a"), after(10*liveness.Bound))
	stuck(t, w, 11*liveness.Bound-1)
	stuck(t, w, 11*liveness.Bound, "talosworker")
}

// TestOneMovesNotTheOther: a controller that proceeds does not excuse another one, and one object that is slow does not
// count while others of its controller are reconciled.
func TestOneMovesNotTheOther(t *testing.T) {
	w := &liveness.Watch{}
	w.Begin(t.Context(), "taloscontrolplane", object("slow"), after(0))
	w.Begin(t.Context(), "talosmachine", object("hangs"), after(0))

	for at := time.Duration(0); at < 2*liveness.Bound; at += time.Minute {
		w.Begin(t.Context(), "taloscontrolplane", object("fast"), after(at))(after(at + time.Second))
	}

	stuck(t, w, 2*liveness.Bound, "talosmachine", "ns/hangs")
}

// TestShardsAreApart: a controller of one shard that proceeds does not excuse the one of another shard.
func TestShardsAreApart(t *testing.T) {
	w := &liveness.Watch{}
	one, two := liveness.In(t.Context(), "shard 1"), liveness.In(t.Context(), "shard 2")

	w.Begin(two, "talosmachine", object("hangs"), after(0))
	w.Begin(two, "talosetcdrestore", object("large"), after(0))

	for at := time.Duration(0); at < 2*liveness.Bound; at += time.Minute {
		w.Begin(one, "talosmachine", object("fast"), after(at))(after(at + time.Second))
	}

	stuck(t, w, 2*liveness.Bound, "talosmachine of shard 2", "ns/hangs")
}

// TestRestoresTakeHours: a restore streams a whole database in one reconciliation.
func TestRestoresTakeHours(t *testing.T) {
	w := &liveness.Watch{}
	w.Begin(t.Context(), "talosetcdrestore", object("large"), after(0))
	stuck(t, w, 100*liveness.Bound)
}

// TestRunning: what runs is named, until it ends.
func TestRunning(t *testing.T) {
	w := &liveness.Watch{}
	end := w.Begin(t.Context(), "talosworker", object("a"), after(0))
	w.Begin(t.Context(), "talosmachine", object("b"), after(0))

	if got := w.Running(); !slices.Equal(got, []string{"talosmachine ns/b", "talosworker ns/a"}) {
		t.Errorf("%v", got)
	}

	end(after(1))

	if got := w.Running(); !slices.Equal(got, []string{"talosmachine ns/b"}) {
		t.Errorf("%v", got)
	}
}
