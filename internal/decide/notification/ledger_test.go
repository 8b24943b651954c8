package notification_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
)

var begin = time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)

func at(d time.Duration) metav1.Time { return metav1.NewTime(begin.Add(d)) }

// status is that of a run that began at begin.
func status(phase v1alpha1.UpgradeRunPhase, message string) v1alpha1.UpgradeRunStatus {
	start := at(0)
	st := v1alpha1.UpgradeRunStatus{Phase: phase, Message: message, StartTime: &start, Total: 5, Done: 2}

	switch phase {
	case v1alpha1.UpgradeRunSucceeded, v1alpha1.UpgradeRunFailed, v1alpha1.UpgradeRunCalledOff:
		end := at(30 * time.Minute)
		st.CompletionTime = &end
	case v1alpha1.UpgradeRunStopped:
		st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, LastTransitionTime: at(20 * time.Minute)}}
	}

	return st
}

// entries shows the entries of a ledger: event, minutes after begin, message.
func entries(l notification.Ledger) string {
	out := []string{}
	for _, e := range l.Entries {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s %.0f %s", e.Number, e.Event, e.Time.Sub(begin).Minutes(), e.Message)))
	}

	return strings.Join(out, ", ")
}

// TestObserve: which transitions of a run are told, and when they were.
func TestObserve(t *testing.T) {
	type seen struct {
		phase   v1alpha1.UpgradeRunPhase
		message string
		plans   []notification.Plan
	}

	const (
		running, waiting, stopped = v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunWaiting, v1alpha1.UpgradeRunStopped
		succeeded, failed, off    = v1alpha1.UpgradeRunSucceeded, v1alpha1.UpgradeRunFailed, v1alpha1.UpgradeRunCalledOff
	)

	a, b := notification.Plan{ID: "a", Message: "c: plan a"}, notification.Plan{ID: "b", Message: "b: plan b"}

	// Each is observed ten minutes after the one before, the first one an hour after the run began.
	for name, c := range map[string]struct {
		seen []seen
		want string
	}{
		"a record without a status":    {[]seen{{"", "", []notification.Plan{a}}}, ""},
		"to the end":                   {[]seen{{running, "", nil}, {running, "", nil}, {succeeded, "", nil}, {succeeded, "", nil}}, "1 Started 0, 2 Finished 30"},
		"a window":                     {[]seen{{running, "", nil}, {waiting, "a window", nil}, {running, "", nil}}, "1 Started 0"},
		"called off":                   {[]seen{{running, "", nil}, {off, "why", nil}}, "1 Started 0, 2 Finished 30 why"},
		"stopped":                      {[]seen{{running, "", nil}, {stopped, "a failed", nil}, {stopped, "a failed; b failed", nil}}, "1 Started 0, 2 Failed 20 a failed"},
		"stopped again":                {[]seen{{stopped, "x", nil}, {waiting, "", nil}, {stopped, "y", nil}}, "1 Started 0, 2 Failed 20 x, 3 Failed 20 y"},
		"failed":                       {[]seen{{stopped, "x", nil}, {failed, "z", nil}, {running, "", nil}}, "1 Started 0, 2 Failed 20 x, 3 Failed 30 z"},
		"over before it was observed":  {[]seen{{succeeded, "", nil}}, "1 Started 0, 2 Finished 30"},
		"approvals, each once":         {[]seen{{running, "", nil}, {waiting, "", []notification.Plan{a}}, {running, "", nil}, {waiting, "", []notification.Plan{a, b}}}, "1 Started 0, 2 Waiting 70 c: plan a, 3 Waiting 90 b: plan b"},
		"two approvals at once":        {[]seen{{running, "", []notification.Plan{a, b}}}, "1 Started 0, 2 Waiting 60 b: plan b; c: plan a"},
		"a plan while it has stopped":  {[]seen{{stopped, "x", []notification.Plan{a}}}, "1 Started 0, 2 Failed 20 x, 3 Waiting 60 c: plan a"},
		"a plan after the end of that": {[]seen{{succeeded, "", []notification.Plan{a}}}, "1 Started 0, 2 Finished 30"},
	} {
		l, now := notification.Ledger{}, begin.Add(time.Hour)

		for _, s := range c.seen {
			st := status(s.phase, s.message)
			l = l.Observe(&st, s.plans, now)

			if again := l.Observe(&st, s.plans, now); again.Worth(l) {
				t.Errorf("%s: %s is told twice: %s", name, s.phase, entries(again))
			}

			now = now.Add(10 * time.Minute)
		}

		if got := entries(l); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestMachineFails: the failure of each machine is told once, also of one that its group tolerates, and again after a
// retry; that the run stops is told besides.
func TestMachineFails(t *testing.T) {
	l := notification.Ledger{}

	for i, step := range []struct {
		phase  v1alpha1.UpgradeRunPhase
		failed string
		want   string
	}{
		{v1alpha1.UpgradeRunRunning, "", "1 Started 0"},
		{v1alpha1.UpgradeRunRunning, "a", "1 Started 0, 2 MachineFailed 1 a failed: why"},
		{v1alpha1.UpgradeRunWaiting, "a", "1 Started 0, 2 MachineFailed 1 a failed: why"},
		{v1alpha1.UpgradeRunRunning, "", "1 Started 0, 2 MachineFailed 1 a failed: why"},
		{
			v1alpha1.UpgradeRunStopped, "ba", "1 Started 0, 2 MachineFailed 1 a failed: why, 3 MachineFailed 20 b failed: why; a failed: why, " +
				"4 Failed 20 stops",
		},
		{
			v1alpha1.UpgradeRunStopped, "bac", "1 Started 0, 2 MachineFailed 1 a failed: why, 3 MachineFailed 20 b failed: why; a failed: why, " +
				"4 Failed 20 stops, 5 MachineFailed 20 c failed: why",
		},
	} {
		st := status(step.phase, "stops")
		st.Machines = []v1alpha1.UpgradeRunMachine{{Name: "d", State: v1alpha1.UpgradeMachineDone}}

		for _, name := range step.failed {
			st.Machines = append(st.Machines, v1alpha1.UpgradeRunMachine{
				Name: string(name), State: v1alpha1.UpgradeMachineFailed, Message: "why",
			})
		}

		next := l.Observe(&st, nil, begin.Add(time.Duration(i)*time.Minute))
		if !slices.Equal(next.Failing, l.Failing) && !next.Worth(l) {
			t.Errorf("%d: what was told is not recorded", i)
		}

		if again := next.Observe(&st, nil, begin.Add(time.Hour)); again.Worth(next) {
			t.Errorf("%d: told twice: %s", i, entries(again))
		}

		l = next
		if got := entries(l); got != step.want {
			t.Errorf("%d: %q, want %q", i, got, step.want)
		}
	}
}

// TestWorth: what the next transition of a run that goes on is recognised by is recorded, old records are left alone.
func TestWorth(t *testing.T) {
	for phase, want := range map[v1alpha1.UpgradeRunPhase]bool{
		"": false, v1alpha1.UpgradeRunRunning: true, v1alpha1.UpgradeRunStopped: true, v1alpha1.UpgradeRunSucceeded: false,
		v1alpha1.UpgradeRunFailed: false, v1alpha1.UpgradeRunCalledOff: false,
	} {
		st := status(phase, "")
		if l := (notification.Ledger{}).Observe(&st, nil, begin); l.Worth(notification.Ledger{}) != want {
			t.Errorf("%s: %v", phase, !want)
		}
	}

	running, succeeded := status(v1alpha1.UpgradeRunRunning, ""), status(v1alpha1.UpgradeRunSucceeded, "")

	l := (notification.Ledger{}).Observe(&running, nil, begin)
	if !l.Observe(&succeeded, nil, begin).Worth(l) {
		t.Error("the end of a run that was observed is not recorded")
	}
}

// TestBounds: a run that alternates for ever does not fill its record.
func TestBounds(t *testing.T) {
	l := notification.Ledger{}

	for i := range 100 {
		running, stopped := status(v1alpha1.UpgradeRunRunning, ""), status(v1alpha1.UpgradeRunStopped, "")
		l = l.Observe(&running, []notification.Plan{{ID: fmt.Sprint(i)}}, begin).Observe(&stopped, nil, begin)
	}

	if len(l.Entries) != 16 || len(l.Plans) != 16 || l.Last != 201 || l.Entries[15].Number != 201 || l.Plans[15] != "99" {
		t.Errorf("%d entries, %d plans, %d", len(l.Entries), len(l.Plans), l.Last)
	}
}

// TestManyPlans: however many plans await approval, each is told once, in a message of bounded length.
func TestManyPlans(t *testing.T) {
	plans := []notification.Plan{}
	for i := range 40 {
		plans = append(plans, notification.Plan{ID: fmt.Sprint(i), Message: fmt.Sprintf("workers-%d: %s", i, strings.Repeat("x", 50))})
	}

	waiting := status(v1alpha1.UpgradeRunWaiting, "")
	l := (notification.Ledger{}).Observe(&waiting, plans, begin)

	for range 3 {
		l = l.Observe(&waiting, plans, begin)
	}

	if l.Last != 2 || len(l.Plans) != 40 || len(l.Entries[1].Message) > 1000 || !strings.HasSuffix(l.Entries[1].Message, "…") {
		t.Errorf("%d, %d plans: %s", l.Last, len(l.Plans), entries(l))
	}

	// Those that do not await it any more are forgotten first.
	l = l.Observe(&waiting, []notification.Plan{plans[0], {ID: "new"}}, begin)
	if len(l.Plans) != 16 || l.Plans[0] != "0" || l.Plans[15] != "new" || l.Last != 3 {
		t.Errorf("%v, %d", l.Plans, l.Last)
	}
}

// TestStoppedAt: what a run has stopped at, and that a plan of another group that awaits approval has not.
func TestStoppedAt(t *testing.T) {
	for reason, hook := range map[string]bool{v1alpha1.ReasonUpgradeHookFailed: true, v1alpha1.ReasonUpgradeStopped: false} {
		st := status(v1alpha1.UpgradeRunStopped, "x")
		st.Conditions[0].Reason = reason

		l := (notification.Ledger{}).Observe(&st, []notification.Plan{{ID: "a"}}, begin)
		if len(l.Entries) != 3 || l.Entries[0].Hook || l.Entries[1].Hook != hook || l.Entries[2].Hook ||
			l.Entries[1].Phase != v1alpha1.UpgradeRunStopped || l.Entries[2].Phase != v1alpha1.UpgradeRunWaiting {
			t.Errorf("%s: %+v", reason, l.Entries)
		}
	}
}

// TestManifestsRefused: that manifests are refused is told once for as long as they are, whatever else the run waits
// for, also by an operator that has just started.
func TestManifestsRefused(t *testing.T) {
	const running, waiting = v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunWaiting

	l := notification.Ledger{}

	for i, step := range []struct {
		phase  v1alpha1.UpgradeRunPhase
		reason string
		want   string
	}{
		{waiting, v1alpha1.ReasonUpgradeWaiting, "1 Started 0"},
		{waiting, v1alpha1.ReasonManifestsRefused, "1 Started 0, 2 Waiting 1 step 1"},
		{waiting, v1alpha1.ReasonManifestsRefused, "1 Started 0, 2 Waiting 1 step 1"},
		{running, v1alpha1.ReasonUpgrading, "1 Started 0, 2 Waiting 1 step 1"},
		{waiting, v1alpha1.ReasonManifestsRefused, "1 Started 0, 2 Waiting 1 step 1, 3 Waiting 4 step 4"},
	} {
		st := status(step.phase, fmt.Sprintf("step %d", i))
		st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReconciling, Reason: step.reason}}

		next := l.Observe(&st, nil, begin.Add(time.Duration(i)*time.Minute))
		if !next.Worth(l) && next.Refused != l.Refused {
			t.Errorf("%d: what was told is not recorded", i)
		}

		l = next
		if got := entries(l); got != step.want {
			t.Errorf("%d: %q, want %q", i, got, step.want)
		}

		for _, e := range l.Entries {
			if e.Manifests != (e.Event == v1alpha1.NotificationWaiting) {
				t.Errorf("%d: %+v", i, e)
			}
		}
	}

	st := status(waiting, "refused")
	st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReconciling, Reason: v1alpha1.ReasonManifestsRefused}}

	if got := entries((notification.Ledger{}).Observe(&st, []notification.Plan{{ID: "a", Message: "plan a"}}, begin)); got !=
		"1 Started 0, 2 Waiting 0 plan a, 3 Waiting 0 refused" {
		t.Errorf("for the first time: %q", got)
	}
}

// TestBook: webhooks are known since they were named, and one that comes back is new.
func TestBook(t *testing.T) {
	one, two := hook("one"), hook("two", v1alpha1.NotificationFailed)

	book := notification.Book{}.Follow([]v1alpha1.UpgradeNotification{one}, begin)
	book = book.Follow([]v1alpha1.UpgradeNotification{one, two}, begin.Add(time.Hour))
	book["Slack/one/url"] = notification.Known{Since: book["Slack/one/url"].Since, Problem: "no key"}

	if got := book.Follow([]v1alpha1.UpgradeNotification{one, two}, begin.Add(2*time.Hour)); got["Slack/one/url"] != (notification.Known{
		Since: at(0), Problem: "no key",
	}) || got["Slack/two/url"].Since != at(time.Hour) {
		t.Errorf("%+v", got)
	}

	back := book.Follow([]v1alpha1.UpgradeNotification{two}, begin).Follow([]v1alpha1.UpgradeNotification{one}, begin.Add(3*time.Hour))
	if len(back) != 1 || back["Slack/one/url"].Since != at(3*time.Hour) {
		t.Errorf("%+v", back)
	}

	more := hook("two", v1alpha1.NotificationStarted)
	generic := hook("two")
	generic.Type = v1alpha1.NotificationGeneric

	targets := book.Targets([]v1alpha1.UpgradeNotification{one, two, more, generic})
	if len(targets) != 3 || len(targets[0].Events) != 0 || !targets[1].Since.Equal(begin.Add(time.Hour)) ||
		!slices.Equal(targets[1].Events, []v1alpha1.NotificationEvent{v1alpha1.NotificationFailed, v1alpha1.NotificationStarted}) {
		t.Errorf("%+v", targets)
	}

	if all := book.Targets([]v1alpha1.UpgradeNotification{two, hook("two"), more}); len(all) != 1 || len(all[0].Events) != 0 {
		t.Errorf("%+v", all)
	}
}

func hook(secret string, events ...v1alpha1.NotificationEvent) v1alpha1.UpgradeNotification {
	return v1alpha1.UpgradeNotification{
		Type: v1alpha1.NotificationSlack, SecretRef: v1alpha1.SecretKeyReference{Name: secret, Key: "url"}, Events: events,
	}
}
