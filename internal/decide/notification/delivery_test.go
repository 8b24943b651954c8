package notification_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
)

const (
	started, finished = v1alpha1.NotificationStarted, v1alpha1.NotificationFinished
	key               = "Slack/s/url"
)

func target(since time.Duration, events ...v1alpha1.NotificationEvent) notification.Target {
	return notification.Target{UpgradeNotification: hook("s", events...), Since: begin.Add(since)}
}

func entry(number int, event v1alpha1.NotificationEvent, when time.Duration) notification.Entry {
	return notification.Entry{Number: number, Event: event, Time: at(when)}
}

func tried(e notification.Entry, first, next time.Duration, result notification.Result) notification.Entry {
	e.Deliveries = map[string]notification.Delivery{key: {Attempts: 1, First: at(first), Next: at(next), Result: result}}

	return e
}

// TestDue: what is sent now, two hours after begin.
func TestDue(t *testing.T) {
	const now, sent, failed = 2 * time.Hour, notification.ResultSent, notification.ResultFailed

	const waiting = v1alpha1.NotificationWaiting

	ended := func(number int, phase v1alpha1.UpgradeRunPhase) notification.Entry {
		e := entry(number, v1alpha1.NotificationFailed, 0)
		e.Phase = phase

		return e
	}

	for name, c := range map[string]struct {
		target  notification.Target
		entries []notification.Entry
		want    string
	}{
		"nothing":                              {target(0), nil, ""},
		"a transition":                         {target(0), []notification.Entry{entry(1, started, 0)}, "1"},
		"at the moment it was configured":      {target(time.Minute), []notification.Entry{entry(1, started, time.Minute)}, "1"},
		"long before it was configured":        {target(time.Minute), []notification.Entry{entry(1, started, 0)}, ""},
		"in the last hour":                     {target(now), []notification.Entry{entry(1, started, time.Hour)}, "1"},
		"an old one and a recent one":          {target(now), []notification.Entry{entry(1, started, 0), entry(2, finished, now)}, "2"},
		"one after the other":                  {target(0), []notification.Entry{entry(1, started, 0), entry(2, finished, 0)}, "1"},
		"after the one that was sent":          {target(0), []notification.Entry{tried(entry(1, started, 0), 0, 0, sent), entry(2, finished, 0)}, "2"},
		"after the one that failed":            {target(0), []notification.Entry{tried(entry(1, started, 0), 0, 0, failed), entry(2, finished, 0)}, "2"},
		"not before the one that waits":        {target(0), []notification.Entry{tried(entry(1, started, 0), 0, 3*time.Hour, ""), entry(2, finished, 0)}, "next 180"},
		"the next attempt":                     {target(0), []notification.Entry{tried(entry(1, started, 0), 0, now, "")}, "1"},
		"an event that is not asked for":       {target(0, finished), []notification.Entry{entry(1, started, 0), entry(2, finished, 0)}, "2"},
		"Waiting, and a stop":                  {target(0, waiting), []notification.Entry{ended(1, v1alpha1.UpgradeRunStopped)}, "1"},
		"Waiting, and an end":                  {target(0, waiting), []notification.Entry{ended(1, v1alpha1.UpgradeRunFailed)}, ""},
		"Finished, and a stop":                 {target(0, finished), []notification.Entry{ended(1, v1alpha1.UpgradeRunStopped)}, ""},
		"tried while it was recent":            {target(30 * time.Minute), []notification.Entry{tried(entry(1, started, 0), time.Hour, now, "")}, "1"},
		"tried before it was configured again": {target(90 * time.Minute), []notification.Entry{tried(entry(1, started, 0), time.Hour, now, "")}, ""},
	} {
		due, next := (notification.Ledger{Entries: c.entries}).Due([]notification.Target{c.target}, begin.Add(now))

		got := []string{}
		for _, d := range due {
			got = append(got, fmt.Sprint(d.Entry.Number))
		}

		if !next.IsZero() {
			got = append(got, fmt.Sprintf("next %.0f", next.Sub(begin).Minutes()))
		}

		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDueOfMany: targets do not wait for each other.
func TestDueOfMany(t *testing.T) {
	other := target(0)
	other.Type = v1alpha1.NotificationGeneric

	third := target(0)
	third.SecretRef.Name = "third"

	e := tried(entry(1, started, 0), 0, 3*time.Hour, "")
	e.Deliveries[third.Key()] = notification.Delivery{Next: at(2 * time.Hour)}

	due, next := (notification.Ledger{Entries: []notification.Entry{e}}).Due([]notification.Target{target(0), other, third}, begin.Add(time.Hour))
	if len(due) != 1 || due[0].Target.Key() != other.Key() || !next.Equal(begin.Add(2*time.Hour)) {
		t.Errorf("%+v, %s", due, next)
	}
}

// TestClaim: an attempt is recorded before it is made, and what is not told any more is dropped.
func TestClaim(t *testing.T) {
	targets, now := []notification.Target{target(0)}, begin.Add(2*time.Hour)
	l := notification.Ledger{Last: 4, Entries: []notification.Entry{
		tried(entry(1, started, 0), 0, 0, notification.ResultSent), tried(entry(2, finished, 90*time.Minute), 0, 0, notification.ResultSent),
		entry(3, started, 0), entry(4, finished, 0),
	}}
	due, _ := l.Due(targets, now)

	claimed := l.Claim(due, targets, now)
	if got := entries(claimed); got != "2 Finished 90, 3 Started 0, 4 Finished 0" {
		t.Errorf("kept: %s", got)
	}

	want := notification.Delivery{Attempts: 1, First: at(2 * time.Hour), Next: at(2*time.Hour + 10*time.Second)}
	if got := claimed.Entries[1].Deliveries[key]; got != want {
		t.Errorf("%+v", got)
	}

	if len(l.Entries[2].Deliveries) > 0 {
		t.Error("the ledger that was given has changed")
	}

	// The operator died, and makes the attempt again, but not at once.
	if due, next := claimed.Due(targets, now); len(due) > 0 || !next.Equal(want.Next.Time) {
		t.Errorf("%+v, %s", due, next)
	}

	due, _ = claimed.Due(targets, want.Next.Time)
	if got := claimed.Claim(due, targets, want.Next.Time).Entries[1].Deliveries[key]; got.Attempts != 2 || got.First != want.First || got.Next != at(2*time.Hour+30*time.Second) {
		t.Errorf("%+v", got)
	}
}

// TestSettle: what becomes of an attempt.
func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		outcome  notification.Outcome
		attempts int
		after    time.Duration
		result   notification.Result
		pause    time.Duration
	}{
		"accepted":                   {notification.Outcome{Verdict: notification.Accepted}, 1, 0, notification.ResultSent, 0},
		"accepted at last":           {notification.Outcome{Verdict: notification.Accepted}, 40, 7 * time.Hour, notification.ResultSent, 0},
		"refused":                    {notification.Outcome{Verdict: notification.Refused}, 1, 0, notification.ResultFailed, 0},
		"the first pause":            {notification.Outcome{}, 1, 0, "", 10 * time.Second},
		"the third one":              {notification.Outcome{}, 3, 0, "", 40 * time.Second},
		"the longest one":            {notification.Outcome{}, 1000, 0, "", 10 * time.Minute},
		"the receiver asks for more": {notification.Outcome{After: 20 * time.Minute}, 1, 0, "", 20 * time.Minute},
		"for less":                   {notification.Outcome{After: time.Second}, 1, 0, "", 10 * time.Second},
		"for too much":               {notification.Outcome{After: 1000 * time.Hour}, 1, 0, "", time.Hour},
		"almost too long":            {notification.Outcome{}, 9, 6*time.Hour - time.Second, "", 10 * time.Minute},
		"too long":                   {notification.Outcome{After: time.Minute}, 9, 6 * time.Hour, notification.ResultFailed, 0},
	} {
		e, now := entry(1, started, -time.Hour), begin.Add(c.after)
		e.Observed = at(0)
		e.Deliveries = map[string]notification.Delivery{key: {Attempts: c.attempts, First: at(0), Next: at(0)}}

		l, result := (notification.Ledger{Entries: []notification.Entry{e}}).Settle(notification.Due{Entry: e, Target: target(0)}, c.outcome, now)
		got := l.Entries[0].Deliveries[key]

		if result != c.result || got.Result != c.result || result == "" && !got.Next.Time.Equal(now.Add(c.pause)) {
			t.Errorf("%s: %q, %+v", name, result, got)
		}
	}
}
