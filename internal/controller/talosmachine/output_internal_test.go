package talosmachine

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
)

// TestOutput: the first line is shown at once, and each later one when the one before was shown for its time. Of those
// that come meanwhile the last one is.
func TestOutput(t *testing.T) {
	o, begin := &output{}, time.Unix(1_000, 0)

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
			o.say(step.says)
		}

		if got := o.show(begin.Add(step.after)); got != step.show {
			t.Errorf("after %s it shows %q, want %q", step.after, got, step.show)
		}
	}
}

// TestOutputIsDetail: what an installer prints is no news.
func TestOutputIsDetail(t *testing.T) {
	m := &v1alpha1.TalosMachine{}
	m.Status.Change = &v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Phase: v1alpha1.ChangeApplying}

	s := newScope(m, time.Unix(100, 0))
	m.Status.Change.Progress = "copying kernel and initramfs"

	if got := s.weight(false); got != condition.Detail {
		t.Errorf("a line: %v", got)
	}

	m.Status.Change.Phase = v1alpha1.ChangeFailed

	if got := s.weight(false); got != condition.News {
		t.Errorf("a failure: %v", got)
	}
}
