package talos

import (
	"context"
	"testing"
	"time"
)

// TestPass: what is asked in a pass ends with its time; an act has its own, and ends with the manager.
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
