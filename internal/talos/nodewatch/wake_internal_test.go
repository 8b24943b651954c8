package nodewatch

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/talos-operator/talos-operator/test/wait"
)

// TestWakesAreLimited: a node that changes without an end does not wake the queue without one, and what it changes last is
// told.
func TestWakesAreLimited(t *testing.T) {
	t.Parallel()

	w := New(t.Context(), nil)
	n := &watched{target: Target{Key: "ns/one"}, tried: make(chan struct{}), wakes: rate.NewLimiter(wakeRate, wakeBurst)}
	w.nodes[n.target.Key] = n

	began := time.Now()

	for i := range 1000 {
		w.update(n, func(s *Snapshot) { s.Watched.Unmet = i + 1 })
	}

	most := wakeBurst + wakeRate*(2+int(time.Since(began)/time.Second))
	if woken := len(w.events); woken > most || woken < wakeBurst {
		t.Errorf("1000 changes woke the queue %d times", woken)
	}

	for len(w.events) > 0 {
		<-w.events
	}

	wait.Done(t, "the last change is told", w.events)
}
