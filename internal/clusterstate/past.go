package clusterstate

import "time"

// skew is how far a recorded time may be in the future before the clock counts as set back: clocks differ a little, and
// waiting a minute longer is harmless.
const skew = time.Minute

// Past returns a recorded time for the calculation of intervals. A time in the future was recorded by a clock that was
// ahead, and the real elapsed time is unknown. It is replaced by now, so that an interval is waited for once more, and
// not extended by the time that the clock was ahead.
func Past(recorded, now time.Time) time.Time {
	if recorded.After(now.Add(skew)) {
		return now
	}

	return recorded
}

// Settle moves future recorded times into the past. Once they are written back, each interval starts anew once.
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

// times returns the times from which intervals are calculated, except those of machines. Those of restores are omitted:
// their objects contain the same times, and a difference would count as another restore.
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

		if at := r.Disruption.MissingSince; at != nil {
			out = append(out, at)
		}
	}

	for _, at := range append(r.Upgrade.times(), r.ImportedAt, r.DecommissionedAt) {
		if at != nil {
			out = append(out, at)
		}
	}

	return out
}
