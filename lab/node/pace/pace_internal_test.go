package pace

import (
	"fmt"
	"testing"
	"time"
)

// TestPace: every state has a duration and a source for it, all of them follow one factor, and machines differ in speed
// in a way that a seed replays.
func TestPace(t *testing.T) {
	t.Parallel()

	for d, state := range durations {
		if state.real <= 0 || state.source == "" {
			t.Errorf("state %d lasts %s, from %q", d, state.real, state.source)
		}
	}

	speeds := map[float64]bool{}

	for i := range 100 {
		name := fmt.Sprintf("n%d", i)
		pace := Of(1, 7, name, "127.0.0.1")
		speeds[pace.speed] = true

		if pace.speed < fastest || pace.speed > slowest || pace != Of(1, 7, name, "127.0.0.1") {
			t.Errorf("the speed of %s is %g, and not always", name, pace.speed)
		}

		if again := Of(1, 8, name, "127.0.0.1"); again == pace {
			t.Errorf("%s is as fast with another seed", name)
		}
	}

	if len(speeds) < 90 {
		t.Errorf("of 100 machines, %d differ in speed", len(speeds))
	}

	if got := (Pace{scale: 0.1, speed: 0.5}).Lasts(Fatal); got != 500*time.Millisecond {
		t.Errorf("ten seconds at a tenth, on a machine twice as fast, are %s", got)
	}
}

// TestTimes: what is given replaces what was not recorded, in as many parts as it is spent in, and follows factor and
// speed; the rest stays.
func TestTimes(t *testing.T) {
	t.Parallel()

	p := Pace{scale: 0.5, speed: 0.5}.With(Times{Pull: 8 * time.Second, Install: 12 * time.Second})

	for state, want := range map[State]time.Duration{
		Pull: time.Second, Install: time.Second, Reboot: durations[Reboot].real / 4, APIServer: durations[APIServer].real / 4,
	} {
		if got := p.Lasts(state); got != want {
			t.Errorf("state %d lasts %s, want %s", state, got, want)
		}
	}

	if got := p.With(Times{APIServer: 4 * time.Second}).Lasts(APIServer); got != time.Second {
		t.Errorf("an API server takes %s", got)
	}
}
