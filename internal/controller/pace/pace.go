// Package pace determines how often objects are reconciled when no event reports a change.
package pace

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Share is the part of a resync interval that each object adds, so that without events, all objects of a kind together
// are reconciled no more often than every 400 ms. From 75 clusters and a resync interval of 30 s on, the cost of an
// idle fleet no longer grows.
const Share = 400 * time.Millisecond

// Fleet is the set of objects of a kind. The zero value is empty and ready to use; it is safe for concurrent use.
type Fleet struct {
	mu    sync.Mutex
	known map[types.NamespacedName]struct{}
}

// Add adds an object.
func (e *Fleet) Add(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.known == nil {
		e.known = map[types.NamespacedName]struct{}{}
	}

	e.known[key] = struct{}{}
}

// Forget removes a deleted object.
func (e *Fleet) Forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()

	delete(e.known, key)
}

// Interval returns the time until the next reconciliation of an object without events. It is at least resync.
func (e *Fleet) Interval(resync time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()

	return max(resync, time.Duration(len(e.known))*Share)
}
