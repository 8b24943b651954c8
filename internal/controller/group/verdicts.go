package group

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Verdict is what the checks of an upgrade have found. The zero value is that all are satisfied.
type Verdict struct {
	// Name of the first check that is not satisfied, and why.
	Name, Why string
	// Refuted: its expression was evaluated, and is false. Otherwise evidence is missing, which holds and fails an
	// upgrade, but is no reason to disturb a machine.
	Refuted bool
}

// Verdicts records checks that were not satisfied, one verdict of each object: whatever reconciles the object, its
// cluster is not asked more often than is documented. A restart loses them, which costs one more check. The zero value
// is ready to use and safe for concurrent use.
type Verdicts struct {
	mu   sync.Mutex
	last map[types.NamespacedName]recorded
}

// recorded is a verdict about one thing, such as a change and a generation of the spec.
type recorded struct {
	Verdict

	of    string
	until time.Time
}

// Make returns the recorded verdict, or has the checks made, and records what is not satisfied for some time after the
// answer. until is the end of that time; zero if all checks are satisfied.
func (v *Verdicts) Make(
	key types.NamespacedName, of string, c clock.PassiveClock, again time.Duration, checks func() Verdict,
) (now Verdict, until time.Time) {
	if last, ok := v.get(key, of); ok && c.Now().Before(last.until) {
		return last.Verdict, last.until
	}

	// The answer may take as long as the record is kept.
	now = checks()
	if now.Name == "" {
		v.Forget(key)

		return now, time.Time{}
	}

	until = c.Now().Add(again)
	v.put(key, recorded{Verdict: now, of: of, until: until})

	return now, until
}

func (v *Verdicts) get(key types.NamespacedName, of string) (recorded, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()

	last, ok := v.last[key]

	return last, ok && last.of == of
}

func (v *Verdicts) put(key types.NamespacedName, last recorded) {
	v.mu.Lock()
	defer v.mu.Unlock()

	if v.last == nil {
		v.last = map[types.NamespacedName]recorded{}
	}

	v.last[key] = last
}

// Forget drops what is recorded of an object.
func (v *Verdicts) Forget(key types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()

	delete(v.last, key)
}
