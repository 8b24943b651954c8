package talosmachine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestClockSetBack: times in the status that were recorded by a clock that was ahead count from the reconciliation that
// finds them, so that the timeouts of a step, a change and an outage are not extended.
func TestClockSetBack(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

	for name, at := range map[string]time.Time{"past": now.Add(-time.Minute), "future": now.Add(24 * time.Hour)} {
		m := &v1alpha1.TalosMachine{Status: v1alpha1.TalosMachineStatus{
			Intent:     &v1alpha1.MachineIntent{Since: metav1.NewTime(at)},
			Change:     &v1alpha1.MachineChange{Since: metav1.NewTime(at)},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, LastTransitionTime: metav1.NewTime(at)}},
		}}
		s := newScope(m, now)

		want := at
		if name == "future" {
			want = now
		}

		st := &s.machine.Status
		for what, got := range map[string]time.Time{
			"intent": st.Intent.Since.Time, "change": st.Change.Since.Time,
			"condition": st.Conditions[0].LastTransitionTime.Time,
		} {
			if !got.Equal(want) {
				t.Errorf("the %s of the %s is %s, want %s", what, name, got, want)
			}
		}

		if !s.base.Status.Intent.Since.Time.Equal(at) {
			t.Error("what is changed would not be written")
		}
	}
}
