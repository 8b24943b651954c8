package wait

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestEvery: something is done until the context ends, the first time at once.
func TestEvery(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	count := 0

	Every(ctx, time.Millisecond, func(context.Context) {
		if count++; count == 3 {
			cancel()
		}
	})

	if count < 3 {
		t.Errorf("it was done %d times", count)
	}

	once := 0

	Every(ctx, deadline, func(context.Context) { once++ })

	if once != 1 {
		t.Errorf("it was done %d times after the end of the context", once)
	}
}

// TestWithin: what a channel delivers is told from its silence.
func TestWithin(t *testing.T) {
	c := make(chan int, 1)

	if v, ok := Within(c, time.Millisecond); ok {
		t.Errorf("a channel that delivers nothing gave %d", v)
	}

	c <- 7

	if v, ok := Within(c, deadline); !ok || v != 7 {
		t.Errorf("got %d, %v", v, ok)
	}
}

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
