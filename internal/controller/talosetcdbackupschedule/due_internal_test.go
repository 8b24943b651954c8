package talosetcdbackupschedule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func when(t testing.TB, text string) time.Time {
	t.Helper()

	out, err := time.Parse(time.RFC3339, "2026-11-"+text+":00Z")
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// TestTiming: what is due and when the next one begins, also when the clock was set.
func TestTiming(t *testing.T) {
	const hourly = "0 * * * *"

	for name, tt := range map[string]struct {
		created, handled, now string
		offset, deadline      time.Duration
		slot, next            string
		late                  bool
	}{
		"new":                            {created: "20T10:20", now: "20T10:30", next: "20T11:00"},
		"the first":                      {created: "20T10:20", now: "20T11:00", slot: "20T11:00", next: "20T12:00"},
		"handled":                        {created: "20T10:20", handled: "20T11:00", now: "20T11:00", next: "20T12:00"},
		"many were missed":               {created: "20T10:20", handled: "20T11:00", now: "22T07:10", slot: "22T07:00", next: "22T08:00"},
		"the clock went back":            {created: "20T10:20", handled: "22T11:00", now: "21T09:30", next: "21T10:00"},
		"made by a clock ahead":          {created: "22T10:20", now: "21T09:30", next: "21T10:00"},
		"put off":                        {created: "20T10:20", handled: "20T11:00", now: "20T12:10", offset: 20 * time.Minute, next: "20T12:20"},
		"put off, due":                   {created: "20T10:20", handled: "20T11:00", now: "20T12:20", offset: 20 * time.Minute, slot: "20T12:00", next: "20T13:20"},
		"put off for longer than before": {created: "20T10:20", handled: "20T11:00", now: "20T11:05", offset: 20 * time.Minute, next: "20T12:20"},
		"put off beyond a slot":          {created: "20T10:20", handled: "20T11:00", now: "20T14:10", offset: 2 * time.Hour, slot: "20T12:00", next: "20T15:00"},
		"put off, new":                   {created: "20T10:50", now: "20T11:05", offset: 20 * time.Minute, next: "20T11:20"},
		"put off, made just now":         {created: "20T11:01", now: "20T11:05", offset: 20 * time.Minute, next: "20T12:20"},
		"in time":                        {created: "20T10:20", handled: "20T11:00", now: "20T12:05", deadline: 5 * time.Minute, slot: "20T12:00", next: "20T13:00"},
		"late":                           {created: "20T10:20", handled: "20T11:00", now: "20T12:06", deadline: 5 * time.Minute, slot: "20T12:00", next: "20T13:00", late: true},
	} {
		c := clockwork{cron: hourly, created: when(t, tt.created), offset: tt.offset, deadline: tt.deadline}
		if tt.handled != "" {
			at := metav1.NewTime(when(t, tt.handled))
			c.handled = &at
		}

		c.handled = c.corrected(when(t, tt.now))

		got, err := c.at(when(t, tt.now))
		if err != nil {
			t.Fatal(err)
		}

		want := timing{next: when(t, tt.next), late: tt.late}
		if tt.slot != "" {
			want.slot = when(t, tt.slot)
		}

		if !got.slot.Equal(want.slot) || !got.next.Equal(want.next) || got.late != want.late {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestTimingProperties: a slot is never handled twice while the clock goes forward, none is begun before its time, and
// the next one is always ahead, whatever the clock does.
func TestTimingProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2026, 11, 20, 10, 20, 0, 0, time.UTC)
		c := clockwork{
			cron:    rapid.SampledFrom([]string{"0 * * * *", "*/7 * * * *", "30 3 * * *", "@every 90m"}).Draw(t, "cron"),
			zone:    rapid.SampledFrom([]string{"", "Europe/Oslo"}).Draw(t, "zone"),
			offset:  time.Duration(rapid.IntRange(0, 3*3600).Draw(t, "offset")) * time.Second,
			created: start,
		}
		now, seen, forward := start, map[time.Time]bool{}, true

		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			step := rapid.IntRange(-90, 600).Draw(t, "minutes")
			now = now.Add(time.Duration(step) * time.Minute)
			forward = forward && step >= 0

			c.handled = c.corrected(now)

			got, err := c.at(now)
			if err != nil {
				t.Fatal(err)
			}

			if !got.next.After(now) || got.next.After(now.Add(30*time.Hour)) {
				t.Fatalf("the next one is at %s, and it is %s", got.next, now)
			}

			if then, err := c.at(got.next); err != nil || then.slot.IsZero() {
				t.Fatalf("at %s nothing is due: %v", got.next, err)
			}

			if got.slot.IsZero() {
				continue
			}

			switch {
			case got.slot.Add(c.offset).After(now):
				t.Fatal("begun before its time")
			case forward && seen[got.slot]:
				t.Fatal("handled twice")
			}

			seen[got.slot] = true
			at := metav1.NewTime(got.slot)
			c.handled = &at
		}
	})
}

// TestJitter: it is the same each time, within its bounds, and differs between objects.
func TestJitter(t *testing.T) {
	seen := map[time.Duration]bool{}

	for i := range 100 {
		uid := types.UID(rune('a' + i))
		j := jitter(uid, time.Hour)
		seen[j] = true

		if j != jitter(uid, time.Hour) || j < 0 || j > time.Hour {
			t.Errorf("%v", j)
		}
	}

	if len(seen) < 90 || jitter("x", 0) != 0 {
		t.Errorf("%d different ones", len(seen))
	}
}
