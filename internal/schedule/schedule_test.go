package schedule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/schedule"
)

func at(tb testing.TB, text string) time.Time {
	tb.Helper()

	out, err := time.Parse(time.RFC3339, text)
	if err != nil {
		tb.Fatal(err)
	}

	return out
}

// show is empty for no time at all.
func show(t time.Time) string {
	if t.IsZero() {
		return ""
	}

	return t.UTC().Format(time.RFC3339)
}

func TestNext(t *testing.T) {
	t.Parallel()

	const berlin, newYork = "Europe/Berlin", "America/New_York"

	for name, tt := range map[string]struct{ schedule, zone, after, want string }{
		"UTC is the default": {"0 2 * * *", "", "2026-11-21T02:00:00Z", "2026-11-22T02:00:00Z"},
		"a zone":             {"0 2 * * *", berlin, "2026-11-21T00:59:59Z", "2026-11-21T01:00:00Z"},
		"strictly later":     {"0 2 * * *", berlin, "2026-11-21T01:00:00Z", "2026-11-22T01:00:00Z"},
		"weekday":            {"30 22 * * sat", "", "2026-11-22T00:00:00Z", "2026-11-28T22:30:00Z"},
		"leap day":           {"0 0 29 2 *", "", "2026-11-21T00:00:00Z", "2028-02-29T00:00:00Z"},
		"31st":               {"0 0 31 * *", "", "2026-10-31T00:00:00Z", "2026-12-31T00:00:00Z"},
		"daily":              {"@daily", newYork, "2026-11-21T00:00:00Z", "2026-11-21T05:00:00Z"},
		"weekly":             {"@weekly", "", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		"every, anchored":    {"@every 6h", "", "2026-11-21T07:11:00Z", "2026-11-21T12:00:00Z"},
		"every, strictly":    {"@every 6h", newYork, "2026-11-21T12:00:00Z", "2026-11-21T18:00:00Z"},
		"every, before 1970": {"@every 6h", "", "1969-12-31T11:00:00Z", "1969-12-31T12:00:00Z"},
		"fraction":           {"* * * * *", "", "2026-11-21T07:11:59.5Z", "2026-11-21T07:12:00Z"},

		// Berlin: 2026-03-29 02:00 +01:00 becomes 03:00 +02:00; 2026-10-25 03:00 +02:00 becomes 02:00 +01:00.
		"spring, before":         {"30 1 * * *", berlin, "2026-03-28T12:00:00Z", "2026-03-29T00:30:00Z"},
		"spring, in the gap":     {"30 2 * * *", berlin, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		"spring, after the gap":  {"30 2 * * *", berlin, "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		"spring, only Sundays":   {"30 2 * * sun", berlin, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		"spring, once":           {"*/15 2 * * *", berlin, "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		"spring, with the next":  {"0 2,3 * * *", berlin, "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		"spring, hourly":         {"30 * * * *", berlin, "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"},
		"spring, hourly at once": {"0 * * * *", berlin, "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},
		"autumn, the first":      {"30 2 * * *", berlin, "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"},
		"autumn, not again":      {"30 2 * * *", berlin, "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		"autumn, not later":      {"30 2 * * *", berlin, "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z"},
		"autumn, after":          {"30 3 * * *", berlin, "2026-10-25T00:30:00Z", "2026-10-25T02:30:00Z"},
		"autumn, hourly again":   {"30 * * * *", berlin, "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		"autumn, hourly change":  {"0 * * * *", berlin, "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"},

		// New York: 2026-03-08 02:00 -05:00 becomes 03:00 -04:00; 2026-11-01 02:00 -04:00 becomes 01:00 -05:00.
		"New York, spring":           {"0 2 * * *", newYork, "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z"},
		"New York, day after spring": {"0 2 * * *", newYork, "2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"},
		"New York, autumn":           {"0 1 * * *", newYork, "2026-10-31T12:00:00Z", "2026-11-01T05:00:00Z"},
		"New York, not again":        {"0 1 * * *", newYork, "2026-11-01T05:00:00Z", "2026-11-02T06:00:00Z"},

		// Where the clock jumps at midnight, a day begins at 01:00.
		"Havana, no midnight": {"0 0 * * *", "America/Havana", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00Z"},
		"Havana, hourly":      {"0 * 8 3 *", "America/Havana", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := schedule.Next(tt.schedule, tt.zone, at(t, tt.after))
			if err != nil || show(got) != tt.want {
				t.Errorf("got %s, %v, want %s", show(got), err, tt.want)
			}
		})
	}
}

func TestNextRefuses(t *testing.T) {
	t.Parallel()

	if _, err := schedule.Next("0 0 30 2 *", "", at(t, "2026-11-21T00:00:00Z")); err == nil ||
		!strings.Contains(err.Error(), "never") {
		t.Errorf("got %v", err)
	}
}

// fields are a cron expression that a test can judge by itself: empty is any.
type fields struct{ minutes, hours, days, months, weekdays []int }

func (f fields) String() string {
	text := func(values []int) string {
		if len(values) == 0 {
			return "*"
		}

		return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(values)), ","), "[]")
	}

	return strings.Join([]string{text(f.minutes), text(f.hours), text(f.days), text(f.months), text(f.weekdays)}, " ")
}

func (f fields) match(wall time.Time) bool {
	in := func(values []int, value int) bool { return len(values) == 0 || slices.Contains(values, value) }

	day, weekday := in(f.days, wall.Day()), in(f.weekdays, int(wall.Weekday()))
	date := day && weekday
	// As cron has it: of two restrictions one is enough.
	if len(f.days) > 0 && len(f.weekdays) > 0 {
		date = day || weekday
	}

	return in(f.minutes, wall.Minute()) && in(f.hours, wall.Hour()) && date && in(f.months, int(wall.Month()))
}

// next checks every minute, with the clock on the wall as people read it.
func (f fields) next(loc *time.Location, after, limit time.Time) time.Time {
	wallAt := func(t time.Time) time.Time {
		l := t.In(loc)

		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
	}

	seen := wallAt(after.Add(-6 * time.Hour))
	for t := after.Add(-6 * time.Hour); t.Before(limit); t = t.Add(time.Minute) {
		now, fires := wallAt(t), false

		if len(f.hours) == 0 {
			fires = f.match(now)
		}

		for ; now.After(seen); seen = seen.Add(time.Minute) {
			if len(f.hours) > 0 && f.match(seen.Add(time.Minute)) {
				fires = true
			}
		}

		if fires && t.After(after) {
			return t
		}
	}

	return time.Time{}
}

// TestNextAgreesWithTheClock compares with a search minute by minute, most of all around changes of the clock.
func TestNextAgreesWithTheClock(t *testing.T) {
	t.Parallel()

	changes := map[string][]string{
		"Europe/Berlin":       {"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-06-30T22:00:00Z"},
		"America/New_York":    {"2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"},
		"America/Havana":      {"2026-03-08T05:00:00Z", "2026-11-01T05:00:00Z"},
		"Australia/Lord_Howe": {"2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z"},
		"UTC":                 {"2026-12-31T23:00:00Z"},
	}

	rapid.Check(t, func(r *rapid.T) {
		zone := rapid.SampledFrom([]string{
			"Europe/Berlin", "America/New_York", "America/Havana", "Australia/Lord_Howe", "UTC",
		}).Draw(r, "zone")
		change := at(t, rapid.SampledFrom(changes[zone]).Draw(r, "change"))
		after := change.Add(time.Duration(rapid.IntRange(-40*60, 10*60).Draw(r, "minutes")) * time.Minute)

		few := func(name string, low, high int) []int {
			out := rapid.SliceOfNDistinct(rapid.IntRange(low, high), 0, 3, rapid.ID[int]).Draw(r, name)
			slices.Sort(out)

			return out
		}

		f := fields{minutes: few("minute", 0, 59), hours: few("hour", 0, 4), days: few("day", 1, 31), weekdays: few("weekday", 0, 6)}
		limit := change.Add(80 * time.Hour)

		loc, err := time.LoadLocation(zone)
		if err != nil {
			r.Fatal(err)
		}

		got, err := schedule.Next(f.String(), zone, after)
		if err != nil {
			r.Fatalf("%s: %v", f, err)
		}

		want := f.next(loc, after, limit)
		if want.IsZero() && got.Before(limit) || !want.IsZero() && !got.Equal(want) {
			r.Errorf("%q in %s after %s: got %s, want %s", f, zone, show(after), show(got), show(want))
		}
	})
}
