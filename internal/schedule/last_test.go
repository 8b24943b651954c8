package schedule_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/schedule"
)

func TestLast(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct{ schedule, zone, after, until, want string }{
		"none":              {"0 3 * * *", "", "2026-11-22T03:00:00Z", "2026-11-23T02:59:59Z", ""},
		"the end counts":    {"0 3 * * *", "", "2026-11-22T03:00:00Z", "2026-11-23T03:00:00Z", "2026-11-23T03:00:00Z"},
		"many were missed":  {"0 3 * * *", "", "2020-01-01T00:00:00Z", "2026-11-23T02:00:00Z", "2026-11-22T03:00:00Z"},
		"every minute":      {"* * * * *", "", "2020-01-01T00:00:00Z", "2026-11-23T02:00:30Z", "2026-11-23T02:00:00Z"},
		"a leap day":        {"0 0 29 2 *", "", "2020-03-01T00:00:00Z", "2027-01-01T00:00:00Z", "2024-02-29T00:00:00Z"},
		"a zone":            {"0 3 * * *", "Europe/Oslo", "2026-01-01T00:00:00Z", "2026-07-01T12:00:00Z", "2026-07-01T01:00:00Z"},
		"a burst":           {"* 3 * * *", "", "2026-01-01T00:00:00Z", "2026-07-02T02:00:00Z", "2026-07-01T03:59:00Z"},
		"the clock went by": {"0 3 * * *", "", "2026-11-23T00:00:00Z", "2026-11-22T00:00:00Z", ""},
	} {
		got, err := schedule.Last(tt.schedule, tt.zone, at(t, tt.after), at(t, tt.until))
		if err != nil || show(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", name, show(got), err, tt.want)
		}
	}

	for _, never := range []string{"0 0 30 2 *", "x", ""} {
		if _, err := schedule.Last(never, "", at(t, "2026-11-22T03:00:00Z"), at(t, "2026-11-23T03:00:00Z")); err == nil {
			t.Errorf("%q: no error", never)
		}
	}
}

// TestLastIsOfNext: it is the end of the chain that Next makes.
func TestLastIsOfNext(t *testing.T) {
	t.Parallel()

	schedules := []string{"*/7 * * * *", "0 3 * * *", "30 2 * * sun", "@every 90m", "5,10 1-4 * * *", "0 0 1 * *"}
	zones := []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}

	rapid.Check(t, func(t *rapid.T) {
		expression, zone := rapid.SampledFrom(schedules).Draw(t, "schedule"), rapid.SampledFrom(zones).Draw(t, "zone")
		after := time.Unix(rapid.Int64Range(1_760_000_000, 1_800_000_000).Draw(t, "after"), 0).UTC()
		until := after.Add(time.Duration(rapid.Int64Range(0, 200_000).Draw(t, "seconds")) * time.Second)

		want := time.Time{}

		for next := after; ; {
			var err error
			if next, err = schedule.Next(expression, zone, next); err != nil {
				t.Fatal(err)
			}

			if next.After(until) {
				break
			}

			want = next
		}

		got, err := schedule.Last(expression, zone, after, until)
		if err != nil || !got.Equal(want) {
			t.Fatalf("%s, %v; want %s", show(got), err, show(want))
		}
	})
}
