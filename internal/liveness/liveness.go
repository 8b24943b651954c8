// Package liveness reports whether reconciliations proceed. A process whose reconciliations are stuck, for example in a
// deadlock, still serves HTTP: without this check, /healthz would respond well until someone notices that nothing
// happens.
package liveness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Bound is how long the reconciliations of a controller may run without one of them ending. Each has deadlines for its
// calls, the longest of which, a defragmentation of etcd, is three minutes. A restart on a false alarm interrupts every
// cluster, so the bound is far above that.
const Bound = 15 * time.Minute

// unbounded are controllers whose reconciliations may rightly take hours: a restore reads, verifies and sends a whole
// database in one. Its streams end when nothing moves in them.
var unbounded = []string{"talosetcdrestore"}

// Watch follows the reconciliations that are running. The zero value is ready to use and safe for concurrent use.
type Watch struct {
	mu          sync.Mutex
	controllers map[controller]*progress
}

// controller is one of the process, which has several of the same name if it works on several shards.
type controller struct{ name, part string }

// String implements fmt.Stringer.
func (c controller) String() string {
	if c.part == "" {
		return c.name
	}

	return c.name + " of " + c.part
}

type partKey struct{}

// In returns a context in which controllers are those of a part of the process, such as "shard 3". Each is watched by
// itself: one that proceeds does not hide the one of another part.
func In(ctx context.Context, part string) context.Context {
	return context.WithValue(ctx, partKey{}, part)
}

// progress is that of one controller.
type progress struct {
	running map[types.NamespacedName]time.Time
	// moved is when a reconciliation last ended, or when one began while none was running.
	moved time.Time
}

// Process follows the reconciliations of this process.
var Process = &Watch{}

// Begin records that a reconciliation of the controller with a name has begun, in the part that the context names. The
// returned function records its end.
func (w *Watch) Begin(
	ctx context.Context, name string, key types.NamespacedName, now time.Time,
) (end func(now time.Time)) {
	w.mu.Lock()
	defer w.mu.Unlock()

	part, _ := ctx.Value(partKey{}).(string)
	of := controller{name, part}

	p := w.controllers[of]
	if p == nil {
		if w.controllers == nil {
			w.controllers = map[controller]*progress{}
		}

		p = &progress{running: map[types.NamespacedName]time.Time{}}
		w.controllers[of] = p
	}

	if len(p.running) == 0 {
		p.moved = now
	}

	p.running[key] = now

	return func(now time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()

		delete(p.running, key)
		p.moved = now
	}
}

// Check returns an error if a controller is stuck: if its reconciliations have run for the bound, and none has ended
// meanwhile. The error names the reconciliation that has run for longest. A controller without a running reconciliation
// is not stuck, so a replica that does not lead is healthy.
func (w *Watch) Check(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, of := range slices.SortedFunc(maps.Keys(w.controllers), func(a, b controller) int {
		return strings.Compare(a.String(), b.String())
	}) {
		p := w.controllers[of]
		if len(p.running) == 0 || now.Sub(p.moved) < Bound || slices.Contains(unbounded, of.name) {
			continue
		}

		first := slices.MinFunc(slices.Collect(maps.Keys(p.running)), func(a, b types.NamespacedName) int {
			if c := p.running[a].Compare(p.running[b]); c != 0 {
				return c
			}

			return strings.Compare(a.String(), b.String())
		})

		return fmt.Errorf("the controller %s is stuck: none of its %d running reconciliations has ended for %s; that of %s "+
			"has been running for %s", of, len(p.running), now.Sub(p.moved).Round(time.Second), first,
			now.Sub(p.running[first]).Round(time.Second))
	}

	return nil
}

// Running names the reconciliations that are running, sorted, such as "talosmachine default/prod-cp-0".
func (w *Watch) Running() []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	var out []string

	for of, p := range w.controllers {
		for key := range p.running {
			out = append(out, of.String()+" "+key.String())
		}
	}

	slices.Sort(out)

	return out
}
