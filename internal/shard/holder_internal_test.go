package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/test/wait"
)

// replicas are the holders of one namespace, with one clock and managers that only hold Leases.
type replicas struct {
	*testing.T

	ns      string
	clock   *clocktesting.FakePassiveClock
	client  coordinationclient.CoordinationV1Interface
	holders map[string]*Holder
	// managing is the life of all managers.
	managing context.Context //nolint:containedctx // it begins before each of them, and ends with the test
	managers sync.WaitGroup

	mu sync.Mutex
	// at is the replica that works on a shard. No other one may.
	at map[int]string
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()

	c, err := coordinationclient.NewForConfig(api.Config())
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())

	r := &replicas{
		managing: ctx, T: t, ns: api.Namespace(t), client: c, holders: map[string]*Holder{}, at: map[int]string{},
		clock: clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)),
	}

	t.Cleanup(func() {
		cancel()
		r.managers.Wait()
	})

	return r
}

func (r *replicas) join(name string, shards int) {
	h := &Holder{
		Leases: &Leases{Client: r.client, Namespace: r.ns, Name: "op", Identity: name},
		Shards: shards, Clock: r.clock, Log: logr.Discard(),
		running: map[int]*life{}, ended: make(chan error, Most), since: r.clock.Now(),
	}
	h.Run = func(ctx context.Context, held Held) error {
		r.managers.Add(1)
		defer r.managers.Done()

		return r.manage(ctx, name, held)
	}
	r.holders[name] = h
}

// manage holds the Lease of a shard until the context ends.
func (r *replicas) manage(ctx context.Context, name string, held Held) error {
	record := resourcelock.LeaderElectionRecord{HolderIdentity: name, LeaseDurationSeconds: 12}

	old, _, err := held.Lock.Get(ctx)
	if err != nil {
		err = held.Lock.Create(ctx, record)
	} else if old.HolderIdentity != "" && old.HolderIdentity != name {
		return fmt.Errorf("shard %d is held by %s", held.Shard, old.HolderIdentity)
	} else {
		err = held.Lock.Update(ctx, record)
	}

	if err != nil {
		return err
	}

	r.mu.Lock()
	if is := r.at[held.Shard]; is != "" {
		r.Errorf("%s takes shard %d, on which %s works", name, held.Shard, is)
	}

	r.at[held.Shard] = name
	r.mu.Unlock()

	<-ctx.Done()

	r.mu.Lock()
	delete(r.at, held.Shard)
	r.mu.Unlock()

	record.HolderIdentity = ""

	// The test renews it meanwhile.
	return wait.Until(context.WithoutCancel(ctx), "the Lease is released", func(ctx context.Context) error {
		if _, _, err := held.Lock.Get(ctx); err != nil {
			return err
		}

		return held.Lock.Update(ctx, record)
	})
}

// crash ends a replica without a word: it works on nothing any more, and its Leases stay.
func (r *replicas) crash(name string) {
	delete(r.holders, name)

	r.mu.Lock()
	defer r.mu.Unlock()

	maps.DeleteFunc(r.at, func(_ int, is string) bool { return is == name })
}

// tick lets a second pass: managers renew their Leases, and each replica reads them.
func (r *replicas) tick() {
	r.Helper()
	r.clock.SetTime(r.clock.Now().Add(time.Second))

	for _, name := range slices.Sorted(maps.Keys(r.holders)) {
		h := r.holders[name]

		for _, n := range h.Holds() {
			r.renew(h.Leases, n)
		}

		if err := h.step(r.Context(), r.managing); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *replicas) renew(l *Leases, n int) {
	lease, err := r.client.Leases(r.ns).Get(r.Context(), l.shardName(n), metav1.GetOptions{})
	if err != nil || holder(lease) != l.Identity {
		return // it is being taken, or given up
	}

	now := metav1.NewMicroTime(r.clock.Now())
	lease.Spec.RenewTime = &now
	// A manager that gives up its Lease at the same time wins.
	_, _ = r.client.Leases(r.ns).Update(r.Context(), lease, metav1.UpdateOptions{})
}

// held are the shards by who works on them.
func (r *replicas) held() map[int]string {
	r.mu.Lock()
	defer r.mu.Unlock()

	return maps.Clone(r.at)
}

// becomes ticks until a state is reached, and returns after how many seconds of the clock that is.
func (r *replicas) becomes(what string, done func(held map[int]string) bool) int {
	r.Helper()

	ticks := 0

	wait.For(r.T, what, func(context.Context) error {
		if done(r.held()) {
			return nil
		}

		ticks++
		r.tick()

		return fmt.Errorf("held: %v", r.held())
	})

	return ticks
}

func evenly(shards, each int) func(map[int]string) bool {
	return func(held map[int]string) bool {
		count := map[string]int{}
		for _, who := range held {
			count[who]++
		}

		return len(held) == shards && slices.Max(slices.Collect(maps.Values(count))) == each
	}
}

// TestHolders: each shard has one replica, replicas share them evenly, one that dies loses its shards to the others
// when its Leases have expired and not before, and one that comes gets its part back, after the one that had it has
// ended.
func TestHolders(t *testing.T) {
	r := newReplicas(t)
	for _, name := range []string{"a", "b", "c"} {
		r.join(name, 6)
	}

	r.becomes("six shards are held", evenly(6, 2))

	before := r.held()
	dead := before[0]
	r.crash(dead)

	for range int(LeaseDuration/time.Second) - 3 {
		r.tick()
	}

	if held := r.held(); len(held) != 4 {
		t.Errorf("shards of a replica that may be alive are taken: %v", held)
	}

	if ticks := r.becomes("the others hold everything", evenly(6, 3)); ticks > 8 {
		t.Errorf("it takes %d s after %s", ticks, LeaseDuration-3*time.Second)
	}

	for n, who := range r.held() {
		if was := before[n]; was != dead && was != who {
			t.Errorf("shard %d moved from %s, which lives, to %s", n, was, who)
		}
	}

	r.join("d", 6)
	r.becomes("the new one has its part", evenly(6, 2))
}

// TestShardsOfLeases: a shard with a Lease is held, although --shards is lower by now.
func TestShardsOfLeases(t *testing.T) {
	r := newReplicas(t)
	r.join("a", 2)

	if err := r.holders["a"].Leases.Serve(t.Context(), 9); err != nil {
		t.Fatal(err)
	}

	r.becomes("all three are held", func(held map[int]string) bool { return held[0] == "a" && held[1] == "a" && held[9] == "a" })
}

// TestLeader: while an operator without shards leads, nothing is held.
func TestLeader(t *testing.T) {
	r := newReplicas(t)
	r.join("a", 2)

	l := r.holders["a"].Leases
	lock := (&Leases{Client: r.client, Namespace: r.ns, Name: "op", Identity: "old"}).Lock(0)

	if err := lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "old", LeaseDurationSeconds: 15}); err != nil {
		t.Fatal(err)
	}

	for range 12 {
		r.tick()
	}

	if held := r.held(); len(held) > 0 {
		t.Errorf("%v are held beside a leader", held)
	}

	// It ends.
	if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 15}); err != nil {
		t.Fatal(err)
	}

	// A Lease that was not renewed in time on a busy computer is in use again once it is.
	r.becomes("both are held, and the Lease of the second is in use", func(held map[int]string) bool {
		used, err := l.InUse(t.Context(), r.clock.Now())

		return err == nil && used == "op-1" && evenly(2, 2)(held)
	})

	if held, err := l.InUse(t.Context(), r.clock.Now().Add(time.Hour)); err != nil || held != "" {
		t.Errorf("an hour later it is %q, error %v", held, err)
	}
}

// TestSlowStop: a manager that does not stop ends the process instead of leaving its shard to another one.
func TestSlowStop(t *testing.T) {
	r := newReplicas(t)
	r.join("a", 1)

	h := r.holders["a"]
	h.running[0] = &life{stop: func() {}}
	h.giveUp(0, r.clock.Now())
	r.clock.SetTime(r.clock.Now().Add(StopTimeout + time.Second))

	if err := h.step(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "shard 0") {
		t.Errorf("error %v", err)
	}
}
