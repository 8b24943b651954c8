// Package wait is the one way in which tests wait: until something holds, however long a busy computer takes. The
// deadline is there to end a test that is stuck; no test may depend on how long it is.
package wait

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	// deadline is far beyond what anything takes while other programs use the same processors.
	deadline = 10 * time.Minute
	// one is how long a single check may take: one that hangs, because it asks a node that has just died, is not the last.
	one = time.Minute
	// shortest and longest are the pauses between two checks. They grow, so that waiting costs little.
	shortest = 5 * time.Millisecond
	longest  = 400 * time.Millisecond
)

// For waits until check returns nil. When that does not happen, the test fails with the last error. It ends with the
// context of the test, so cleanups use Until.
func For(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()

	if err := Until(t.Context(), what, check); err != nil {
		t.Fatal(err)
	}
}

// Until is For where there is no test: in TestMain, and in goroutines, which must not end a test. The error tells what
// was waited for, and what the last check found.
func Until(ctx context.Context, what string, check func(context.Context) error) error {
	return until(ctx, deadline, what, check)
}

func until(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	start := time.Now()

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	var last error

	for pause := shortest; ; pause = min(pause*3/2, longest) {
		err := try(bounded, check)
		if err == nil {
			return nil
		}

		// A check that was cut short by the end of the wait saw nothing of its own.
		if last == nil || bounded.Err() == nil {
			last = err
		}

		select {
		case <-bounded.Done():
			return fmt.Errorf("%s: not within %s, last seen: %w", what, time.Since(start).Round(time.Second), last)
		case <-time.After(pause):
		}
	}
}

func try(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, one)
	defer cancel()

	return check(ctx)
}

// Done waits for a channel to be closed, or to deliver.
func Done[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()

	select {
	case v := <-c:
		return v
	case <-time.After(deadline):
		t.Fatalf("%s: not within %s", what, deadline)
	}

	panic("unreachable")
}

// Stays checks again and again for a while that something does not change. It is for what must not happen, which no
// number of checks can prove: a short while in a test of every day, a long one where stability is the subject.
func Stays(t testing.TB, what string, d time.Duration, check func(context.Context) error) {
	t.Helper()

	for end := time.Now().Add(d); ; {
		if err := check(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}

		left := time.Until(end)
		if left <= 0 {
			return
		}

		Pass(t, min(longest, left))
	}
}

// Pass lets time pass. It is for tests in which other processes need it, and whose result does not depend on it: when
// to strike, how often to check.
func Pass(t testing.TB, d time.Duration) {
	t.Helper()

	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// Every does something at once, and again after each pause, until the context ends. It is for tests that observe other
// processes for as long as those run.
func Every(ctx context.Context, pause time.Duration, do func(context.Context)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()

	for {
		do(ctx)

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Within returns what a channel delivers, and false if it delivers nothing for d. It is for tests that disturb
// something again and again until it ends, and whose result does not depend on when that is.
func Within[T any](c <-chan T, d time.Duration) (T, bool) {
	select {
	case v := <-c:
		return v, true
	case <-time.After(d):
		var none T

		return none, false
	}
}

// Now is the time of the real clock. It is for what others compare with a clock of their own, such as certificates in
// TLS, audit logs, files, objects in stores, deadlines of sockets, and what the operator and its commands take for now;
// and for how long something took. What is given a time or a clock has a fixed one in tests, or that of test/harness.
func Now() time.Time { return time.Now() }

// True makes an error of a condition that does not hold.
func True(ok bool) error {
	if ok {
		return nil
	}

	return errNotYet
}

var errNotYet = errors.New("it is not so yet")
