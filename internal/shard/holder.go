package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Times of the Leases. A shard of a replica that is gone is free after LeaseDuration, and two polls later at most
// another replica has noticed: with the caches to fill, that has to be less than 20 s. A replica that loses its
// connection stops before that: after a retry period, the renew deadline, and as long again for the attempt to release
// the Lease.
const (
	LeaseDuration = 12 * time.Second
	RenewDeadline = 5 * time.Second
	RetryPeriod   = 2 * time.Second
	// poll is how often a replica renews its membership and reads the Leases.
	poll = time.Second
	// settling is how long a new replica only looks: replicas that start together would all take everything.
	settling = 4 * time.Second
	// StopTimeout is how long the manager of a shard may take to end. The shard is not released before; a process in which
	// it takes longer ends.
	StopTimeout = 20 * time.Second
)

// Held is a shard that a replica holds, or is about to take or to release.
type Held struct {
	Shard int
	// Lock is what the manager is elected by.
	Lock resourcelock.Interface
}

// Holder decides which shards this replica holds, and runs a manager for each.
type Holder struct {
	Leases *Leases
	// Shards is how many there are at least. Those of existing Leases are held too.
	Shards int
	// Run runs the manager of a shard until the context ends. It returns once the manager has stopped completely and has
	// released the Lease. An error ends the process.
	Run   func(ctx context.Context, held Held) error
	Clock clock.PassiveClock
	Log   logr.Logger
	// Tell is told of all shards that there are, each time that the Leases were read; it may be nil.
	Tell func(shards []int)

	mu      sync.Mutex
	running map[int]*life
	ended   chan error
	since   time.Time
}

// life is a manager that runs.
type life struct {
	stop context.CancelFunc
	// stopping since when; zero while it is not.
	stopping time.Time
}

// errSlowStop ends the process: another replica may only have the shard once nothing works on it.
var errSlowStop = errors.New("the manager of a shard does not stop")

// Start implements manager.Runnable.
func (h *Holder) Start(ctx context.Context) error {
	h.running, h.ended, h.since = map[int]*life{}, make(chan error, Most), h.Clock.Now()
	// The managers end before the membership does.
	managers, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()

	failed := make(chan error, 1)

	loop, stop := context.WithCancel(ctx)
	defer stop()

	go func() { failed <- h.loop(loop, managers) }()

	var err error

	select {
	case <-ctx.Done():
		err = <-failed
	case err = <-failed:
	}

	if err != nil {
		return err // the Leases expire
	}

	return h.leave(context.WithoutCancel(ctx), end)
}

// loop reads the Leases until the context ends, or a manager fails.
func (h *Holder) loop(ctx, managers context.Context) error {
	var failure error

	loop, stop := context.WithCancel(ctx)
	defer stop()

	wait.UntilWithContext(loop, func(ctx context.Context) {
		if failure = h.step(ctx, managers); failure != nil {
			stop()
		}
	}, poll)

	return failure
}

// leave stops all managers, which release their Leases, and ends the membership.
func (h *Holder) leave(ctx context.Context, end context.CancelFunc) error {
	end()

	ctx, cancel := context.WithTimeout(ctx, StopTimeout)
	defer cancel()

	for len(h.Holds()) > 0 {
		select {
		case err := <-h.ended:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return errSlowStop
		}
	}

	return h.Leases.Leave(ctx)
}

// Holds returns the shards whose managers run here, sorted.
func (h *Holder) Holds() []int {
	h.mu.Lock()
	defer h.mu.Unlock()

	return slices.Sorted(maps.Keys(h.running))
}

// step reads the Leases once. managers is the life of what it starts. Its error ends the process.
func (h *Holder) step(ctx, managers context.Context) error {
	select {
	case err := <-h.ended:
		if err != nil {
			return err
		}
	default:
	}

	now := h.Clock.Now()
	if err := h.overdue(now); err != nil {
		return err
	}

	s, err := h.Leases.Look(ctx, now)
	if err != nil {
		// What is held is renewed by the managers themselves, or they end.
		h.Log.Error(err, "Looking at the Leases of shards failed; it is tried again")

		return nil
	}

	h.follow(ctx, managers, s, now)

	return nil
}

// overdue ends the process if a manager that has to release its shard is still there.
func (h *Holder) overdue(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()

	for n, l := range h.running {
		if !l.stopping.IsZero() && now.Sub(l.stopping) > StopTimeout {
			return fmt.Errorf("giving up shard %d: %w", n, errSlowStop)
		}
	}

	return nil
}

// follow starts and stops managers, so that this replica holds what is its part.
func (h *Holder) follow(ctx, managers context.Context, s Sight, now time.Time) {
	shards := s.shards(h.Shards)
	mine := map[int]bool{}

	if h.Tell != nil {
		h.Tell(shards)
	}

	if s.Leader == "" {
		for n, m := range Assign(shards, s.Members, s.held()) {
			mine[n] = m == h.Leases.Identity
		}
	} else if len(h.Holds()) > 0 || now.Sub(h.since) < 2*settling {
		h.Log.Info("An operator without shards leads: this replica takes no shard before it has ended", "leader", s.Leader)
	}

	for n := range h.snapshot() {
		if !mine[n] {
			h.giveUp(n, now)
		}
	}

	if now.Sub(h.since) < settling {
		return
	}

	for _, n := range shards {
		if mine[n] && s.free(n, h.Leases.Identity) {
			h.take(ctx, managers, n, s)
		}
	}
}

func (h *Holder) snapshot() map[int]*life {
	h.mu.Lock()
	defer h.mu.Unlock()

	return maps.Clone(h.running)
}

func (h *Holder) giveUp(n int, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()

	if l := h.running[n]; l != nil && l.stopping.IsZero() {
		h.Log.Info("Giving up a shard", "shard", n)

		l.stopping = now
		l.stop()
	}
}

// take starts the manager of a shard that no replica holds.
func (h *Holder) take(ctx, managers context.Context, n int, s Sight) {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.running[n] != nil {
		return
	}

	if err := h.Leases.Free(ctx, s.leases[n]); err != nil {
		h.Log.Info("Another replica is at the Lease of the shard", "shard", n, "error", err.Error())

		return
	}

	h.Log.Info("Taking a shard", "shard", n)

	managing, stop := context.WithCancel(managers)
	h.running[n] = &life{stop: stop}

	go func() {
		err := h.Run(managing, Held{Shard: n, Lock: h.Leases.Lock(n)})
		if err == nil && managing.Err() == nil {
			err = errors.New("it ended by itself")
		}

		if err != nil {
			err = fmt.Errorf("running the manager of shard %d: %w", n, err)
		}

		stop()

		h.mu.Lock()
		delete(h.running, n)
		h.mu.Unlock()

		h.ended <- err
	}()
}

// Sight is what the Leases said.
type Sight struct {
	// Members are the identities of the replicas that are alive, sorted.
	Members []string
	// Leader is an operator without shards that leads; empty for none.
	Leader string

	leases map[int]*coordinationv1.Lease
	alive  map[int]bool
	// known are the identities of all replicas that have a Lease, also of those that are gone.
	known map[string]bool
}

// shards are those that have to be held: the given number of them, and those of existing Leases.
func (s Sight) shards(count int) []int {
	all := map[int]bool{}
	for n := range count {
		all[n] = true
	}

	for n := range s.leases {
		all[n] = true
	}

	return slices.Sorted(maps.Keys(all))
}

// held are the holders of shards; a Lease that has expired has none.
func (s Sight) held() map[int]string {
	out := map[int]string{}

	for n, l := range s.leases {
		if s.alive[n] {
			out[n] = holder(l)
		}
	}

	return out
}

// free tells whether a shard may be taken.
func (s Sight) free(n int, own string) bool {
	return !s.alive[n] || holder(s.leases[n]) == own
}
