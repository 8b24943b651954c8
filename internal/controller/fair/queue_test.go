package fair_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/internal/controller/fair"
	"github.com/talos-operator/talos-operator/test/wait"
)

// bench is the queue of a controller, with eight workers unless said otherwise.
type bench struct {
	t     *testing.T
	clock *testclock.FakeClock
	q     priorityqueue.PriorityQueue[reconcile.Request]
	got   chan reconcile.Request
}

func newBench(t *testing.T) *bench {
	t.Helper()

	return newBenchOf(t, 8)
}

func newBenchOf(t *testing.T, workers int) *bench {
	t.Helper()
	t.Parallel()

	b := &bench{
		t: t, clock: testclock.NewFakeClock(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)),
		got: make(chan reconcile.Request),
	}
	share := fair.Share{Workers: workers, Clock: b.clock, Cluster: func(r reconcile.Request) string {
		cluster, _, _ := strings.Cut(r.Name, "-")

		return cluster
	}}

	q, ok := share.Queue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()).(priorityqueue.
		PriorityQueue[reconcile.Request])
	if !ok {
		t.Fatal("it is no priority queue")
	}

	b.q = q
	t.Cleanup(q.ShutDown)

	go func() {
		for {
			item, shutdown := b.q.Get()
			if shutdown {
				return
			}

			select {
			case b.got <- item:
			case <-t.Context().Done():
				return
			}
		}
	}()

	return b
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "n", Name: name}}
}

func (b *bench) add(names ...string) {
	for _, name := range names {
		b.q.Add(request(name))
	}
}

// next checks which object a worker gets.
func (b *bench) next(want string) {
	b.t.Helper()

	if got := wait.Done(b.t, "a worker gets "+want, b.got); got.Name != want {
		b.t.Fatalf("a worker got %s instead of %s", got.Name, want)
	}
}

// takes reconciles objects for the given duration.
func (b *bench) takes(d time.Duration, names ...string) {
	b.t.Helper()

	for _, name := range names {
		b.add(name)
		b.next(name)
		b.clock.Step(d)
		b.q.Done(request(name))
	}
}

// TestClustersShare: slow objects occupy at most half of the workers, and those of one cluster a quarter; fast objects
// overtake them. An object that becomes fast again is treated as such.
func TestClustersShare(t *testing.T) {
	b := newBench(t)

	b.takes(3*time.Second, "a-0", "a-1", "a-2", "b-0", "b-1", "c-0")
	b.takes(10*time.Millisecond, "a-9", "z-0")

	b.add("a-0", "a-1", "a-2", "b-0", "b-1", "c-0", "z-0", "a-9", "new-0")

	for _, want := range []string{"a-0", "a-1", "b-0", "b-1", "z-0", "a-9", "new-0"} {
		b.next(want)
	}

	// An event for a parked object changes nothing.
	b.add("a-2")

	// The share of its own cluster is free before the overall share is: only then it proceeds.
	b.q.Done(request("b-0")) // fast this time
	b.next("c-0")
	b.q.Done(request("a-0"))
	b.next("a-2")

	for _, name := range []string{"a-1", "b-1", "z-0", "a-9", "new-0", "c-0", "a-2"} {
		b.q.Done(request(name))
	}

	// The event that arrived while it was parked was for the reconciliation that followed; the ones above were all fast.
	b.takes(10*time.Millisecond, "b-0", "b-1", "a-0", "a-1", "a-2")

	quick := []string{"a-0", "a-1", "a-2", "b-0", "b-1", "c-0"}
	b.add(quick...)

	for _, name := range quick {
		b.next(name)
	}
}

// TestHangingHaveTheirOwnShare: hanging objects occupy a quarter of the workers, and an object that was merely slow
// does not wait for them.
func TestHangingHaveTheirOwnShare(t *testing.T) {
	b := newBench(t)

	b.takes(8*time.Second, "a-0", "b-0", "c-0", "d-0")
	b.takes(2*time.Second, "x-0", "y-0")

	b.add("a-0", "b-0", "c-0", "d-0", "x-0", "y-0", "new-0")

	for _, want := range []string{"a-0", "b-0", "x-0", "y-0", "new-0"} {
		b.next(want)
	}

	// A slot for a slow object is no slot for a hanging one.
	b.q.Done(request("x-0"))
	b.add("x-0")
	b.next("x-0")

	b.clock.Step(8 * time.Second)
	b.q.Done(request("a-0"))
	b.next("c-0")
	b.q.Done(request("b-0"))
	b.next("d-0")
}

// TestOneWorkerIsLeft: with two workers slow and hanging objects together take one at most.
func TestOneWorkerIsLeft(t *testing.T) {
	b := newBenchOf(t, 2)

	b.takes(2*time.Second, "slow-0")
	b.takes(8*time.Second, "hang-0")
	b.add("hang-0", "slow-0", "new-0")
	b.next("hang-0")
	b.next("new-0")
	b.q.Done(request("hang-0"))
	b.next("slow-0")
}

// TestShareOfFewWorkers: with a single worker, slow objects get it, too.
func TestShareOfFewWorkers(t *testing.T) {
	t.Parallel()

	clock := testclock.NewFakeClock(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	q := fair.Share{Workers: 1, Clock: clock, Cluster: func(reconcile.Request) string { return "" }}.
		Queue("one", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())

	defer q.ShutDown()

	for i := range 4 {
		name := request(strconv.Itoa(i % 2))
		q.Add(name)

		if got, _ := q.Get(); got != name {
			t.Fatalf("got %s", got)
		}

		clock.Step(time.Minute)
		q.Done(name)
	}
}
