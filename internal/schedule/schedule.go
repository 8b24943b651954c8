// Package schedule computes when schedules fire and when maintenance windows are open.
//
// It is pure: time comes in as an argument. A schedule is a cron expression of five fields (minute, hour, day of month,
// month, weekday), one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually, or @every with a
// duration. @every counts from the Unix epoch and not from the moment of the call: each caller gets the same answer.
//
// Where daylight saving time changes the clock, a schedule with named hours fires once for each time it names: at the
// end of the gap when the clock jumps over it, and at the first of two when the clock shows it twice. A schedule that
// fires every hour follows the time that passes instead.
package schedule

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // images without a time zone database exist, and a window must not depend on them

	"github.com/robfig/cron/v3"
)

const (
	// minEvery is the resolution of cron.
	minEvery = time.Minute
	// maxLength of a schedule and of the name of a zone; every sensible one is far shorter.
	maxLength = 256
)

// Next is the first time after the given one at which the schedule fires, in UTC. An empty zone is UTC.
func Next(schedule, zone string, after time.Time) (time.Time, error) {
	t, err := parse(schedule, zone)
	if err != nil {
		return time.Time{}, err
	}

	at := t.next(after)
	if at.IsZero() {
		return at, neverError(schedule)
	}

	return at, nil
}

// Last is the last time at which the schedule fires that is later than after and not later than until, in UTC. It is
// zero when there is none.
func Last(schedule, zone string, after, until time.Time) (time.Time, error) {
	t, err := parse(schedule, zone)
	if err != nil || !until.After(after) {
		return time.Time{}, err
	}

	// Back in growing strides until there is one: years without a reconciliation take no longer than a day.
	for stride := time.Minute; ; stride *= 2 {
		from := until.Add(-stride)
		if from.Before(after) {
			from = after
		}

		if at := t.next(from); !at.IsZero() && !at.After(until) {
			return t.lastFrom(at, until), nil
		}

		if from.Equal(after) {
			return time.Time{}, nil
		}
	}
}

// lastFrom goes on from a time at which the schedule fires.
func (t timetable) lastFrom(at, until time.Time) time.Time {
	for {
		next := t.next(at)
		if next.IsZero() || next.After(until) {
			return at
		}

		at = next
	}
}

// timetable is a parsed schedule. Either spec or every is set.
type timetable struct {
	spec  *cron.SpecSchedule
	every time.Duration
	loc   *time.Location
}

func parse(schedule, zone string) (timetable, error) {
	loc, err := locationOf(zone)
	if err != nil {
		return timetable{}, err
	}

	parsed, err := parseCron(schedule)
	if err != nil {
		return timetable{}, err
	}

	t := timetable{loc: loc}

	switch parsed := parsed.(type) {
	case *cron.SpecSchedule:
		// The clock on the wall, written as UTC: next turns it into a time.
		parsed.Location = time.UTC
		t.spec = parsed
	case cron.ConstantDelaySchedule:
		t.every = parsed.Delay
	}

	return t, checkFires(t, schedule)
}

func parseCron(schedule string) (cron.Schedule, error) {
	switch {
	case strings.TrimSpace(schedule) == "":
		return nil, errors.New("the schedule is empty")
	case len(schedule) > maxLength:
		return nil, fmt.Errorf("the schedule is longer than %d characters", maxLength)
	case strings.Contains(schedule, "TZ="):
		// The cron library would take the zone from here, and panics if nothing follows it.
		return nil, fmt.Errorf("schedule %q names a time zone; use the field for time zones", schedule)
	}

	parsed, err := cron.ParseStandard(strings.TrimSpace(schedule))
	if err != nil {
		// What follows repeats it in the words of a Go function.
		problem, _, _ := strings.Cut(err.Error(), ": strconv.")

		return nil, fmt.Errorf("schedule %q is no cron expression (minute, hour, day of month, month, weekday), no "+
			"@daily or the like, and no @every with a duration: %s", schedule, problem)
	}

	return parsed, nil
}

// checkFires refuses schedules that never fire, like the 30th of February, or too often.
func checkFires(t timetable, schedule string) error {
	if t.spec == nil {
		if t.every < minEvery {
			return fmt.Errorf("schedule %q: the duration must be a minute or longer", schedule)
		}

		return nil
	}

	// A field like "," names nothing. The library would search five years, minute by minute.
	for _, bits := range []uint64{t.spec.Minute, t.spec.Hour, t.spec.Dom, t.spec.Month, t.spec.Dow} {
		if bits == 0 {
			return neverError(schedule)
		}
	}

	// Any four years with a leap day will do.
	if t.spec.Next(time.Date(2001, time.January, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return neverError(schedule)
	}

	return nil
}

func neverError(schedule string) error {
	return fmt.Errorf("schedule %q never fires: no date fits it", schedule)
}

// locations keeps what reading the database gave; only names of real zones get in.
var locations sync.Map

func locationOf(zone string) (*time.Location, error) {
	if known, ok := locations.Load(zone); ok {
		return known.(*time.Location), nil
	}

	if len(zone) > maxLength {
		return nil, fmt.Errorf("the name of the time zone is longer than %d characters", maxLength)
	}

	// Local is a zone to Go, but a different one on every computer.
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, fmt.Errorf("time zone %q is unknown; write one like Europe/Berlin or UTC", zone)
	}

	locations.Store(zone, loc)

	return loc, nil
}

// next is zero when the schedule never fires again.
func (t timetable) next(after time.Time) time.Time {
	switch {
	case t.spec == nil:
		seconds := int64(t.every / time.Second)

		return time.Unix((floorDiv(after.Unix(), seconds)+1)*seconds, 0).UTC()
	case t.firesEveryHour():
		return t.nextPassing(after)
	default:
		return t.nextOnWall(after)
	}
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}

	return a / b
}

func (t timetable) firesEveryHour() bool {
	const allHours = 1<<24 - 1

	return t.spec.Hour&allHours == allHours
}

// nextPassing searches in one stretch of time without a clock change after the other.
func (t timetable) nextPassing(after time.Time) time.Time {
	for {
		local := after.In(t.loc)
		_, offset := local.Zone()
		_, end := local.ZoneBounds()

		fixed := *t.spec
		fixed.Location = time.FixedZone("", offset)

		at := fixed.Next(after)
		if end.IsZero() || !at.IsZero() && at.Before(end) {
			return at.UTC()
		}

		// Nothing before the clock changes. The next search has to find the moment of the change, too.
		if at = t.firstAt(end); !at.IsZero() {
			return at
		}

		after = end
	}
}

// firstAt is the moment of a clock change if the schedule fires then.
func (t timetable) firstAt(change time.Time) time.Time {
	wall := wallOf(change.In(t.loc))
	if t.spec.Next(wall.Add(-time.Second)).Equal(wall) {
		return change.UTC()
	}

	return time.Time{}
}

// nextOnWall searches in the times that the clock on the wall shows.
func (t timetable) nextOnWall(after time.Time) time.Time {
	wall := wallOf(after.In(t.loc))

	for {
		wall = t.spec.Next(wall)
		if wall.IsZero() {
			return wall
		}

		// Not so while the clock shows an hour for the second time, or jumped over what the schedule names.
		if at := firstReached(wall, t.loc); at.After(after) {
			return at.UTC()
		}
	}
}

// wallOf is what the clock shows, written as UTC.
func wallOf(local time.Time) time.Time {
	_, offset := local.Zone()

	return local.UTC().Add(time.Duration(offset) * time.Second)
}

// firstReached is the first moment at which the clock shows the time, or a later one because it jumped.
func firstReached(wall time.Time, loc *time.Location) time.Time {
	// In a zone that changes its clock around then, Date takes the offset before or after the change: which one is not
	// promised.
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, loc)
	start, end := at.ZoneBounds()

	switch shown := wallOf(at); {
	case shown.After(wall):
		return start
	case shown.Before(wall):
		return end
	case start.IsZero():
		return at
	}

	_, before := start.Add(-time.Second).Zone()

	if earlier := wall.Add(-time.Duration(before) * time.Second); earlier.Before(start) {
		return earlier
	}

	return at
}
