// Package nodewatch keeps one stream per node and triggers a queue when a node changes. Its snapshots only decide when
// to reconcile; actions are decided by a live read.
package nodewatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// Mode is how a node is watched.
type Mode int

// Modes.
const (
	// Maintenance watches over a connection without credentials.
	Maintenance Mode = iota
	// Secure watches over mutual TLS.
	Secure

	modes = iota
)

// Target is one node to watch.
type Target struct {
	// Key is the namespace and name of the TalosMachine.
	Key string
	// Address of the node.
	Address string
	// Credentials of its cluster.
	Credentials talos.Credentials
	// Mode of the watch.
	Mode Mode
	// Fingerprint of the certificate that the node has to show in maintenance mode; empty for every one.
	Fingerprint string
}

func (t Target) equal(o Target) bool {
	return t.Address == o.Address && t.Mode == o.Mode &&
		(t.Mode != Maintenance || t.Fingerprint == o.Fingerprint) &&
		(t.Mode == Maintenance || string(t.Credentials.Cert) == string(o.Credentials.Cert) &&
			string(t.Credentials.CA) == string(o.Credentials.CA))
}

// Snapshot is the last observed state of a node.
type Snapshot struct {
	// Reachable: the stream is up.
	Reachable bool
	// Since is when Reachable last changed.
	Since time.Time
	// Class of the error that ended the stream.
	Class failure.Class
	// Watched is what the stream last reported.
	Watched talos.Watched
}

// Limits of the backoff between reconnects.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
	// mismatchBackoff is the backoff for a node that presents an unexpected certificate: that lasts until it reboots, or
	// until another certificate is expected, which starts a new watch.
	mismatchBackoff = time.Minute
	// recentBackoff is the minimum of the backoff limit: a node that was just reachable, or was just added, is likely to
	// come up soon.
	recentBackoff = 250 * time.Millisecond
	// patience determines how late a reconnect may be, as a fraction of the outage.
	patience = 50
	// silentFor is how long a node counts as silent after a failed attempt: the next attempt follows sooner.
	silentFor = 20 * time.Second
	// wakeBurst and wakeRate limit how often a node may trigger the queue, at once and per second: a node that changes
	// endlessly, for example between two stages, must not occupy a worker. Faster changes are reported together. A boot
	// has about thirty changes, which are all reported immediately, as are those of three boots in a row.
	wakeBurst, wakeRate = 100, 0.2
	// refusedPause and maxRefusedPause are the first and the maximum interval between two triggers of a node whose machine
	// was rejected: its reports rarely change the result.
	refusedPause, maxRefusedPause = 5 * time.Second, 5 * time.Minute
)

// Watcher keeps the streams.
type Watcher struct {
	ctx    context.Context //nolint:containedctx // the life of all streams
	pool   *talos.Pool
	events chan event.GenericEvent

	mu    sync.Mutex
	nodes map[string]*watched
	// lost counts, per mode, the streams that were open and ended by themselves.
	lost [modes]int64
	wg   sync.WaitGroup
}

type watched struct {
	target   Target
	cancel   context.CancelFunc
	snapshot Snapshot
	// tried is closed once the first attempt has a result.
	tried chan struct{}
	// silent is when the last attempt without any response ended; zero after another result.
	silent time.Time
	// wakes limits how often the node triggers the queue; late is true while a delayed trigger is pending.
	wakes *rate.Limiter
	late  bool
	// woken is when it last triggered the queue, refused how often in a row its machine has been rejected since then.
	woken   time.Time
	refused int
}

// New returns a watcher whose streams end with the context. They share the connections of the pool.
func New(ctx context.Context, pool *talos.Pool) *Watcher {
	return &Watcher{ctx: ctx, pool: pool, events: make(chan event.GenericEvent, 1024), nodes: map[string]*watched{}}
}

// Events returns the keys of nodes that changed, as TalosMachines with only a name.
func (w *Watcher) Events() <-chan event.GenericEvent { return w.events }

// Set starts watching a node. Calling it again with the same target is cheap.
func (w *Watcher) Set(t Target) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if ctx, n := w.replace(t); n != nil {
		w.wg.Go(func() { w.run(ctx, n) })
	}
}

// replace has a node watched at its new target, within the context; nil if it is watched there already.
func (w *Watcher) replace(t Target) (context.Context, *watched) {
	ctx, cancel := context.WithCancel(w.ctx)
	n := newWatched(t, cancel)

	if have := w.nodes[t.Key]; have != nil {
		if have.target.equal(t) {
			cancel()

			return nil, nil
		}

		have.cancel()

		// A machine that changes its mode, even repeatedly, is still the same machine.
		if have.target.Address == t.Address {
			n.wakes, n.woken, n.refused = have.wakes, have.woken, have.refused
		}
	}

	w.nodes[t.Key] = n

	return ctx, n
}

func newWatched(t Target, cancel context.CancelFunc) *watched {
	return &watched{
		target: t, cancel: cancel, tried: make(chan struct{}), wakes: rate.NewLimiter(wakeRate, wakeBurst),
	}
}

// Refused records how a reconciliation of a machine ended. While it ends with a rejection, which only a user can
// resolve, the node triggers the queue less and less often.
func (w *Watcher) Refused(key string, refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	switch n := w.nodes[key]; {
	case n == nil:
	case refused:
		n.refused++
	default:
		n.refused = 0
	}
}

// Remove stops watching a node.
func (w *Watcher) Remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if n := w.nodes[key]; n != nil {
		n.cancel()
		delete(w.nodes, key)
	}
}

// Get returns the last observed state of a node.
func (w *Watcher) Get(key string) (Snapshot, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := w.nodes[key]
	if n == nil {
		return Snapshot{}, false
	}

	return n.snapshot, true
}

// Silent reports whether a node has not responded in any way recently, so that a query would only time out. The queue
// is triggered as soon as that changes.
func (w *Watcher) Silent(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := w.nodes[key]

	return n != nil && !n.silent.IsZero() && time.Since(n.silent) < silentFor
}

// Tried reports whether the result of the first attempt to reach a node is known, or becomes known within a time. The
// queue is triggered at that time. It is true for a node that is not watched.
func (w *Watcher) Tried(ctx context.Context, key string, within time.Duration) bool {
	w.mu.Lock()
	n := w.nodes[key]
	w.mu.Unlock()

	if n == nil {
		return true
	}

	timer := time.NewTimer(within)
	defer timer.Stop()

	select {
	case <-n.tried:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}

	// If several channels are ready, select chooses any of them.
	select {
	case <-n.tried:
		return true
	default:
		return false
	}
}

// Bare reports whether a node is watched in maintenance mode at an address, and there is no evidence against that mode:
// it responds accordingly, or was not queried yet. Once that changes, the queue is triggered.
func (w *Watcher) Bare(key, address string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := w.nodes[key]

	return n != nil && n.target.Mode == Maintenance && n.target.Address == address &&
		(n.snapshot.Reachable || n.snapshot.Since.IsZero())
}

// Wait returns once all streams have ended, after the context of the watcher has ended.
func (w *Watcher) Wait() { w.wg.Wait() }

func (w *Watcher) run(ctx context.Context, n *watched) {
	pause := minBackoff

	for ctx.Err() == nil {
		started := time.Now()
		err := w.stream(ctx, n)

		if ctx.Err() != nil {
			return
		}

		w.note(n, errors.Is(err, talos.ErrSilent))
		w.update(n, func(s *Snapshot) {
			s.Reachable, s.Class = false, failure.ClassOf(err)
		})

		switch {
		case talos.Mismatch(err) != nil:
			pause = mismatchBackoff
		case errors.Is(err, talos.ErrTooMuch), errors.Is(err, talos.ErrInvalid):
			pause = maxBackoff // repeated attempts have the same result
		case time.Since(started) > maxBackoff:
			pause = minBackoff
		}

		timer := time.NewTimer(jitter(pause))

		select {
		case <-ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
		}

		pause = min(pause*2, w.limit(n))
	}
}

// limit grows with the outage, so that a booting node is reached immediately, and hundreds of powered-off nodes cost
// little.
func (w *Watcher) limit(n *watched) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()

	return min(max(time.Since(n.snapshot.Since)/patience, recentBackoff), maxBackoff)
}

func (w *Watcher) stream(ctx context.Context, n *watched) error {
	emit := func(seen talos.Watched) {
		w.note(n, false)
		w.update(n, func(s *Snapshot) {
			s.Reachable, s.Class, s.Watched = true, failure.ClassTransient, seen
		})
	}

	if n.target.Mode == Maintenance {
		return w.pool.StreamMaintenance(ctx, n.target.Address, n.target.Fingerprint, emit)
	}

	return w.pool.Stream(ctx, talos.NodeRef{
		Key: n.target.Key, Address: n.target.Address, Credentials: n.target.Credentials,
	}, emit)
}

// update changes a snapshot and triggers the queue if it differs.
func (w *Watcher) update(n *watched, change func(*Snapshot)) {
	w.mu.Lock()

	before := n.snapshot
	change(&n.snapshot)

	if before.Reachable && !n.snapshot.Reachable {
		w.lost[n.target.Mode]++
	}

	if n.snapshot.Reachable != before.Reachable || before.Since.IsZero() {
		n.snapshot.Since = time.Now()
	}

	changed := n.snapshot != before
	wait := time.Duration(0)

	if changed && !n.late {
		wait = max(n.wakes.Reserve().Delay(), n.refusal())
		n.late = wait > 0
	} else if changed {
		changed = false // it is reported together with the previous change
	}

	w.mu.Unlock()

	switch {
	case !changed:
	case wait == 0:
		w.wake(n)
	default:
		time.AfterFunc(wait, func() {
			w.mu.Lock()
			n.late = false
			w.mu.Unlock()

			w.wake(n)
		})
	}
}

// refusal returns how long a node whose machine was rejected still waits before it triggers the queue. The watcher must
// be locked.
func (n *watched) refusal() time.Duration {
	if n.refused == 0 {
		return 0
	}

	pause := maxRefusedPause
	if doubled := n.refused - 1; doubled < 8 { // larger values exceed the maximum anyway
		pause = min(refusedPause<<doubled, maxRefusedPause)
	}

	return pause - time.Since(n.woken)
}

// note records the result of an attempt.
func (w *Watcher) note(n *watched, silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n.silent = time.Time{}
	if silent {
		n.silent = time.Now()
	}

	select {
	case <-n.tried:
	default:
		close(n.tried)
	}
}

// wake triggers the queue for a node, unless it is watched in another way by now.
func (w *Watcher) wake(n *watched) {
	w.mu.Lock()
	current := w.nodes[n.target.Key] == n
	n.woken = time.Now()
	w.mu.Unlock()

	if !current {
		return
	}

	namespace, name, _ := strings.Cut(n.target.Key, "/")

	machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}

	select {
	case w.events <- event.GenericEvent{Object: machine}:
	case <-w.ctx.Done():
	}
}

func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}
