package condition_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
)

// TestLiftRests: a child object stays stalled, and a reconciliation without other results changes nothing, not even a
// time.
func TestLiftRests(t *testing.T) {
	below := condition.Child{Name: "w-0", Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigRefused, Message: "no",
	}}}

	var conditions []metav1.Condition

	pass := func() {
		set := condition.Begin(&conditions, 1)
		set.True(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "all machines are ready")
		set.Transient(false, false, nil)
		set.Lift(below)
	}
	pass()

	if len(conditions) != 2 {
		t.Fatalf("the conditions are %+v", conditions)
	}

	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	}

	order := func(a, b metav1.Condition) int { return len(a.Type) - len(b.Type) }
	before := slices.SortedFunc(slices.Values(conditions), order)

	pass()

	if diff := cmp.Diff(before, slices.SortedFunc(slices.Values(conditions), order)); diff != "" {
		t.Errorf("a pass that finds nothing else has changed this:\n%s", diff)
	}
}
