package schedule

import (
	"fmt"
	"sort"
	"time"
)

// Window is a span of time that opens again and again.
type Window struct {
	// Schedule says when it opens.
	Schedule string
	// Duration says how long it stays open. It passes as a stopwatch counts, also when the clock changes.
	Duration time.Duration
	// TimeZone of the schedule, from the IANA database, for example Europe/Berlin. Empty is UTC.
	TimeZone string
}

// joinedFor is how far ahead windows that open before the last one closed are followed.
const joinedFor = 7 * 24 * time.Hour

// Validate explains what is wrong with a window, in a sentence for a person.
func (w Window) Validate() error {
	_, err := w.parse()

	return err
}

func (w Window) parse() (span, error) {
	if w.Duration <= 0 {
		return span{}, fmt.Errorf("the duration must be longer than zero, not %s", w.Duration)
	}

	t, err := parse(w.Schedule, w.TimeZone)

	return span{timetable: t, duration: w.Duration}, err
}

// Open tells whether at least one of the windows is open, and until when: windows that overlap or touch count as one,
// and where they never leave a gap, until is a week ahead or more. Both ends are exact: a window is open at the moment
// it opens and closed at the moment it closes. If none is open, next is when the first one opens; it is zero if there
// are no windows. What is not meant is zero. Times are in UTC.
func Open(windows []Window, now time.Time) (open bool, until, next time.Time, err error) {
	spans := make([]span, 0, len(windows))

	for i, w := range windows {
		s, err := w.parse()
		if err != nil {
			return false, time.Time{}, time.Time{}, fmt.Errorf("window %d: %w", i, err)
		}

		spans = append(spans, s)
	}

	now = now.UTC()

	until = now
	for limit := now.Add(joinedFor); until.Before(limit); {
		end := until
		for _, s := range spans {
			end = latest(end, s.end(until))
		}

		if end.Equal(until) {
			break
		}

		until = end
	}

	if until.After(now) {
		return true, until, time.Time{}, nil
	}

	for _, s := range spans {
		if at := s.next(now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}

	return false, time.Time{}, next, nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}

	return a
}

type span struct {
	timetable

	duration time.Duration
}

// end is when the window closes that is open at the given time, or opens then. It is zero when none is. If the window
// opened more than once before it closed, the last time counts.
func (s span) end(at time.Time) time.Time {
	// All openings that matter are later than this, and next grows with its argument.
	from := at.Add(-s.duration)

	seconds := int(s.duration/time.Second) + 1
	later := sort.Search(seconds, func(n int) bool {
		opens := s.next(from.Add(time.Duration(n) * time.Second))

		return opens.IsZero() || opens.After(at)
	})

	if later == 0 {
		return time.Time{}
	}

	return s.next(from.Add(time.Duration(later-1) * time.Second)).Add(s.duration)
}
