package condition_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/condition"
)

// TestExpire: whatever passes decide and whenever they come, no condition claims what was last observed longer ago than
// the bound, one that was decided is left alone, and one that has expired is written once.
func TestExpire(t *testing.T) {
	kinds := []string{v1alpha1.ConditionReady, v1alpha1.ConditionReachable}
	key := types.NamespacedName{Name: "c"}

	rapid.Check(t, func(t *rapid.T) {
		var (
			conditions []metav1.Condition
			evidence   condition.Evidence
			observed   = map[string]time.Time{}
			now        = time.Unix(1_800_000_000, 0)
		)

		for range rapid.IntRange(1, 30).Draw(t, "passes") {
			now = now.Add(time.Duration(rapid.IntRange(0, int(2*condition.Bound.Seconds())).Draw(t, "seconds")) * time.Second)

			set := condition.Begin(&conditions, 1)
			set.IfMissing(kinds...)

			for _, kind := range kinds {
				switch rapid.SampledFrom([]string{"true", "false", "keep", "nothing"}).Draw(t, kind) {
				case "true":
					set.True(kind, "Yes", "it is so")
					observed[kind] = now
				case "false":
					set.False(kind, "No", "it is not so")
					observed[kind] = now
				case "keep":
					if c := meta.FindStatusCondition(conditions, kind); c.Status != metav1.ConditionUnknown {
						set.Keep(kind)
						observed[kind] = now
					}
				}
			}

			next := evidence.Expire(key, set, now, kinds...)
			before := len(conditions)

			for _, kind := range kinds {
				checkClaim(t, meta.FindStatusCondition(conditions, kind), observed[kind], now, next)
			}

			// A pass right after it that observes nothing changes nothing.
			was := append([]metav1.Condition{}, conditions...)
			if again := evidence.Expire(key, condition.Begin(&conditions, 1), now, kinds...); again != next && next != 0 {
				t.Fatalf("due in %s, then in %s", next, again)
			}

			for i := range before {
				if was[i] != conditions[i] {
					t.Fatalf("written again: %+v, %+v", was[i], conditions[i])
				}
			}
		}
	})
}

func checkClaim(t *rapid.T, c *metav1.Condition, observed, now time.Time, next time.Duration) {
	age := now.Sub(observed)

	switch {
	case observed.IsZero():
		if c.Status != metav1.ConditionUnknown {
			t.Fatalf("never observed: %+v", c)
		}
	case age >= condition.Bound:
		at := observed.UTC().Format("2006-01-02 15:04:05 UTC")
		if c.Status != metav1.ConditionUnknown || c.Reason != v1alpha1.ReasonNotObserved || !strings.Contains(c.Message, at) {
			t.Fatalf("observed %s ago: %+v", age, c)
		}
	case c.Status == metav1.ConditionUnknown:
		t.Fatalf("observed %s ago: %+v", age, c)
	case age > 0 && (next <= 0 || next > condition.Bound-age):
		t.Fatalf("observed %s ago, and looked at again after %s", age, next)
	}
}
