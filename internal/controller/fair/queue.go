// Package fair keeps objects whose passes take long from holding up all others.
package fair

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A pass over a healthy machine takes some ten milliseconds, and seconds where it is far away or this computer is busy.
// One that waits for an answer in vain takes as long as a call may. Each of the two has workers of its own: behind
// machines that hang, a healthy one whose last pass was slow would wait for all of them.
const (
	slow    = time.Second
	hanging = 5 * time.Second
)

// lane is what an object waits for, by how long its last pass took.
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

// Share says how many workers slow and hanging objects may hold.
type Share struct {
	// Workers of the controller.
	Workers int
	// Cluster is the cluster of an object, as a name that tells it from every other one.
	Cluster func(reconcile.Request) string
	// Clock times the passes.
	Clock clock.PassiveClock
}

// most is how many workers all objects of a lane may hold together: slow ones half of them, hanging ones a quarter.
func (s Share) most(l lane) int {
	if l == hangingLane {
		return max(s.Workers/4, 1)
	}

	return max(s.Workers/2, 1)
}

// mostOfCluster is how many those of one cluster may hold: half of that.
func (s Share) mostOfCluster(l lane) int { return max(s.most(l)/2, 1) }

// Queue makes the queue of a controller, as controller.Options.NewQueue: that of controller-runtime, which hands out an
// object whose last pass was slow only while its share of the workers is free. Others overtake it meanwhile.
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
	// slow are the objects whose last pass was not fast.
	slow    map[reconcile.Request]place
	running map[reconcile.Request]pass
	// parked objects wait for their share, in the order in which they came. The queue takes them for being worked on, so
	// that it does not hand them out again.
	parked []parked
}

// place is whose share an object counts against: that of its lane, and that of its cluster in it.
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

// admit lets an object be worked on, or parks it.
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

// room tells whether one more object of a place may be worked on. The queue is locked.
func (q *queue) room(at place) bool {
	if at.lane == fastLane {
		return true
	}

	all, same := 0, 0

	for _, p := range q.running {
		if p.place.lane == at.lane {
			all++

			if p.place.cluster == at.cluster {
				same++
			}
		}
	}

	return all < q.share.most(at.lane) && same < q.share.mostOfCluster(at.lane)
}

// Done implements workqueue.TypedInterface.
func (q *queue) Done(item reconcile.Request) {
	q.finish(item)
	q.PriorityQueue.Done(item)
}

// finish notes how long a pass took, and lets the first object go on that has room now.
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
