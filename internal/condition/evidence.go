package condition

import (
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Bound is how long a condition keeps a value that no reconciliation has been able to observe again.
const Bound = 5 * time.Minute

// slack is how late a reconciliation may be.
const slack = time.Minute

// BoundOf returns the bound of objects with the given resync interval. In a very large fleet the interval exceeds the
// normal bound, and the first failed reconciliation must not revert what the previous one observed.
func BoundOf(resync time.Duration) time.Duration {
	if resync < Bound {
		return Bound
	}

	return resync + slack
}

// Evidence records when the conditions of the objects of a kind were last decided from observations. It is kept in
// memory only, so that an idle fleet writes nothing; after a restart, the first reconciliation observes anew. The zero
// value is ready to use and safe for concurrent use.
type Evidence struct {
	mu   sync.Mutex
	last map[types.NamespacedName]map[string]time.Time
}

// Forget drops the record of a deleted object.
func (e *Evidence) Forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()

	delete(e.last, key)
}

// Expire sets those conditions of an object to Unknown that no reconciliation has decided for longer than the bound,
// and returns the time until the next one expires; zero if none is pending. A condition that was never decided since
// the operator started counts from the first reconciliation.
func (e *Evidence) Expire(
	key types.NamespacedName, s Set, now time.Time, bound time.Duration, kinds ...string,
) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.last == nil {
		e.last = map[types.NamespacedName]map[string]time.Time{}
	}

	if e.last[key] == nil {
		e.last[key] = map[string]time.Time{}
	}

	var next time.Duration

	for _, kind := range kinds {
		i := slices.IndexFunc(*s.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
		if i < 0 {
			continue
		}

		at, known := e.last[key][kind]
		if s.decided[kind] || !known {
			at = now
			e.last[key][kind] = now
		}

		c := (*s.Conditions)[i]
		if s.decided[kind] || c.Status == metav1.ConditionUnknown {
			continue
		}

		if left := bound - now.Sub(at); left > 0 {
			if next == 0 || left < next {
				next = left
			}

			continue
		}

		s.put(kind, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, fmt.Sprintf(
			"not observed since %s; it was %s then (%s)", at.UTC().Format("2006-01-02 15:04:05 MST"), c.Status, c.Reason))
	}

	return next
}

// Within schedules a reconciliation in time for what Expire returned. Failed reconciliations are repeated anyway.
func Within(res ctrl.Result, err error, expiry time.Duration) ctrl.Result {
	refused := failure.ClassOf(err) == failure.ClassTerminal

	if expiry > 0 && (err == nil || refused) && (res.RequeueAfter <= 0 || res.RequeueAfter > expiry) {
		res.RequeueAfter = expiry
	}

	return res
}
