package storage

import (
	"testing"
	"time"
)

// SetClock gives credentials that are opened from now on another clock.
func SetClock(t *testing.T, now func() time.Time) {
	t.Helper()

	before := clockNow
	clockNow = now

	t.Cleanup(func() { clockNow = before })
}
