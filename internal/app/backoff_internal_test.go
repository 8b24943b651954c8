package app

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestRetryDelays: failures are retried after 1, 2, 4, 8 s and so on, up to 5 min.
func TestRetryDelays(t *testing.T) {
	limiter := backoff()

	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		if got := limiter.When(reconcile.Request{}); got != want*time.Second {
			t.Errorf("retry %d after %s, want %s", i+1, got, want*time.Second)
		}
	}
}
