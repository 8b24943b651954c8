package wait

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	count := 0

	err := Until(t.Context(), "three tries", func(context.Context) error {
		count++

		return True(count == 3)
	})
	if err != nil || count != 3 {
		t.Errorf("after %d checks: %v", count, err)
	}
}

// TestUntilTellsTheLast: the failure is what the last check saw, and not that it was cut short.
func TestUntilTellsTheLast(t *testing.T) {
	seen := errors.New("two of three members vote")
	asked := false

	err := until(t.Context(), 50*time.Millisecond, "etcd", func(ctx context.Context) error {
		if asked {
			<-ctx.Done()

			return ctx.Err()
		}

		asked = true

		return seen
	})
	if !errors.Is(err, seen) || !strings.HasPrefix(err.Error(), "etcd: not within ") {
		t.Errorf("the wait ends with %v", err)
	}
}

// TestUntilEndsWithItsContext: a test that is over waits no longer.
func TestUntilEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := Until(ctx, "nothing", func(context.Context) error { return errNotYet }); !errors.Is(err, errNotYet) {
		t.Errorf("the wait ends with %v", err)
	}
}
