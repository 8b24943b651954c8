package condition

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Times for which details are collected before they are written. A booting machine passes through several states in a
// few seconds, and each write of a state triggers all watchers. Summaries of other objects repeat what those have
// already written.
const (
	DetailsTogether = 5 * time.Second
	SummaryTogether = 10 * time.Second
)

// Writes prevents a status from being written for each detail that changes shortly after the last write. The zero value
// is ready to use and safe for concurrent use.
type Writes struct {
	mu   sync.Mutex
	last map[types.NamespacedName]time.Time
}

// Forget drops the record of a deleted object.
func (w *Writes) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()

	delete(w.last, key)
}

// Weight is how important it is that a status is written immediately.
type Weight int

// Weights.
const (
	// Nothing has changed.
	Nothing Weight = iota
	// Detail: only the progress of the object has changed.
	Detail
	// News: a decision, an intent, or a condition that other objects or users may wait for or rely on.
	News
)

// Hold returns how long the write of a status may be delayed, and zero if it must be written now. Together is how long
// details are collected. After a failure nothing is delayed, because the backoff determines when the next
// reconciliation runs.
func (w *Writes) Hold(
	key types.NamespacedName, change Weight, now time.Time, together time.Duration, err error,
) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()

	failed := err != nil && failure.ClassOf(err) == failure.ClassTransient
	left := together - now.Sub(w.last[key])

	switch {
	case change == Nothing:
		return 0
	case change == Detail && !failed && left > 0:
		return left
	}

	if w.last == nil {
		w.last = map[types.NamespacedName]time.Time{}
	}

	w.last[key] = now

	return 0
}

// Weigh weighs the changes of a reconciliation to the conditions of an object, and to the rest of its status except for
// details, which the caller has compared. It is news if a condition is no longer true, or if a condition becomes true
// that others may wait for. While an outage is expected, its end is a detail.
func Weigh(before, after []metav1.Condition, outage, rest bool) Weight {
	if rest {
		return News
	}

	for i := range after {
		if !isDetail(meta.FindStatusCondition(before, after[i].Type), &after[i], outage) {
			return News
		}
	}

	for i := range before {
		if kind := before[i].Type; kind != v1alpha1.ConditionReconciling && meta.FindStatusCondition(after, kind) == nil {
			return News
		}
	}

	return Detail
}

func isDetail(old, c *metav1.Condition, outage bool) bool {
	switch {
	case c.Type == v1alpha1.ConditionReconciling:
		return true
	case old == nil, old.ObservedGeneration != c.ObservedGeneration:
		return false
	case old.Reason != c.Reason && slices.Contains(BadReasons, c.Reason) &&
		(!outage || !slices.Contains(outages, c.Reason)):
		return false
	case old.Status == c.Status:
		return true
	case old.Status == metav1.ConditionTrue:
		return false
	case c.Status != metav1.ConditionTrue:
		return true
	case c.Type == v1alpha1.ConditionReachable:
		return outage
	}

	return c.Type == v1alpha1.ConditionConfigured || c.Type == v1alpha1.ConditionUpToDate
}

// Sooner returns the shorter of two waits, either of which may be zero, which means no wait.
func Sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}

	return a
}
