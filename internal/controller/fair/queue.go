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

// slow is how long a pass takes that counts as slow: one over a healthy machine takes some ten milliseconds, one that
// waits for an answer takes seconds.
const slow = time.Second

// Share says how many workers slow objects may hold.
type Share struct {
	// Workers of the controller.
	Workers int
	// Cluster is the cluster of an object, as a name that tells it from every other one.
	Cluster func(reconcile.Request) string
	// Clock times the passes.
	Clock clock.PassiveClock
}

// most is how many workers all slow objects may hold together: half of them.
func (s Share) most() int { return max(s.Workers/2, 1) }

// mostOfCluster is how many those of one cluster may hold: a quarter.
func (s Share) mostOfCluster() int { return max(s.Workers/4, 1) }

// Queue makes the queue of a controller, as controller.Options.NewQueue: that of controller-runtime, which hands out an
// object whose last pass was slow only while its share of the workers is free. Others overtake it meanwhile.
func (s Share) Queue(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return &queue{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter }),
		share:         s, slow: map[reconcile.Request]string{}, running: map[reconcile.Request]pass{},
	}
}

type queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]

	share Share

	mu sync.Mutex
	// slow are the objects whose last pass was slow, with their clusters.
	slow    map[reconcile.Request]string
	running map[reconcile.Request]pass
	// parked objects wait for their share, in the order in which they came. The queue takes them for being worked on, so
	// that it does not hand them out again.
	parked []parked
}

type pass struct {
	began time.Time
	// slow: it counts against the share of its cluster.
	slow    bool
	cluster string
}

type parked struct {
	item     reconcile.Request
	priority int
	cluster  string
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

	cluster, isSlow := q.slow[item]
	if isSlow && !q.room(cluster) {
		q.parked = append(q.parked, parked{item: item, priority: priority, cluster: cluster})

		return false
	}

	q.running[item] = pass{began: q.share.Clock.Now(), slow: isSlow, cluster: cluster}

	return true
}

// room tells whether one more slow object of a cluster may be worked on. The queue is locked.
func (q *queue) room(cluster string) bool {
	all, same := 0, 0

	for _, p := range q.running {
		if p.slow {
			all++

			if p.cluster == cluster {
				same++
			}
		}
	}

	return all < q.share.most() && same < q.share.mostOfCluster()
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

	if q.share.Clock.Since(p.began) >= slow {
		if !p.slow {
			q.slow[item] = q.share.Cluster(item)
		}
	} else {
		delete(q.slow, item)
	}

	for i, next := range q.parked {
		if q.room(next.cluster) {
			q.parked = append(q.parked[:i], q.parked[i+1:]...)
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &next.priority}, next.item)
			q.PriorityQueue.Done(next.item)

			return
		}
	}
}
