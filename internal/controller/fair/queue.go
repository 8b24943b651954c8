// Package fair prevents objects with slow reconciliations from delaying all others.
package fair

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The reconciliation of a healthy machine takes about ten milliseconds, or seconds if the machine is far away or the
// operator's host is busy. One that waits for an unreachable machine takes as long as a call may. Each of the two
// classes has its own workers: otherwise, a healthy machine whose last reconciliation was slow would have to wait for
// all unreachable machines.
const (
	slow    = time.Second
	hanging = 5 * time.Second
)

// lane is the class of an object, by the duration of its last reconciliation.
type lane int

const (
	fastLane lane = iota
	slowLane
	hangingLane
)

func laneOf(took time.Duration) lane {
	switch {
	case took >= hanging:
		return hangingLane
	case took >= slow:
		return slowLane
	default:
		return fastLane
	}
}

// Share determines how many workers slow and hanging objects may occupy.
type Share struct {
	// Workers of the controller.
	Workers int
	// Cluster returns the cluster of an object, as a unique name.
	Cluster func(reconcile.Request) string
	// Clock measures the duration of reconciliations.
	Clock clock.PassiveClock
}

// most returns how many workers all objects of a lane may occupy together: half of them for slow objects, a quarter for
// hanging ones.
func (s Share) most(l lane) int {
	if l == hangingLane {
		return max(s.Workers/4, 1)
	}

	return max(s.Workers/2, 1)
}

// mostOfCluster returns how many workers the objects of one cluster may occupy: half of most.
func (s Share) mostOfCluster(l lane) int { return max(s.most(l)/2, 1) }

// Queue creates the queue of a controller, for controller.Options.NewQueue: a queue of controller-runtime that returns
// an object whose last reconciliation was slow only while its share of the workers is free. Other objects overtake it
// in the meantime.
func (s Share) Queue(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return &queue{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter }),
		share:         s, slow: map[reconcile.Request]place{}, running: map[reconcile.Request]pass{},
	}
}

type queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]

	share Share

	mu sync.Mutex
	// slow are the objects whose last reconciliation was not fast.
	slow    map[reconcile.Request]place
	running map[reconcile.Request]pass
	// parked objects wait for their share, in order of arrival. The inner queue considers them as being processed, so it
	// does not return them again.
	parked []parked
}

// place is the share that an object counts against: that of its lane, and that of its cluster within the lane.
type place struct {
	lane    lane
	cluster string
}

type pass struct {
	began time.Time
	place place
}

type parked struct {
	item     reconcile.Request
	priority int
	place    place
}

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (reconcile.Request, bool) {
	item, _, shutdown := q.GetWithPriority()

	return item, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue) GetWithPriority() (reconcile.Request, int, bool) {
	for {
		item, priority, shutdown := q.PriorityQueue.GetWithPriority()
		if shutdown || q.admit(item, priority) {
			return item, priority, shutdown
		}
	}
}

// admit admits an object to processing, or parks it.
func (q *queue) admit(item reconcile.Request, priority int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	at := q.slow[item]
	if !q.room(at) {
		q.parked = append(q.parked, parked{item: item, priority: priority, place: at})

		return false
	}

	q.running[item] = pass{began: q.share.Clock.Now(), place: at}

	return true
}

// room reports whether one more object of a place may be processed. The queue must be locked.
func (q *queue) room(at place) bool {
	if at.lane == fastLane {
		return true
	}

	all, same, notFast := 0, 0, 0

	for _, p := range q.running {
		if p.place.lane != fastLane {
			notFast++
		}

		if p.place.lane == at.lane {
			all++

			if p.place.cluster == at.cluster {
				same++
			}
		}
	}

	// However few workers there are, one is left for what is fast.
	return all < q.share.most(at.lane) && same < q.share.mostOfCluster(at.lane) &&
		notFast < max(q.share.Workers-1, 1)
}

// Done implements workqueue.TypedInterface.
func (q *queue) Done(item reconcile.Request) {
	q.finish(item)
	q.PriorityQueue.Done(item)
}

// finish records how long a reconciliation took, and releases the first parked object for which there is room now.
func (q *queue) finish(item reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()

	p, ok := q.running[item]
	if !ok {
		return
	}

	delete(q.running, item)

	if l := laneOf(q.share.Clock.Since(p.began)); l == fastLane {
		delete(q.slow, item)
	} else {
		q.slow[item] = place{lane: l, cluster: q.share.Cluster(item)}
	}

	for i, next := range q.parked {
		if q.room(next.place) {
			q.parked = append(q.parked[:i], q.parked[i+1:]...)
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &next.priority}, next.item)
			q.PriorityQueue.Done(next.item)

			return
		}
	}
}
