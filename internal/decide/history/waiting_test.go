package history_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestWaitingSince: a record says since when its run waits for what the message says. Nothing is written while it does.
func TestWaitingSince(t *testing.T) {
	w := newWorld()
	begin := w.now

	plan := func(message string) func() {
		return func() {
			w.cp.Status.Plan = nil
			if message != "" {
				w.cp.Status.Plan = &v1alpha1.PlanStatus{Phase: v1alpha1.PlanWaiting, Message: message}
			}
		}
	}

	w.plan(newTalos, "", "")

	// Each is observed a minute after the one before.
	for i, step := range []struct {
		do    func()
		since time.Duration // negative for never
	}{
		{plan(""), -1},
		{plan("a window"), time.Minute},
		{plan("a window"), time.Minute},
		{plan("etcd"), 3 * time.Minute},
		{plan(""), -1},
		{plan("etcd"), 5 * time.Minute},
		{func() { w.changes("a", v1alpha1.ChangeFailed, "it boots what it ran") }, -1},
	} {
		w.now = begin.Add(time.Duration(i) * time.Minute)
		step.do()
		w.settle()

		var want *metav1.Time
		if step.since >= 0 {
			want = &metav1.Time{Time: begin.Add(step.since)}
		}

		if got := w.runs[upgrade.Talos][0].Status.WaitingSince; !got.Equal(want) {
			t.Errorf("%d: %v, want %v", i, got, want)
		}

		w.now = w.now.Add(time.Second)
		if out := w.next(upgrade.Talos); out.Update != nil {
			t.Errorf("%d: written again: %+v", i, out.Update.Status)
		}
	}
}
