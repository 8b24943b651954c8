package condition_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
)

// TestMachineEvents: what has events of its own is not told again, and an outage that was not told has no end to tell,
// also when it is over together with what it was expected from.
func TestMachineEvents(t *testing.T) {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse

	cond := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "m"}
	}
	reachable := cond(v1alpha1.ConditionReachable, yes, v1alpha1.ReasonReachable)
	lost := cond(v1alpha1.ConditionReachable, no, v1alpha1.ReasonNodeUnreachable)
	upToDate := cond(v1alpha1.ConditionUpToDate, yes, v1alpha1.ReasonUpToDate)
	differs := cond(v1alpha1.ConditionUpToDate, no, v1alpha1.ReasonConfigDiffers)
	pending := cond(v1alpha1.ConditionUpToDate, no, v1alpha1.ReasonUpgradePending)
	changes := cond(v1alpha1.ConditionUpToDate, no, v1alpha1.ReasonRollingOut)

	for name, tc := range map[string]struct {
		expected, was bool
		before, after metav1.Condition
		want          string
	}{
		"a change begins":             {false, false, upToDate, differs, ""},
		"other versions":              {false, false, upToDate, pending, ""},
		"a change settles":            {false, true, changes, upToDate, ""},
		"a change is over":            {false, false, differs, upToDate, ""},
		"an outage":                   {false, false, reachable, lost, "Warning NodeUnreachable Reachable is False: m"},
		"a recovery":                  {false, false, lost, reachable, "Normal Reachable Reachable is True: m"},
		"an expected outage":          {true, true, reachable, lost, ""},
		"the end of one":              {true, true, lost, reachable, ""},
		"the end of its reason, too":  {false, true, lost, reachable, ""},
		"still lost after its reason": {false, true, differs, lost, "Warning NodeUnreachable Reachable is False: m"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			condition.MachineEvents(tc.expected, tc.was).Record(recorder, &v1alpha1.TalosMachine{},
				[]metav1.Condition{tc.before}, []metav1.Condition{tc.after})
			close(recorder.Events)

			var got string
			for e := range recorder.Events {
				got += e
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
