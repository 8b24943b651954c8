package notification_test

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
)

// TestHeldDrains: each machine whose drain waits for a user is told once for as long as it does, also where the run has
// stopped at another group.
func TestHeldDrains(t *testing.T) {
	const (
		first  = "1 Started 0, 2 Waiting 1 a held at 1"
		second = first + ", 3 Waiting 3 b held at 3"
		third  = second + ", 4 Waiting 5 a held at 5"
	)

	running, stopped := v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunStopped
	l := notification.Ledger{}

	for i, step := range []struct {
		phase v1alpha1.UpgradeRunPhase
		held  string
		want  string
	}{
		{running, "", "1 Started 0"},
		{running, "a", first},
		{running, "a", first},
		{running, "ab", second},
		{running, "b", second},
		{running, "ab", third},
		{running, "", third},
		{stopped, "a", third + ", 5 Failed 20 stops, 6 Waiting 7 a held at 7"},
	} {
		st := status(step.phase, "stops")
		for _, name := range []string{"a", "b"} {
			m := v1alpha1.UpgradeRunMachine{Name: name, State: v1alpha1.UpgradeMachineInProgress}
			for _, h := range step.held {
				if string(h) == name {
					m.Message = name + " held at " + string(rune('0'+i))
				}
			}

			st.Machines = append(st.Machines, m)
		}

		next := l.Observe(&st, nil, begin.Add(time.Duration(i)*time.Minute))
		if len(next.Held) != len(l.Held) && !next.Worth(l) {
			t.Errorf("%d: what was told is not recorded", i)
		}

		if again := next.Observe(&st, nil, begin.Add(time.Hour)); again.Worth(next) {
			t.Errorf("%d: told twice: %s", i, entries(again))
		}

		l = next
		if got := entries(l); got != step.want {
			t.Errorf("%d: %q, want %q", i, got, step.want)
		}
	}

	for _, e := range l.Entries {
		if waits := e.Event == v1alpha1.NotificationWaiting; e.Held != waits || waits && e.Phase == stopped {
			t.Errorf("%+v", e)
		}
	}
}
