package upgradebench

import (
	"cmp"
	"slices"
	"time"
)

// history is how the upgrade of one cluster went, in times since it was asked for.
type history struct {
	// took is when it was reported as complete.
	took time.Duration
	// budget is how many workers may be upgraded at a time.
	budget int
	// pulls are when each machine pulled images before the first machine did anything else. They do so side by side.
	pulls [][]stretch
	// controlPlanes and workers are when each machine was busy after that. Machines that never were are left out.
	controlPlanes, workers [][]stretch
}

// stretch is a time since the beginning.
type stretch struct{ from, to time.Duration }

// newHistory cuts what machines did to the time of the upgrade.
func newHistory(machines []machine, began, ended time.Time, budget int) history {
	h := history{took: ended.Sub(began), budget: budget}
	first := firstWork(machines, began)

	for _, m := range machines {
		var pulled, busy []stretch

		for _, s := range m.busy {
			from, to := max(s.from.Sub(began), 0), min(s.to.Sub(began), h.took)

			switch {
			case from >= to:
			case s.to.After(first):
				busy = append(busy, stretch{from, to})
			default:
				pulled = append(pulled, stretch{from, to})
			}
		}

		if len(pulled) > 0 {
			h.pulls = append(h.pulls, pulled)
		}

		switch {
		case len(busy) == 0:
		case m.controlPlane:
			h.controlPlanes = append(h.controlPlanes, busy)
		default:
			h.workers = append(h.workers, busy)
		}
	}

	// Workers are upgraded in the order in which they began.
	slices.SortFunc(h.workers, func(a, b []stretch) int { return cmp.Compare(a[0].from, b[0].from) })

	return h
}

// firstWork is when the first machine did something else than to pull an image, after the beginning. It is the end of
// time if none did.
func firstWork(machines []machine, began time.Time) time.Time {
	first := time.Unix(1<<40, 0)

	for _, m := range machines {
		for _, s := range m.busy {
			if s.work == working && s.to.After(began) && s.from.Before(first) {
				first = s.from
			}
		}
	}

	return first
}

// nodeTime is what the machines would have needed if the operator took no time: the pulls before the first machine
// begins, side by side, as long as the slowest machine takes; then the control-plane machines one after the other, then
// the first worker alone, as the canary, then the others in their order, the next one as soon as one of the budget is
// done.
func (h history) nodeTime() time.Duration {
	var total time.Duration

	for _, pulled := range h.pulls {
		total = max(total, sum(pulled))
	}

	for _, busy := range h.controlPlanes {
		total += sum(busy)
	}

	slots := make([]time.Duration, h.budget)

	for i, busy := range h.workers {
		if i == 0 {
			total += sum(busy)

			continue
		}

		next := slices.Index(slots, slices.Min(slots))
		slots[next] += sum(busy)
	}

	return total + slices.Max(slots)
}

// idle is the time in which fewer machines were busy than the order and the budget allow: time in which three of five
// may be upgraded and are not counts for three fifths. What follows the last machine counts in full.
func (h history) idle() time.Duration {
	bounds := []time.Duration{0, h.took}

	for _, busy := range slices.Concat(h.pulls, h.controlPlanes, h.workers) {
		for _, s := range busy {
			bounds = append(bounds, s.from, s.to)
		}
	}

	slices.Sort(bounds)

	var idle time.Duration

	for i, from := range bounds[:len(bounds)-1] {
		lasted := bounds[i+1] - from

		allowed, busy := h.at(from)
		if allowed == 0 {
			idle += lasted
		} else {
			idle += lasted * time.Duration(max(allowed-busy, 0)) / time.Duration(allowed)
		}
	}

	return idle
}

// at is how many machines may be busy at a moment, and how many are.
func (h history) at(t time.Duration) (allowed, busy int) {
	if n, busy := count(h.pulls, t); n > 0 {
		return n, busy
	}

	if n, busy := count(h.controlPlanes, t); n > 0 {
		return 1, busy
	}

	left, busy := count(h.workers, t)
	if left == 0 {
		return 0, busy
	}

	if canary, _ := count(h.workers[:1], t); canary > 0 {
		return 1, busy
	}

	return min(left, h.budget), busy
}

// count is how many machines are not done with their last work at a moment, and how many of them are busy.
func count(machines [][]stretch, t time.Duration) (left, busy int) {
	for _, m := range machines {
		if m[len(m)-1].to > t {
			left++
		}

		if slices.ContainsFunc(m, func(s stretch) bool { return s.from <= t && t < s.to }) {
			busy++
		}
	}

	return left, busy
}

func sum(busy []stretch) time.Duration {
	var total time.Duration
	for _, s := range busy {
		total += s.to - s.from
	}

	return total
}
