package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// TestRecordTransitions: events tell what went wrong, what became true and what is true no more; not how a wait goes on,
// not what was expected, and nothing twice.
func TestRecordTransitions(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown

	type state struct {
		status metav1.ConditionStatus
		reason string
	}

	tests := map[string]struct {
		kind          string
		before, after state
		want          string
	}{
		"same":                       {"Ready", state{yes, "Ready"}, state{yes, "Ready"}, ""},
		"becomes true":               {"Ready", state{no, "Waiting"}, state{yes, "Ready"}, "Normal Ready Ready is True: m"},
		"true, by something else":    {"Paused", state{yes, "Paused"}, state{yes, "DryRun"}, "Normal DryRun Paused is True: m"},
		"new and true":               {"Drifted", state{}, state{yes, "Drifted"}, "Normal Drifted Drifted is True: m"},
		"true no more":               {"Ready", state{yes, "Ready"}, state{no, "Waiting"}, "Normal Waiting Ready is False: m"},
		"not observed any more":      {"Ready", state{yes, "Ready"}, state{unknown, "NotObserved"}, "Normal NotObserved Ready is Unknown: m"},
		"another step of a wait":     {"Ready", state{no, "Waiting"}, state{no, "Booting"}, ""},
		"new, and a wait":            {"Ready", state{}, state{no, "Waiting"}, ""},
		"new, and unknown":           {"Ready", state{}, state{unknown, "Unknown"}, ""},
		"a wait that goes wrong":     {"Ready", state{no, "Waiting"}, state{no, "Broken"}, "Warning Broken Ready is False: m"},
		"another trouble":            {"Ready", state{no, "Broken"}, state{no, "Torn"}, "Warning Torn Ready is False: m"},
		"work is under way":          {"Reconciling", state{}, state{yes, "Broken"}, ""},
		"routine":                    {"Reachable", state{unknown, "Unknown"}, state{yes, "Reachable"}, ""},
		"routine, after a beginning": {"UpToDate", state{no, "Maintenance"}, state{yes, "UpToDate"}, ""},
		"the end of a rollout":       {"UpToDate", state{no, "RollingOut"}, state{yes, "UpToDate"}, "Normal UpToDate UpToDate is True: m"},
		"a recovery":                 {"Reachable", state{no, "Broken"}, state{yes, "Reachable"}, "Normal Reachable Reachable is True: m"},
		"worse than expected":        {"Ready", state{no, "Away"}, state{no, "Broken"}, "Warning Broken Ready is False: m"},
		"an expected outage":         {"Reachable", state{yes, "Reachable"}, state{no, "Away"}, ""},
		"its end":                    {"Reachable", state{no, "Away"}, state{yes, "Reachable"}, ""},
		"the end of one before":      {"Reachable", state{no, "Was"}, state{yes, "Reachable"}, ""},
		"ready at the end of one":    {"Ready", state{no, "Was"}, state{yes, "Ready"}, "Normal Ready Ready is True: m"},
		"a plan begins":              {"UpToDate", state{yes, "UpToDate"}, state{no, "RollingOut"}, ""},
		"a plan waits":               {"UpToDate", state{yes, "UpToDate"}, state{no, "RolloutWaiting"}, "Normal RolloutWaiting UpToDate is False: m"},
		"a machine begins":           {"Reachable", state{yes, "Reachable"}, state{unknown, "WaitingForMachines"}, ""},
		"bootstrapped":               {"Bootstrapped", state{no, "Bootstrapping"}, state{yes, "Bootstrapped"}, ""},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var before []metav1.Condition
			if tt.before.status != "" {
				before = []metav1.Condition{{
					Type: tt.kind, Status: tt.before.status, Reason: tt.before.reason, Message: "before",
				}}
			}

			after := []metav1.Condition{{Type: tt.kind, Status: tt.after.status, Reason: tt.after.reason, Message: "m"}}
			// A second condition that says the same is not told as well.
			after = append(after, metav1.Condition{Type: "Same", Status: yes, Reason: tt.after.reason, Message: "m"})
			before = append(before, metav1.Condition{Type: "Same", Status: yes, Reason: tt.after.reason})

			if tt.want != "" {
				before = before[:len(before)-1]
			}

			recorder := events.NewFakeRecorder(10)
			rule := kube.Transitions{Bad: []string{"Broken", "Torn", "Away"}, Expected: []string{"Away"}, Were: []string{"Was"}}
			rule.Record(recorder, &v1alpha1.TalosMachine{}, before, after)
			close(recorder.Events)

			var got []string
			for e := range recorder.Events {
				got = append(got, e)
			}

			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
