package schedule_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/schedule"
)

func TestOpen(t *testing.T) {
	t.Parallel()

	const berlin, newYork = "Europe/Berlin", "America/New_York"

	night := schedule.Window{Schedule: "0 22 * * *", Duration: 4 * time.Hour, TimeZone: berlin}
	weekend := schedule.Window{Schedule: "0 1 * * sun", Duration: 3 * time.Hour, TimeZone: berlin}
	always := schedule.Window{Schedule: "@hourly", Duration: 90 * time.Minute}

	for name, tt := range map[string]struct {
		windows     []schedule.Window
		now         string
		until, next string
	}{
		"none":            {nil, "2026-11-21T12:00:00Z", "", ""},
		"closed":          {[]schedule.Window{night}, "2026-11-21T20:59:59Z", "", "2026-11-21T21:00:00Z"},
		"opens":           {[]schedule.Window{night}, "2026-11-21T21:00:00Z", "2026-11-22T01:00:00Z", ""},
		"past midnight":   {[]schedule.Window{night}, "2026-11-22T00:30:00Z", "2026-11-22T01:00:00Z", ""},
		"last moment":     {[]schedule.Window{night}, "2026-11-22T00:59:59.999Z", "2026-11-22T01:00:00Z", ""},
		"closes":          {[]schedule.Window{night}, "2026-11-22T01:00:00Z", "", "2026-11-22T21:00:00Z"},
		"past the month":  {[]schedule.Window{night}, "2026-11-30T23:30:00Z", "2026-12-01T01:00:00Z", ""},
		"past the year":   {[]schedule.Window{night}, "2026-12-31T23:30:00Z", "2027-01-01T01:00:00Z", ""},
		"the sooner one":  {[]schedule.Window{weekend, night}, "2026-11-20T12:00:00Z", "", "2026-11-20T21:00:00Z"},
		"overlapping":     {[]schedule.Window{night, weekend}, "2026-11-21T22:00:00Z", "2026-11-22T03:00:00Z", ""},
		"the other order": {[]schedule.Window{weekend, night}, "2026-11-21T22:00:00Z", "2026-11-22T03:00:00Z", ""},
		"touching": {
			[]schedule.Window{
				{Schedule: "0 4 * * *", Duration: time.Hour},
				{Schedule: "0 5 * * *", Duration: time.Hour},
				{Schedule: "30 5 * * *", Duration: 10 * time.Minute},
			}, "2026-11-21T04:30:00Z", "2026-11-21T06:00:00Z", "",
		},
		"touching, then a gap": {
			[]schedule.Window{{Schedule: "0 4,5,7 * * *", Duration: time.Hour}},
			"2026-11-21T04:30:00Z", "2026-11-21T06:00:00Z", "",
		},
		"longer than the month": {
			[]schedule.Window{{Schedule: "0 0 1 11 *", Duration: 40 * 24 * time.Hour}},
			"2026-11-21T00:00:00Z", "2026-12-11T00:00:00Z", "",
		},
		"never closes": {[]schedule.Window{always}, "2026-11-21T12:10:00Z", "2026-11-28T12:30:00Z", ""},

		// The windows of the nights in which the clock changes are as long as those of others.
		"spring": {[]schedule.Window{night}, "2026-03-28T23:00:00Z", "2026-03-29T01:00:00Z", ""},
		"autumn": {[]schedule.Window{night}, "2026-10-25T00:30:00Z", "", "2026-10-25T21:00:00Z"},
		"in the gap": {
			[]schedule.Window{{Schedule: "30 2 * * sun", Duration: time.Hour, TimeZone: berlin}},
			"2026-03-29T01:59:00Z", "2026-03-29T02:00:00Z", "",
		},
		"not twice": {
			[]schedule.Window{{Schedule: "30 2 * * sun", Duration: time.Hour, TimeZone: berlin}},
			"2026-10-25T01:30:00Z", "", "2026-11-01T01:30:00Z",
		},
		"New York, not twice": {
			[]schedule.Window{{Schedule: "30 1 * * sun", Duration: time.Hour, TimeZone: newYork}},
			"2026-11-01T06:31:00Z", "", "2026-11-08T06:30:00Z",
		},
		"two zones": {
			[]schedule.Window{
				{Schedule: "0 9 * * *", Duration: time.Hour, TimeZone: newYork},
				{Schedule: "0 15 * * *", Duration: 2 * time.Hour, TimeZone: berlin},
			}, "2026-11-21T14:30:00Z", "2026-11-21T16:00:00Z", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			open, until, next, err := schedule.Open(tt.windows, at(t, tt.now))
			if err != nil {
				t.Fatal(err)
			}

			if open != (tt.until != "") || show(until) != tt.until || show(next) != tt.next {
				t.Errorf("got %t until %q next %q, want until %q next %q", open, show(until), show(next), tt.until, tt.next)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		window schedule.Window
		says   string
	}{
		"good":               {schedule.Window{Schedule: "0 2 * * 1-5", Duration: time.Hour, TimeZone: "Europe/Berlin"}, ""},
		"descriptor":         {schedule.Window{Schedule: "@monthly", Duration: time.Hour}, ""},
		"every":              {schedule.Window{Schedule: "@every 24h", Duration: time.Hour}, ""},
		"longer than a gap":  {schedule.Window{Schedule: "@hourly", Duration: 48 * time.Hour}, ""},
		"leap day":           {schedule.Window{Schedule: "0 0 29 2 *", Duration: time.Hour}, ""},
		"no duration":        {schedule.Window{Schedule: "@daily"}, "longer than zero"},
		"negative":           {schedule.Window{Schedule: "@daily", Duration: -time.Hour}, "longer than zero, not -1h"},
		"empty":              {schedule.Window{Duration: time.Hour}, "schedule is empty"},
		"blank":              {schedule.Window{Schedule: " \t", Duration: time.Hour}, "schedule is empty"},
		"long":               {schedule.Window{Schedule: strings.Repeat("0,", 200), Duration: time.Hour}, "longer than 256"},
		"few fields":         {schedule.Window{Schedule: "0 2 *", Duration: time.Hour}, "expected exactly 5 fields, found 3"},
		"seconds":            {schedule.Window{Schedule: "0 0 2 * * *", Duration: time.Hour}, "expected exactly 5 fields, found 6"},
		"a word":             {schedule.Window{Schedule: "0 2 * * someday", Duration: time.Hour}, "failed to parse int from someday"},
		"out of range":       {schedule.Window{Schedule: "0 24 * * *", Duration: time.Hour}, "above maximum (23)"},
		"unknown descriptor": {schedule.Window{Schedule: "@reboot", Duration: time.Hour}, "unrecognized descriptor"},
		"bad every":          {schedule.Window{Schedule: "@every day", Duration: time.Hour}, "@every day"},
		"negative every":     {schedule.Window{Schedule: "@every -5m", Duration: time.Hour}, "a minute or longer"},
		"fast every":         {schedule.Window{Schedule: "@every 59s", Duration: time.Hour}, "a minute or longer"},
		"30 February":        {schedule.Window{Schedule: "0 0 30 2 *", Duration: time.Hour}, "never fires"},
		"31 April":           {schedule.Window{Schedule: "0 0 31 4,6,9,11 *", Duration: time.Hour}, "never fires"},
		"nothing named":      {schedule.Window{Schedule: "0 , * * *", Duration: time.Hour}, "never fires"},
		"zone in schedule":   {schedule.Window{Schedule: "CRON_TZ=UTC 0 2 * * *", Duration: time.Hour}, "field for time zones"},
		"only a zone":        {schedule.Window{Schedule: "TZ=UTC", Duration: time.Hour}, "field for time zones"},
		"unknown zone":       {schedule.Window{Schedule: "@daily", Duration: time.Hour, TimeZone: "Mars/Olympus"}, "Mars/Olympus"},
		"this computer":      {schedule.Window{Schedule: "@daily", Duration: time.Hour, TimeZone: "Local"}, "unknown"},
		"a long zone":        {schedule.Window{Schedule: "@daily", Duration: time.Hour, TimeZone: strings.Repeat("a/", 200)}, "longer than 256"},
		"a path":             {schedule.Window{Schedule: "@daily", Duration: time.Hour, TimeZone: "../etc/passwd"}, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := tt.window.Validate()
			if tt.says == "" {
				if err != nil {
					t.Fatal(err)
				}

				return
			}

			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want %q", err, tt.says)
			}

			if len(err.Error()) > 300 || strings.Contains(err.Error(), "strconv") {
				t.Errorf("not fit for a person: %v", err)
			}

			t.Log(err)

			_, _, _, err = schedule.Open([]schedule.Window{{Schedule: "@daily", Duration: time.Hour}, tt.window}, time.Unix(0, 0))
			if err == nil || !strings.HasPrefix(err.Error(), "window 1: ") {
				t.Errorf("the window is not named: %v", err)
			}
		})
	}
}

// TestOpenAgreesWithOpenings compares with a list of all openings.
func TestOpenAgreesWithOpenings(t *testing.T) {
	t.Parallel()

	schedules := rapid.SampledFrom([]string{
		"0 2 * * *", "*/20 3-5 * * *", "30 23 * * *", "@hourly", "@every 7h", "0 0 1 * *", "15 2 * * sun", "59 23 28-31 * *",
	})
	zones := rapid.SampledFrom([]string{"", "Europe/Berlin", "America/New_York"})
	base := at(t, "2026-10-24T00:00:00Z")

	rapid.Check(t, func(r *rapid.T) {
		now := base.Add(time.Duration(rapid.IntRange(0, 10*86400).Draw(r, "now")) * time.Second)
		windows := make([]schedule.Window, rapid.IntRange(1, 3).Draw(r, "windows"))
		until := now

		for i := range windows {
			windows[i] = schedule.Window{
				Schedule: schedules.Draw(r, "schedule"), TimeZone: zones.Draw(r, "zone"),
				Duration: time.Duration(rapid.IntRange(1, 300).Draw(r, "duration")) * time.Minute,
			}
		}

		// The moments at which something opens or closes, on the way to the end.
		for changed := true; changed && until.Before(now.Add(24*time.Hour)); {
			changed = false

			for _, w := range windows {
				for opens := until.Add(-w.Duration); ; {
					next, err := schedule.Next(w.Schedule, w.TimeZone, opens)
					if err != nil {
						r.Fatal(err)
					}

					if opens = next; opens.After(until) || until.After(now.Add(24*time.Hour)) {
						break
					}

					if closes := opens.Add(w.Duration); closes.After(until) {
						until, changed = closes, true
					}
				}
			}
		}

		open, got, next, err := schedule.Open(windows, now)
		if err != nil {
			r.Fatal(err)
		}

		switch {
		case open != until.After(now):
			r.Errorf("%v at %s: open is %t", windows, show(now), open)
		case open && until.Before(now.Add(24*time.Hour)) && !got.Equal(until):
			r.Errorf("%v at %s: until %s, want %s", windows, show(now), show(got), show(until))
		case open && got.Before(until):
			r.Errorf("%v at %s: until %s, but still open at %s", windows, show(now), show(got), show(until))
		case open:
			return
		}

		// It opens then, and not a second earlier.
		if open, _, _, _ := schedule.Open(windows, next); !open {
			r.Errorf("%v is not open at %s", windows, show(next))
		}

		if open, _, again, _ := schedule.Open(windows, next.Add(-time.Second)); open || !again.Equal(next) {
			r.Errorf("%v is open before %s", windows, show(next))
		}
	})
}

func FuzzValidate(f *testing.F) {
	for _, seed := range []string{
		"0 2 * * *", "@daily", "@every 1h", "TZ=", "CRON_TZ=UTC", ",", "*/0 * * * *", "1-0 * * * *", "? ? ? ? ?", "@every",
		"0 0 29 2 *", "59/1 * * * *", "0 0 31 feb mon", "* * * * * *", "99999999999999999999 * * * *", "\xff\x00", "-1 * * * *",
	} {
		f.Add(seed, int64(time.Hour), "Europe/Berlin")
	}

	f.Add("@daily", int64(-1), "")
	f.Add("@every 2562047h", int64(1<<63-1), "Asia/Kathmandu")

	now := at(f, "2026-10-25T00:59:59Z")

	f.Fuzz(func(t *testing.T, text string, duration int64, zone string) {
		w := schedule.Window{Schedule: text, Duration: time.Duration(duration), TimeZone: zone}
		valid := w.Validate()

		open, until, next, err := schedule.Open([]schedule.Window{w}, now)
		if (err == nil) != (valid == nil) {
			t.Fatalf("Validate says %v, Open says %v", valid, err)
		}

		if valid != nil {
			return
		}

		if open && !until.After(now) || !open && !next.After(now) || open == until.IsZero() || open != next.IsZero() {
			t.Errorf("%t, until %s, next %s", open, until, next)
		}
	})
}
