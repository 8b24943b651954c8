package work_test

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/controller/work"
)

// TestLine: the first text is shown at once, and each later one when the one before was shown for its time. Of those
// that come meanwhile the last one is.
func TestLine(t *testing.T) {
	t.Parallel()

	l, begin := work.NewLine("", 15*time.Second), time.Unix(1_000, 0)

	for _, step := range []struct {
		after      time.Duration
		says, show string
	}{
		{0, "", ""},
		{time.Second, "a", "a"},
		{2 * time.Second, "b", "a"},
		{15 * time.Second, "c", "a"},
		{16 * time.Second, "", "c"},
		{30 * time.Second, "d", "c"},
		{31 * time.Second, "", "d"},
		{time.Hour, "d", "d"},
		{time.Hour + time.Second, "e", "e"},
		{time.Hour + 2*time.Second, "e", "e"},
	} {
		if step.says != "" {
			l.Say(step.says)
		}

		if got := l.Show(begin.Add(step.after)); got != step.show {
			t.Errorf("after %s it shows %q, want %q", step.after, got, step.show)
		}
	}

	if got := work.NewLine("begun", time.Minute).Show(begin); got != "begun" {
		t.Errorf("work that has just begun shows %q", got)
	}
}
