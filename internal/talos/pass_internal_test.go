package talos

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestPass: what is asked in a reconciliation ends with its time; an act has its own, and ends with the manager.
func TestPass(t *testing.T) {
	manager, stop := context.WithCancel(t.Context())
	pass, cancel := Pass(manager, time.Nanosecond)

	defer cancel()
	<-pass.Done()

	if Acting(pass).Err() != nil {
		t.Error("an act ends with the time of its pass")
	}

	within, end := context.WithTimeout(pass, time.Second)
	defer end()

	if within.Err() == nil || Acting(within).Err() != nil {
		t.Error("the same within a call")
	}

	stop()

	if Acting(pass).Err() == nil {
		t.Error("an act goes on after the manager has ended")
	}

	unbound, cancel := Pass(t.Context(), 0)
	defer cancel()

	if _, bound := unbound.Deadline(); bound || Acting(unbound) != unbound {
		t.Error("a pass without a bound has one")
	}
}

// TestActEndsAfterItsManager: the end of the manager lets a call that has begun end, for a while, and none begin.
func TestActEndsAfterItsManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager, stop := context.WithCancel(t.Context())
		pass, done := Pass(manager, time.Nanosecond)

		defer done()
		<-pass.Done()

		begun, cancel := act(pass, time.Hour)
		defer cancel()

		ended, end := act(pass, time.Hour)
		short, drop := act(pass, StopGrace/2)

		defer drop()
		end()
		stop()
		synctest.Wait()

		if begun.Err() != nil || short.Err() != nil {
			t.Errorf("calls are cut off at once: %v, %v", begun.Err(), short.Err())
		}

		if ended.Err() == nil {
			t.Error("a call that was cancelled goes on")
		}

		late, cancelLate := act(pass, time.Hour)
		defer cancelLate()

		if late.Err() == nil {
			t.Error("a call begins after the end of its manager")
		}

		<-short.Done()

		if !errors.Is(short.Err(), context.DeadlineExceeded) || begun.Err() != nil {
			t.Errorf("the short call: %v, the other one meanwhile: %v", short.Err(), begun.Err())
		}

		// The clock of the bubble moves on by itself. The deadline is an hour away.
		<-begun.Done()

		if !errors.Is(begun.Err(), context.Canceled) {
			t.Errorf("the call ends with %v", begun.Err())
		}
	})
}

// TestActKeepsADeadline: that of the caller counts where it is earlier.
func TestActKeepsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		inner, end := act(caller, time.Minute)
		defer end()

		want, _ := caller.Deadline()
		if got, ok := inner.Deadline(); !ok || !got.Equal(want) {
			t.Errorf("the deadline is %v, want %v", got, want)
		}

		<-inner.Done()

		if !errors.Is(inner.Err(), context.DeadlineExceeded) {
			t.Error(inner.Err())
		}
	})
}
