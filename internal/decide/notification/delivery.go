package notification

import (
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

const (
	shortestPause = 10 * time.Second
	longestPause  = 10 * time.Minute
	// longestRequest is the longest pause that a receiver can ask for.
	longestRequest = time.Hour
)

// Due is an entry that is sent to a target now.
type Due struct {
	Entry  Entry
	Target Target
}

// Due returns what is sent now, at most one entry for each target: the transitions of a run arrive in their order. next
// is when the first of the others is due; zero if there is none.
func (l Ledger) Due(targets []Target, now time.Time) (due []Due, next time.Time) {
	for _, t := range targets {
		at := slices.IndexFunc(l.Entries, func(e Entry) bool { return t.pending(&e, now) })
		if at < 0 {
			continue
		}

		e := &l.Entries[at]

		when := e.Deliveries[t.Key()].Next.Time
		switch {
		case !when.After(now):
			due = append(due, Due{Entry: *e, Target: t})
		case next.IsZero() || when.Before(next):
			next = when
		}
	}

	return due, next
}

// pending reports whether a target is still to be told of an entry.
func (t Target) pending(e *Entry, now time.Time) bool {
	d, tried := e.Deliveries[t.Key()]

	switch {
	case d.Result != "" || !t.wants(e):
		return false
	case tried && !d.First.Time.Before(t.Since):
		return true
	}

	return !e.Time.Time.Before(t.Since) || now.Sub(e.Time.Time) <= Recent
}

// wants reports whether a target is told of an entry. A run that has stopped waits for a user, too: a receiver that was
// configured for that is told.
func (t Target) wants(e *Entry) bool {
	stopped := e.Event == v1alpha1.NotificationFailed && e.Phase == v1alpha1.UpgradeRunStopped

	return len(t.Events) == 0 || slices.Contains(t.Events, e.Event) ||
		stopped && slices.Contains(t.Events, v1alpha1.NotificationWaiting)
}

// Claim returns the ledger with the attempts that are made now. It has to be recorded before they are made. What no
// target is told of any more is dropped from it.
func (l Ledger) Claim(due []Due, targets []Target, now time.Time) Ledger {
	for _, one := range due {
		next, e := l.entry(one.Entry.Number)
		if e == nil {
			continue
		}

		d := e.Deliveries[one.Target.Key()]
		if d.Attempts == 0 {
			d.First = stamp(now)
		}

		d.Attempts++
		d.Next = stamp(now.Add(pause(d.Attempts)))
		e.Deliveries[one.Target.Key()] = d
		l = next
	}

	l.Entries = slices.DeleteFunc(slices.Clone(l.Entries), func(e Entry) bool {
		return now.Sub(e.Time.Time) > Recent &&
			!slices.ContainsFunc(targets, func(t Target) bool { return t.pending(&e, now) })
	})

	return l
}

// Verdict is what an attempt has come to.
type Verdict int

// Verdicts.
const (
	// Retry: the next attempt may succeed.
	Retry Verdict = iota
	// Accepted by the receiver.
	Accepted
	// Refused by the receiver: the next attempt would be, too.
	Refused
)

// Outcome is the outcome of one attempt.
type Outcome struct {
	Verdict Verdict
	// Why it was not accepted. It holds nothing of the address.
	Why string
	// After is how long the receiver asks to wait.
	After time.Duration
}

// Settle returns the ledger with the outcome of an attempt, and how the delivery ended; empty if it did not.
func (l Ledger) Settle(one Due, o Outcome, now time.Time) (Ledger, Result) {
	l, e := l.entry(one.Entry.Number)
	if e == nil {
		return l, ""
	}

	d := e.Deliveries[one.Target.Key()]

	switch {
	case o.Verdict == Accepted:
		d.Result = ResultSent
	case o.Verdict == Refused, now.Sub(e.Observed.Time) >= GiveUp:
		d.Result = ResultFailed
	default:
		d.Next = stamp(now.Add(max(pause(d.Attempts), min(o.After, longestRequest))))
	}

	e.Deliveries[one.Target.Key()] = d

	return l, d.Result
}

// pause is how long the next attempt waits after a number of them.
func pause(attempts int) time.Duration {
	p := shortestPause
	for i := 1; i < attempts && p < longestPause; i++ {
		p *= 2
	}

	return min(p, longestPause)
}
