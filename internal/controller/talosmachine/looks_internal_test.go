package talosmachine

import (
	"testing"
	"time"
)

// TestTrust: a comparison holds while nothing changes that it depends on. The node confirms it every ten minutes, and
// whole configurations are compared every hour.
func TestTrust(t *testing.T) {
	const key = "ns/m"

	begin := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	compared := look{config: "1 of today", comparedTo: "spec"}
	changed := func(change func(*look)) look {
		l := compared
		change(&l)

		return l
	}

	for name, tc := range map[string]struct {
		// confirmed are the minutes after the comparison at which the node has confirmed it.
		confirmed []int
		look      look
		minutes   int
		want      trust
	}{
		"at once":                         {nil, compared, 0, settled},
		"just before the node is asked":   {nil, compared, 9, settled},
		"the node is asked":               {nil, compared, 10, due},
		"confirmed":                       {[]int{10}, compared, 19, settled},
		"asked again":                     {[]int{10}, compared, 20, due},
		"an hour, confirmed all the time": {[]int{10, 20, 30, 40, 50, 59}, compared, 60, outdated},
		"another spec":                    {nil, changed(func(l *look) { l.comparedTo = "other" }), 1, outdated},
		"another config":                  {nil, changed(func(l *look) { l.config = "2 of today" }), 1, outdated},
		"no stream":                       {nil, changed(func(l *look) { l.config = "" }), 1, outdated},
	} {
		var l looks

		l.settle(key, compared, own{}, begin)

		for _, m := range tc.confirmed {
			l.confirm(key, begin.Add(time.Duration(m)*time.Minute))
		}

		if got := l.trust(key, tc.look, begin.Add(time.Duration(tc.minutes)*time.Minute)); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}

	var l looks

	// A confirmation alone is no comparison.
	l.confirm(key, begin)

	if got := l.trust(key, look{}, begin); got != outdated {
		t.Errorf("never compared: %d", got)
	}

	l.settle(key, compared, own{}, begin)
	l.forget(key)

	if got := l.trust(key, compared, begin); got != outdated {
		t.Errorf("forgotten: %d", got)
	}
}
