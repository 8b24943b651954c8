package condition_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestExpire: whatever reconciliations decide and whenever they run, no condition keeps a claim that was last observed
// longer ago than the bound, a decided condition is not changed, and an expired one is written once.
func TestExpire(t *testing.T) {
	kinds := []string{v1alpha1.ConditionReady, v1alpha1.ConditionReachable}
	key := types.NamespacedName{Name: "c"}

	rapid.Check(t, func(t *rapid.T) {
		var (
			conditions []metav1.Condition
			evidence   condition.Evidence
			observed   = map[string]time.Time{}
			now        = time.Unix(1_800_000_000, 0)
			resync     = time.Duration(rapid.IntRange(1, 1200).Draw(t, "resync")) * time.Second
			bound      = condition.BoundOf(resync)
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

			next := evidence.Expire(key, set, now, bound, kinds...)
			before := len(conditions)

			for _, kind := range kinds {
				checkClaim(t, meta.FindStatusCondition(conditions, kind), observed[kind], now, bound, next)
			}

			// A reconciliation right after it that observes nothing changes nothing.
			was := append([]metav1.Condition{}, conditions...)
			if again := evidence.Expire(key, condition.Begin(&conditions, 1), now, bound, kinds...); again != next && next != 0 {
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

func checkClaim(t *rapid.T, c *metav1.Condition, observed, now time.Time, bound, next time.Duration) {
	age := now.Sub(observed)

	switch {
	case observed.IsZero():
		if c.Status != metav1.ConditionUnknown {
			t.Fatalf("never observed: %+v", c)
		}
	case age >= bound:
		at := observed.UTC().Format("2006-01-02 15:04:05 UTC")
		if c.Status != metav1.ConditionUnknown || c.Reason != v1alpha1.ReasonNotObserved || !strings.Contains(c.Message, at) {
			t.Fatalf("observed %s ago: %+v", age, c)
		}
	case c.Status == metav1.ConditionUnknown:
		t.Fatalf("observed %s ago: %+v", age, c)
	case age > 0 && (next <= 0 || next > bound-age):
		t.Fatalf("observed %s ago, and looked at again after %s", age, next)
	}
}

// TestBoundOf: the bound of objects with a resync interval above five minutes is that interval, plus some delay.
func TestBoundOf(t *testing.T) {
	for resync, want := range map[time.Duration]time.Duration{
		0: condition.Bound, 30 * time.Second: condition.Bound, condition.Bound - time.Second: condition.Bound,
		condition.Bound: condition.Bound + time.Minute, 10 * time.Minute: 11 * time.Minute, time.Hour: 61 * time.Minute,
	} {
		if got := condition.BoundOf(resync); got != want || got <= resync {
			t.Errorf("looked at every %s: %s, want %s", resync, got, want)
		}
	}
}

// TestWithin: a reconciliation is repeated in time even if it rejected something, or would not have been repeated at
// all. Failed reconciliations are repeated anyway.
func TestWithin(t *testing.T) {
	refused := failure.Terminal(v1alpha1.ReasonInvalidPatch, "it does not parse", nil)

	for _, tc := range []struct {
		after, expiry, want time.Duration
		err                 error
	}{
		{0, 15 * time.Second, 15 * time.Second, nil},
		{time.Minute, 15 * time.Second, 15 * time.Second, nil},
		{time.Second, 15 * time.Second, time.Second, nil},
		{time.Minute, 0, time.Minute, nil},
		{time.Minute, 15 * time.Second, 15 * time.Second, refused},
		{0, 15 * time.Second, 15 * time.Second, reconcile.TerminalError(refused)},
		{0, 15 * time.Second, 0, errors.New("the API server is away")},
	} {
		if got := condition.Within(ctrl.Result{RequeueAfter: tc.after}, tc.err, tc.expiry); got.RequeueAfter != tc.want {
			t.Errorf("%+v: again after %s", tc, got.RequeueAfter)
		}
	}
}
