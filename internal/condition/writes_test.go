package condition_test

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/failure"
)

func one(kind string, status metav1.ConditionStatus, reason string) []metav1.Condition {
	return []metav1.Condition{{Type: kind, Status: status, Reason: reason}}
}

// TestWeigh: changes that others rely on, wait for, or have to act upon are news; the progress of a wait is a detail.
func TestWeigh(t *testing.T) {
	const (
		yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
		ready, reachable = v1alpha1.ConditionReady, v1alpha1.ConditionReachable
		away             = v1alpha1.ReasonNodeUnreachable
	)

	tests := map[string]struct {
		before, after []metav1.Condition
		outage, rest  bool
		want          condition.Weight
	}{
		"the rest of the status":   {one(ready, no, "A"), one(ready, no, "A"), false, true, condition.News},
		"another step of a wait":   {one(ready, no, "A"), one(ready, no, "B"), false, false, condition.Detail},
		"a wait that goes wrong":   {one(ready, no, "A"), one(ready, no, v1alpha1.ReasonForeignNode), false, false, condition.News},
		"first decided":            {one(ready, unknown, "A"), one(ready, no, "B"), false, false, condition.Detail},
		"shown for the first time": {nil, one(ready, unknown, "A"), false, false, condition.News},
		"becomes true":             {one(ready, no, "A"), one(ready, yes, "B"), false, false, condition.News},
		"true no more":             {one(ready, yes, "A"), one(ready, no, "B"), true, false, condition.News},
		"nobody knows any more":    {one(ready, yes, "A"), one(ready, unknown, "B"), true, false, condition.News},
		"another spec": {one(ready, no, "A"), []metav1.Condition{{
			Type: ready, Status: no, Reason: "A", ObservedGeneration: 1,
		}}, false, false, condition.News},
		"exceptional, over":          {one("Stalled", yes, "A"), nil, false, false, condition.News},
		"work begins":                {nil, one("Reconciling", yes, "A"), false, false, condition.Detail},
		"work ends":                  {one("Reconciling", yes, "A"), nil, false, false, condition.Detail},
		"up to date":                 {one("UpToDate", no, "A"), one("UpToDate", yes, "B"), false, false, condition.Detail},
		"back":                       {one(reachable, no, away), one(reachable, yes, "B"), false, false, condition.News},
		"back, as expected":          {one(reachable, no, away), one(reachable, yes, "B"), true, false, condition.Detail},
		"away, expected or not":      {one(reachable, yes, "A"), one(reachable, no, away), true, false, condition.News},
		"still away, and unexpected": {one(ready, no, "A"), one(ready, no, away), false, false, condition.News},
		"still away, as expected":    {one(ready, no, "A"), one(ready, no, away), true, false, condition.Detail},
	}

	for name, tt := range tests {
		if got := condition.Weigh(tt.before, tt.after, tt.outage, tt.rest); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// TestHold: details are delayed after the last write, news and failures are not, and without a change there is no
// write.
func TestHold(t *testing.T) {
	const together = 5 * time.Second

	var (
		writes condition.Writes
		key    = types.NamespacedName{Name: "c"}
		start  = time.Unix(1_800_000_000, 0)
		broken = errors.New("broken")
		waits  = failure.Waiting("A", "a", time.Second)
	)

	for i, step := range []struct {
		after  time.Duration
		change condition.Weight
		err    error
		want   time.Duration
	}{
		{0, condition.Detail, nil, 0}, // the first write of a process
		{time.Second, condition.Detail, nil, 4 * time.Second},
		{2 * time.Second, condition.Nothing, nil, 0},
		{3 * time.Second, condition.Detail, waits, 2 * time.Second},
		{5 * time.Second, condition.Detail, nil, 0},
		{6 * time.Second, condition.News, nil, 0},
		{10 * time.Second, condition.Detail, nil, time.Second},
		{10 * time.Second, condition.Detail, broken, 0},
		{14 * time.Second, condition.Detail, nil, time.Second},
	} {
		if got := writes.Hold(key, step.change, start.Add(step.after), together, step.err); got != step.want {
			t.Errorf("step %d waits %s, want %s", i, got, step.want)
		}
	}

	writes.Forget(key)

	if got := writes.Hold(key, condition.Detail, start.Add(15*time.Second), together, nil); got != 0 {
		t.Errorf("a new object of the name waits %s", got)
	}
}

// TestOutages: a request of the operator explains the outage of a machine; a reboot that waits for a user does not, and
// no request explains the state of the cluster forever.
func TestOutages(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	lately, long := metav1.NewTime(now.Add(-time.Minute)), metav1.NewTime(now.Add(-time.Hour))

	machine := func(working string, phase v1alpha1.ChangePhase, since metav1.Time) *v1alpha1.TalosMachine {
		m := &v1alpha1.TalosMachine{}
		m.Status.WorkingHash = working
		m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, LastTransitionTime: since}}

		if phase != "" {
			m.Status.Change = &v1alpha1.MachineChange{Phase: phase, Since: since}
		}

		return m
	}

	for name, tc := range map[string]struct {
		m               *v1alpha1.TalosMachine
		expected, fresh bool
	}{
		"never healthy yet":            {machine("", "", lately), true, true},
		"never healthy, for long":      {machine("", "", long), true, false},
		"healthy":                      {machine("w", "", lately), false, true},
		"rebooting":                    {machine("w", v1alpha1.ChangeRebooting, lately), true, true},
		"waits for somebody to reboot": {machine("w", v1alpha1.ChangeAwaitingReboot, long), false, false},
		"planned":                      {machine("w", v1alpha1.ChangePending, lately), false, true},
	} {
		if got := condition.ExpectsOutage(tc.m); got != tc.expected {
			t.Errorf("%s: an outage is expected: %t", name, got)
		}

		if got := condition.OutageIsFresh(tc.m, now); got != tc.fresh {
			t.Errorf("%s: it has got so far lately: %t", name, got)
		}
	}
}
