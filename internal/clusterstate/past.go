package clusterstate

import "time"

// skew is how far ahead a recorded time may be before the clock counts as set back: clocks differ a little, and what
// waits a minute longer harms nobody.
const skew = time.Minute

// Past is a recorded time as intervals are reckoned from it. One that is still to come was recorded by a clock that was
// ahead. What has passed since then is not known; reckoned from now, whatever waits for an interval waits for it once
// more, and not for as long as the clock was ahead.
func Past(recorded, now time.Time) time.Time {
	if recorded.After(now.Add(skew)) {
		return now
	}

	return recorded
}

// Settle brings the recorded times into the past. Written back, they make each interval begin anew once.
func (r *Runtime) Settle(now time.Time) {
	for _, at := range r.times() {
		*at = Past(*at, now)
	}

	for name, m := range r.Machines {
		if m.ConfiguredAt != nil && m.ConfiguredAt.After(now.Add(skew)) {
			at := now
			m.ConfiguredAt = &at
			r.Machines[name] = m
		}
	}

	for key, g := range r.GivenUp {
		g.At = Past(g.At, now)

		if g.ResetAt != nil {
			at := Past(*g.ResetAt, now)
			g.ResetAt = &at
		}

		r.GivenUp[key] = g
	}
}

// times are those that intervals are reckoned from, apart from those of machines. Those of restores are left out: their
// objects say the same, and what differs would count as another restore.
func (r *Runtime) times() []*time.Time {
	var out []*time.Time

	if r.Bootstrap != nil {
		out = append(out, &r.Bootstrap.IntentAt)
		if r.Bootstrap.EstablishedAt != nil {
			out = append(out, r.Bootstrap.EstablishedAt)
		}
	}

	if r.Disruption != nil {
		out = append(out, &r.Disruption.Since)
	}

	for _, at := range []*time.Time{r.ImportedAt, r.DecommissionedAt} {
		if at != nil {
			out = append(out, at)
		}
	}

	return out
}
