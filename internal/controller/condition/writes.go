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

// How long details wait for each other. A machine that boots passes through several states in a few seconds, and each
// write of one wakes whoever watches it. What sums up others repeats what they have written already.
const (
	DetailsTogether = 5 * time.Second
	SummaryTogether = 10 * time.Second
)

// Writes keeps statuses from being written again for each detail that changes shortly after the last write. The zero
// value may be used by several goroutines.
type Writes struct {
	mu   sync.Mutex
	last map[types.NamespacedName]time.Time
}

// Forget tells that an object is gone.
func (w *Writes) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()

	delete(w.last, key)
}

// Weight is how much it matters that a status is written at once.
type Weight int

// Weights.
const (
	// Nothing has changed.
	Nothing Weight = iota
	// Detail: the status says how far something is on its way, and nothing else.
	Detail
	// News: a decision, an intent, or a condition on which somebody may wait or rely.
	News
)

// Hold returns how long a status may wait to be written, and zero for one that is to be written now. Together is how
// long details wait for each other. After a failure nothing waits: when the next pass comes, the backoff decides.
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

// Weigh judges what a pass changes in the conditions of an object, and in the rest of its status but for details, which
// the caller has compared. That a condition is true no more, and that one becomes true on which somebody may wait, is
// news. While an outage is expected, its end is a detail.
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

// Sooner returns the shorter of two waits of which either may be none.
func Sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}

	return a
}
