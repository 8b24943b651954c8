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
			history{20 * time.Second, 2, nil, [][]stretch{at(0, 5), at(5, 10)}, [][]stretch{at(10, 14), at(14, 20), at(14, 20)}},
			20 * time.Second, 0,
		},
		"pauses within and between": {
			history{30 * time.Second, 1, nil, [][]stretch{at(2, 5, 6, 10), at(12, 20)}, [][]stretch{at(21, 28)}},
			22 * time.Second, 8 * time.Second,
		},
		"one slot of two is free": { // until the third worker begins; then it is the last one, and may be alone
			history{34 * time.Second, 2, nil, nil, [][]stretch{at(0, 4), at(4, 14), at(4, 24), at(19, 34)}},
			29 * time.Second, 2500 * time.Millisecond,
		},
		"others wait for the canary": {
			history{20 * time.Second, 3, nil, nil, [][]stretch{at(0, 8), at(12, 20), at(12, 20)}},
			16 * time.Second, 4 * time.Second,
		},
		"no worker before the control plane": {
			history{10 * time.Second, 2, nil, [][]stretch{at(5, 10)}, [][]stretch{at(0, 5)}},
			10 * time.Second, 5 * time.Second,
		},
		"pulls side by side": { // the second one began late: half of two slots for two seconds, then two before the work
			history{20 * time.Second, 2, [][]stretch{at(0, 4), at(2, 6)}, [][]stretch{at(8, 14)}, [][]stretch{at(14, 20)}},
			16 * time.Second, 3 * time.Second,
		},
		"nothing to do": {history{4 * time.Second, 3, nil, nil, nil}, 0, 4 * time.Second},
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
	did := func(does work, spans ...int) []span {
		var out []span
		for _, s := range at(spans...) {
			out = append(out, span{began.Add(s.from), began.Add(s.to), does})
		}

		return out
	}

	h := newHistory([]machine{
		{true, did(working, -5, 3, 30, 40)},
		{false, nil},
		{false, did(working, 8, 9)},
		{false, did(working, 6, 40)},
		{false, did(working, -9, -1)},
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

// Pulls before the first machine begins are a phase of their own; those after that belong to the machine.
func TestPullsBeforeTheFirstMachine(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	did := func(does work, from, to int) span {
		return span{began.Add(time.Duration(from) * time.Second), began.Add(time.Duration(to) * time.Second), does}
	}

	h := newHistory([]machine{
		{true, []span{did(working, -9, -5), did(pulling, -1, 2), did(working, 5, 9)}},
		{false, []span{did(pulling, 0, 4), did(pulling, 9, 10), did(working, 10, 12)}},
	}, began, began.Add(20*time.Second), 1)

	if len(h.pulls) != 2 || h.pulls[0][0] != at(0, 2)[0] || h.pulls[1][0] != at(0, 4)[0] || len(h.pulls[1]) != 1 {
		t.Errorf("pulled before: %v", h.pulls)
	}

	if len(h.controlPlanes) != 1 || len(h.workers) != 1 || len(h.workers[0]) != 2 {
		t.Errorf("busy later: %v and %v", h.controlPlanes, h.workers)
	}

	if got, want := h.nodeTime(), (4+4+3)*time.Second; got != want {
		t.Errorf("nodes needed %s, want %s", got, want)
	}
}
