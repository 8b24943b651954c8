package condition_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/kube"
)

var hushNow = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// TestCauseOf: what a person wants to know comes before what the operator does on purpose.
func TestCauseOf(t *testing.T) {
	machine := func(phase v1alpha1.ChangePhase, since time.Duration) v1alpha1.TalosMachine {
		m := v1alpha1.TalosMachine{}
		m.Status.WorkingHash = "hash"

		if phase != "" {
			m.Status.Change = &v1alpha1.MachineChange{Phase: phase, Since: metav1.NewTime(hushNow.Add(-since))}
		}

		return m
	}

	lost, fresh, leaving := machine("", 0), machine("", 0), machine("", 0)
	lost.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse}}
	fresh.Status.WorkingHash = ""
	leaving.DeletionTimestamp = &metav1.Time{Time: hushNow}

	rebooting := machine(v1alpha1.ChangeRebooting, time.Minute)

	for name, tc := range map[string]struct {
		machines []v1alpha1.TalosMachine
		want     condition.Cause
	}{
		"all well":              {[]v1alpha1.TalosMachine{machine("", 0)}, condition.Unexplained},
		"a reboot":              {[]v1alpha1.TalosMachine{machine("", 0), rebooting}, condition.Intended},
		"a reboot without end":  {[]v1alpha1.TalosMachine{machine(v1alpha1.ChangeRebooting, time.Hour)}, condition.Notable},
		"a failed change":       {[]v1alpha1.TalosMachine{machine(v1alpha1.ChangeFailed, 0)}, condition.Notable},
		"another machine falls": {[]v1alpha1.TalosMachine{rebooting, lost}, condition.Notable},
		"one is installed":      {[]v1alpha1.TalosMachine{rebooting, fresh}, condition.Notable},
		"one is deleted":        {[]v1alpha1.TalosMachine{rebooting, leaving}, condition.Notable},
		"one is lost":           {[]v1alpha1.TalosMachine{lost}, condition.Notable},
	} {
		if got := condition.CauseOf(tc.machines, hushNow); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// tale is a control plane whose condition Ready takes one value after another, and what is told of them.
type tale struct {
	t        *testing.T
	hush     condition.Hush
	key      types.NamespacedName
	recorder *events.FakeRecorder
	before   []metav1.Condition
}

func (a *tale) pass(cause condition.Cause, status metav1.ConditionStatus, reason string, want ...string) {
	a.t.Helper()

	after := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: "m"}}
	a.hush.Over(kube.Transitions{Bad: condition.BadReasons}, a.key, cause, condition.Waits, a.before, after).
		Record(a.recorder, &v1alpha1.TalosControlPlane{}, a.before, after)
	a.before = after

	var got []string
	for len(a.recorder.Events) > 0 {
		got = append(got, <-a.recorder.Events)
	}

	if !slices.Equal(got, want) {
		a.t.Errorf("%s (%s): told %q, want %q", status, reason, got, want)
	}
}

// TestHush: an intended outage is told neither when it begins nor when it ends, whatever it waits for meanwhile; one
// that turns out to be more is told once, and so is its end.
func TestHush(t *testing.T) {
	const (
		yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
		waits, silent    = v1alpha1.ReasonWaitingForMachines, v1alpha1.ReasonWaitingForEvidence
		told             = "Normal WaitingForMachines Ready is False: m"
		back             = "Normal Ready Ready is True: m"
	)

	start := func() *tale {
		a := &tale{t: t, recorder: events.NewFakeRecorder(10), key: types.NamespacedName{Name: "c"}}
		a.pass(condition.Unexplained, yes, v1alpha1.ReasonReady, back)

		return a
	}

	a := start()

	for range 2 {
		a.pass(condition.Intended, no, waits)
		a.pass(condition.Intended, unknown, silent)
		a.pass(condition.Intended, no, v1alpha1.ReasonAPIServerUnavailable)
		a.pass(condition.Unexplained, no, waits)
		a.pass(condition.Unexplained, yes, v1alpha1.ReasonReady)
	}

	a.pass(condition.Unexplained, no, waits, told)
	a.pass(condition.Intended, no, waits)
	a.pass(condition.Unexplained, yes, v1alpha1.ReasonReady, back)

	a = start()
	a.pass(condition.Intended, no, waits)
	a.pass(condition.Notable, no, waits, told)
	a.pass(condition.Notable, no, waits)
	a.pass(condition.Unexplained, yes, v1alpha1.ReasonReady, back)

	a = start()
	a.pass(condition.Intended, no, waits)
	a.pass(condition.Intended, no, v1alpha1.ReasonQuorumLost, "Warning QuorumLost Ready is False: m")
	a.pass(condition.Intended, yes, v1alpha1.ReasonReady, back)

	a = start()
	a.pass(condition.Intended, no, waits)
	a.hush.Forget(a.key)
	a.pass(condition.Unexplained, yes, v1alpha1.ReasonReady, back)
}
