package node

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
		o := Options{Name: fmt.Sprintf("n%d", i), Address: "127.0.0.1", Seed: 7}
		speed := o.speed()
		speeds[speed] = true

		if speed < fastest || speed > slowest || speed != o.speed() {
			t.Errorf("the speed of %s is %g, and then %g", o.Name, speed, o.speed())
		}

		if again := (Options{Name: o.Name, Address: o.Address, Seed: 8}).speed(); again == speed {
			t.Errorf("%s is as fast with another seed", o.Name)
		}
	}

	if len(speeds) < 90 {
		t.Errorf("of 100 machines, %d differ in speed", len(speeds))
	}

	n := &Node{opts: Options{Scale: 0.1}, speed: 0.5}
	if got := n.lasts(fatalTime); got != 500*time.Millisecond {
		t.Errorf("ten seconds at a tenth, on a machine twice as fast, are %s", got)
	}
}
