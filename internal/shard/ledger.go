package shard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// Ledger knows which absences from the cache of a shard were confirmed. A watch with a label selector reports an object
// that leaves the selector as deleted, and says nothing of one that was never in it. So whatever may have made one
// absent, be it a removal, another list, or the arrival of an object that others belong to, withdraws what was
// confirmed, before the cache shows it.
type Ledger struct {
	mu       sync.Mutex
	lists    uint64
	removals map[place]uint64
	arrivals map[string]uint64
	verdicts map[place]verdict
	searches map[place]chan struct{}
}

// place is the objects of one kind in a namespace.
type place struct{ kind, namespace string }

// stamp changes with everything that may have made an object absent.
type stamp struct{ lists, removals, arrivals uint64 }

// covers says that nothing which an earlier stamp knows of is younger than this one.
func (s stamp) covers(earlier stamp) bool {
	return s.lists >= earlier.lists && s.removals >= earlier.removals && s.arrivals >= earlier.arrivals
}

// verdict is what was confirmed: outside of the cache are these objects of clusters of the shard, and no others.
type verdict struct {
	at     stamp
	strays []types.NamespacedName
}

// NewLedger returns a ledger in which nothing is confirmed.
func NewLedger() *Ledger {
	return &Ledger{
		removals: map[place]uint64{}, arrivals: map[string]uint64{}, verdicts: map[place]verdict{},
		searches: map[place]chan struct{}{},
	}
}

// NewInformer makes the informers of the cache of a shard: the ledger is told of each event before it reaches the
// cache.
func (l *Ledger) NewInformer(
	from toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	kind, source := named(o), toolscache.ToListerWatcherWithContext(from)
	if kind == "" {
		return toolscache.NewSharedIndexInformer(from, o, resync, indexers)
	}

	return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := source.ListWithContext(ctx, o)
			l.relisted()

			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := source.WatchWithContext(ctx, o)
			if err != nil {
				return nil, err
			}

			return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
				l.saw(kind, e)

				return e, true
			}), nil
		},
	}, o, resync, indexers)
}

func (l *Ledger) relisted() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.lists++
}

func (l *Ledger) saw(kind string, e watch.Event) {
	o, err := meta.Accessor(e.Object)
	if err != nil {
		return // an error of the watch, after which there is another list
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	switch e.Type {
	case watch.Bookmark:
		// The end of a list that comes as events: the cache drops what was not in it.
		if o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "" {
			l.lists++
		}
	case watch.Deleted:
		l.removals[place{kind, o.GetNamespace()}]++
	case watch.Added:
		// What belongs to it may be elsewhere.
		if kind == clusterKind || kind == planeKind || kind == groupKind {
			l.arrivals[o.GetNamespace()]++
		}
	case watch.Modified, watch.Error:
	}
}

// now is the stamp of a place. It has to be taken before a place is read.
func (l *Ledger) now(p place) stamp {
	l.mu.Lock()
	defer l.mu.Unlock()

	return stamp{l.lists, l.removals[p], l.arrivals[p.namespace]}
}

// search waits until no other search of a place is in progress, and begins one that lasts until end is called. While
// clusters arrive, every pass would search otherwise, and most of them at the same time.
func (l *Ledger) search(ctx context.Context, p place) (end func(), err error) {
	l.mu.Lock()

	turn, ok := l.searches[p]
	if !ok {
		turn = make(chan struct{}, 1)
		l.searches[p] = turn
	}

	l.mu.Unlock()

	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a list of %s objects of other shards: %w", p.kind, ctx.Err())
	}
}

// confirmed returns the strays of a place, and whether they were looked for after a stamp was taken.
func (l *Ledger) confirmed(p place, at stamp) ([]types.NamespacedName, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	v, ok := l.verdicts[p]

	return v.strays, ok && v.at.covers(at)
}

func (l *Ledger) confirm(p place, at stamp, strays []types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.verdicts[p] = verdict{at, strays}
}
