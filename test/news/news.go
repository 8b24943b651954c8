// Package news tests which changes of a condition the controllers of groups report as events.
package news

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Reboots has a machine reboot for a rollout, then be lost and return, and fails the test unless only the first
// observation, the loss and the return are events about the condition Ready. reconcile finishes one reconciliation of
// the group, with the machine as it is observed.
func Reboots(
	t *testing.T, told *events.FakeRecorder, name string, at time.Time, reconcile func(v1alpha1.TalosMachine) error,
) {
	t.Helper()

	for i, step := range []struct {
		status metav1.ConditionStatus
		phase  v1alpha1.ChangePhase
		want   bool
	}{
		{metav1.ConditionTrue, "", true},
		{metav1.ConditionFalse, v1alpha1.ChangeRebooting, false},
		{metav1.ConditionFalse, v1alpha1.ChangeSettling, false},
		{metav1.ConditionTrue, "", false},
		{metav1.ConditionFalse, "", true},
		{metav1.ConditionTrue, "", true},
	} {
		m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Status.WorkingHash = "hash"
		m.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: step.status, Reason: "Test", Message: "it boots",
		}}

		if step.phase != "" {
			m.Status.Change = &v1alpha1.MachineChange{Phase: step.phase, Since: metav1.NewTime(at)}
		}

		if err := reconcile(m); err != nil {
			t.Fatal(err)
		}

		var got []string

		for len(told.Events) > 0 {
			if text := <-told.Events; strings.Contains(text, " Ready is ") {
				got = append(got, text)
			}
		}

		if len(got) > 0 != step.want {
			t.Errorf("step %d: told %q", i, got)
		}
	}
}
