package upgradebench

import (
	"testing"
	"time"
)

// at are busy times in seconds: from, to, from, to.
func at(seconds ...int) []stretch {
	var out []stretch
	for i := 0; i < len(seconds); i += 2 {
		out = append(out, stretch{time.Duration(seconds[i]) * time.Second, time.Duration(seconds[i+1]) * time.Second})
	}

	return out
}

func TestHistory(t *testing.T) {
	for name, c := range map[string]struct {
		history

		nodes, unused time.Duration
	}{
		"nothing added": {
			history{20 * time.Second, 2, [][]stretch{at(0, 5), at(5, 10)}, [][]stretch{at(10, 14), at(14, 20), at(14, 20)}},
			20 * time.Second, 0,
		},
		"pauses within and between": {
			history{30 * time.Second, 1, [][]stretch{at(2, 5, 6, 10), at(12, 20)}, [][]stretch{at(21, 28)}},
			22 * time.Second, 8 * time.Second,
		},
		"one slot of two is free": { // until the third worker begins; then it is the last one, and may be alone
			history{34 * time.Second, 2, nil, [][]stretch{at(0, 4), at(4, 14), at(4, 24), at(19, 34)}},
			29 * time.Second, 2500 * time.Millisecond,
		},
		"others wait for the canary": {
			history{20 * time.Second, 3, nil, [][]stretch{at(0, 8), at(12, 20), at(12, 20)}},
			16 * time.Second, 4 * time.Second,
		},
		"no worker before the control plane": {
			history{10 * time.Second, 2, [][]stretch{at(5, 10)}, [][]stretch{at(0, 5)}},
			10 * time.Second, 5 * time.Second,
		},
		"nothing to do": {history{4 * time.Second, 3, nil, nil}, 0, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.nodeTime(); got != c.nodes {
				t.Errorf("nodes needed %s, want %s", got, c.nodes)
			}

			if got := c.idle(); got != c.unused {
				t.Errorf("idle for %s, want %s", got, c.unused)
			}
		})
	}
}

func TestNewHistory(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	busy := func(spans ...int) []span {
		var out []span
		for _, s := range at(spans...) {
			out = append(out, span{began.Add(s.from), began.Add(s.to)})
		}

		return out
	}

	h := newHistory([]machine{
		{true, busy(-5, 3, 30, 40)}, {false, nil}, {false, busy(8, 9)}, {false, busy(6, 40)}, {false, busy(-9, -1)},
	}, began, began.Add(20*time.Second), 2)

	if h.took != 20*time.Second || len(h.controlPlanes) != 1 || len(h.workers) != 2 {
		t.Fatalf("%+v", h)
	}

	if got := h.controlPlanes[0]; len(got) != 1 || got[0] != at(0, 3)[0] {
		t.Errorf("the control plane was busy at %v", got)
	}

	if a, b := h.workers[0][0], h.workers[1][0]; a != at(6, 20)[0] || b != at(8, 9)[0] {
		t.Errorf("the workers were busy at %v and %v", a, b)
	}
}
