package upgradebench

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestFollow: a gap lasts from the beginning of the first probe that fails to the end of the next good one.
func TestFollow(t *testing.T) {
	for name, c := range map[string]struct {
		answers []bool
		failed  int
		gap     bool
	}{
		"always there":     {[]bool{true, true, true}, 0, false},
		"away for a while": {[]bool{true, false, false, true}, 2, true},
		"away at the end":  {[]bool{true, false}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			asked := 0

			o := follow(ctx, time.Millisecond, func(context.Context) error {
				if asked == len(c.answers) {
					cancel()

					return ctx.Err()
				}

				if asked++; !c.answers[asked-1] {
					return errors.New("away")
				}

				return nil
			})

			if o.probes != len(c.answers) || o.failed != c.failed || len(o.errors) != c.failed {
				t.Errorf("%d probes, %d failed", o.probes, o.failed)
			}

			// Each probe that fails is followed by a pause.
			if least := retryPause * time.Duration(c.failed); c.gap && o.gap < least || !c.gap && o.gap != 0 {
				t.Errorf("a gap of %s", o.gap)
			}
		})
	}
}
