package taloscontrolplane

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// TestChecksOfTheGone: what checks have found is forgotten with the control plane.
func TestChecksOfTheGone(t *testing.T) {
	key := types.NamespacedName{Name: "gone"}
	r := &Reconciler{
		APIs: &workload.Waiter{}, States: &clusterstate.Store{},
		Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)),
	}

	made := func(name string) string {
		got, _ := r.checks.Make(key, "of", r.Clock, time.Minute, func() group.Verdict { return group.Verdict{Name: name} })

		return got.Name
	}

	if first, second := made("first"), made("second"); first != "first" || second != "first" {
		t.Fatalf("%q, %q", first, second)
	}

	r.forget(key)

	if got := made("third"); got != "third" {
		t.Errorf("%q is still recorded", got)
	}
}
