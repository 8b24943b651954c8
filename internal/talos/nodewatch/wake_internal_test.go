package nodewatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/talos-operator/talos-operator/test/wait"
)

// flapper is a watched node without a stream, within a bubble of its own time.
type flapper struct {
	t *testing.T
	w *Watcher
	n *watched
	// changes so far.
	changes int
}

func newFlapper(t *testing.T) *flapper {
	t.Helper()

	f := &flapper{t: t, w: New(t.Context(), nil), n: newWatched(Target{Key: "ns/one"}, func() {})}
	f.w.nodes[f.n.target.Key] = f.n

	return f
}

// change has the node change for a time, and returns how often the queue was woken.
func (f *flapper) change(times int, every time.Duration) int {
	f.t.Helper()

	for range times {
		f.changes++
		f.w.update(f.n, func(s *Snapshot) { s.Watched.Unmet = f.changes })
		wait.Pass(f.t, every)
	}

	return f.woken()
}

func (f *flapper) woken() int {
	synctest.Wait()

	count := len(f.w.events)
	for range count {
		<-f.w.events
	}

	return count
}

// TestWakesAreLimited: a node that changes without an end does not wake the queue without one, and what it changes last
// is told.
func TestWakesAreLimited(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		f := newFlapper(t)

		// Two boots in a row.
		if woken := f.change(60, 0); woken != 60 {
			t.Errorf("60 changes woke the queue %d times", woken)
		}

		if woken := f.change(1000, 0); woken != wakeBurst-60 {
			t.Errorf("1000 changes more woke the queue %d times", woken)
		}

		wait.Pass(t, time.Minute)

		if woken := f.woken(); woken != 1 {
			t.Errorf("the last change was told %d times", woken)
		}
	})
}

// TestFlapping: a machine that alternates for ever gets a reconciliation every five seconds.
func TestFlapping(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		f := newFlapper(t)
		f.change(1000, 0)

		if woken := f.change(6000, 100*time.Millisecond); woken < 110 || woken > 121 {
			t.Errorf("ten minutes of changes woke the queue %d times", woken)
		}

		// Another mode is no new machine.
		f.w.mu.Lock()
		f.n.target.Mode = Secure
		_, f.n = f.w.replace(Target{Key: f.n.target.Key, Mode: Maintenance})
		f.w.mu.Unlock()

		if woken := f.change(600, 100*time.Millisecond); woken > 14 {
			t.Errorf("a minute of changes in another mode woke the queue %d times", woken)
		}
	})
}

// TestWakesOfRefused: the longer a machine is refused, the less often its node wakes the queue; once it is not, at
// once.
func TestWakesOfRefused(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		f := newFlapper(t)
		key := f.n.target.Key

		woken := 0

		for range 600 {
			if f.change(1, time.Second) > 0 {
				woken++

				f.w.Refused(key, true)
			}
		}

		if woken < 6 || woken > 9 {
			t.Errorf("in ten minutes a refused machine woke the queue %d times", woken)
		}

		wait.Pass(t, maxRefusedPause)
		f.woken()
		f.w.Refused(key, false)

		if woken := f.change(3, 0); woken != 3 {
			t.Errorf("a machine that is no longer refused woke the queue %d times", woken)
		}

		f.w.Refused("ns/unknown", true)
	})
}
