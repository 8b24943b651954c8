// Package nodewatch keeps one stream a node and wakes a queue when a node changes. Its snapshots decide whether to
// look; what is done is decided by a live read.
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

// Snapshot is what is known of a node.
type Snapshot struct {
	// Reachable: the stream is up.
	Reachable bool
	// Since is when Reachable last changed.
	Since time.Time
	// Class of the error that ended the stream.
	Class failure.Class
	// Watched is what the stream told last.
	Watched talos.Watched
}

// Reconnects back off between these.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
	// mismatchBackoff is the pause where a node shows another certificate than it has to: that lasts until it reboots, or
	// until another certificate is expected, which begins a watch anew.
	mismatchBackoff = time.Minute
	// recentBackoff is the least that the limit of the backoff gets: a node that was just seen, or just added, is likely
	// on its way up.
	recentBackoff = 250 * time.Millisecond
	// patience is the part of an outage that a reconnect may come late.
	patience = 50
	// silentFor is how long a node counts as silent after an attempt in vain: the next one comes sooner.
	silentFor = 20 * time.Second
	// wakeBurst and wakeRate are how often a node may wake the queue, at once and in a second: one that changes without
	// an end, such as one that alternates between two stages, must not keep a worker for itself. What comes faster is told
	// together. A boot has about thirty changes, all of which are told at once; three boots in a row are.
	wakeBurst, wakeRate = 100, 0.2
	// refusedPause and maxRefusedPause are how long a node whose machine was refused waits between two wakes, after the
	// first refusal and at most: what it tells rarely changes the outcome.
	refusedPause, maxRefusedPause = 5 * time.Second, 5 * time.Minute
)

// Watcher keeps the streams.
type Watcher struct {
	ctx    context.Context //nolint:containedctx // the life of all streams
	pool   *talos.Pool
	events chan event.GenericEvent

	mu    sync.Mutex
	nodes map[string]*watched
	wg    sync.WaitGroup
}

type watched struct {
	target   Target
	cancel   context.CancelFunc
	snapshot Snapshot
	// tried is closed once the first attempt has had an outcome.
	tried chan struct{}
	// silent is when the last attempt ended to which nothing at all was answered; zero after another outcome.
	silent time.Time
	// wakes limits how often the node wakes the queue; late is true while it will be woken in a moment.
	wakes *rate.Limiter
	late  bool
	// woken is when it last woke the queue, refused how often in a row its machine was refused since.
	woken   time.Time
	refused int
}

// New returns a watcher whose streams end with the context. They share the connections of the pool.
func New(ctx context.Context, pool *talos.Pool) *Watcher {
	return &Watcher{ctx: ctx, pool: pool, events: make(chan event.GenericEvent, 1024), nodes: map[string]*watched{}}
}

// Events carries the keys of nodes that changed, as TalosMachines with nothing but a name.
func (w *Watcher) Events() <-chan event.GenericEvent { return w.events }

// Set has a node watched. It is cheap to call again with the same target.
func (w *Watcher) Set(t Target) {
	w.mu.Lock()
	defer w.mu.Unlock()

	ctx, cancel := context.WithCancel(w.ctx)
	n := newWatched(t, cancel)

	if have := w.nodes[t.Key]; have != nil {
		if have.target.equal(t) {
			cancel()

			return
		}

		have.cancel()

		// A machine that changes its mode, as one that alternates does, is no other one.
		if have.target.Address == t.Address {
			n.wakes, n.woken, n.refused = have.wakes, have.woken, have.refused
		}
	}

	w.nodes[t.Key] = n

	w.wg.Go(func() { w.run(ctx, n) })
}

func newWatched(t Target, cancel context.CancelFunc) *watched {
	return &watched{
		target: t, cancel: cancel, tried: make(chan struct{}), wakes: rate.NewLimiter(wakeRate, wakeBurst),
	}
}

// Refused tells how a pass over a machine ended. As long as that is a refusal, which only a person can resolve, the
// node wakes the queue less and less often.
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

// Get returns what is known of a node.
func (w *Watcher) Get(key string) (Snapshot, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := w.nodes[key]
	if n == nil {
		return Snapshot{}, false
	}

	return n.snapshot, true
}

// Silent tells whether nothing at all has come from a node lately: whoever asks it waits in vain. The queue is woken as
// soon as that changes.
func (w *Watcher) Silent(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := w.nodes[key]

	return n != nil && !n.silent.IsZero() && time.Since(n.silent) < silentFor
}

// Tried tells whether it is known, or becomes known within a time, how the first attempt to reach a node went. The
// queue is woken then. It is true for a node that is not watched.
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

	// Of several that are ready select takes any.
	select {
	case <-n.tried:
		return true
	default:
		return false
	}
}

// Bare tells whether a node is watched in maintenance mode at an address, and nothing speaks against that: it answers
// so, or was not asked yet. Once it no longer does, the queue is woken.
func (w *Watcher) Bare(key, address string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := w.nodes[key]

	return n != nil && n.target.Mode == Maintenance && n.target.Address == address &&
		(n.snapshot.Reachable || n.snapshot.Since.IsZero())
}

// Wait returns once all streams have ended, after the context of the watcher has.
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
		case errors.Is(err, talos.ErrTooMuch):
			pause = maxBackoff // it does so again
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

// limit grows with the outage, so that a node that boots is met at once, and hundreds that are switched off cost
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

// update changes a snapshot and wakes the queue when it differs.
func (w *Watcher) update(n *watched, change func(*Snapshot)) {
	w.mu.Lock()

	before := n.snapshot
	change(&n.snapshot)

	if n.snapshot.Reachable != before.Reachable || before.Since.IsZero() {
		n.snapshot.Since = time.Now()
	}

	changed := n.snapshot != before
	wait := time.Duration(0)

	if changed && !n.late {
		wait = max(n.wakes.Reserve().Delay(), n.refusal())
		n.late = wait > 0
	} else if changed {
		changed = false // it is told together with what came before
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

// refusal is how long a node whose machine is refused still waits until it wakes the queue. The watcher is locked.
func (n *watched) refusal() time.Duration {
	if n.refused == 0 {
		return 0
	}

	pause := maxRefusedPause
	if doubled := n.refused - 1; doubled < 8 { // beyond that it is longer than any pause
		pause = min(refusedPause<<doubled, maxRefusedPause)
	}

	return pause - time.Since(n.woken)
}

// note keeps how an attempt went.
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

// wake tells of a node, unless it is watched in another way meanwhile.
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
	return d/2 + rand.N(d) //nolint:gosec // no secret
}
