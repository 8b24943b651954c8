package talosetcdbackupschedule

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// scope is one reconciliation of one schedule.
type scope struct {
	schedule *v1alpha1.TalosEtcdBackupSchedule
	base     *v1alpha1.TalosEtcdBackupSchedule
	// controlPlane of the schedule; nil if there is none.
	controlPlane *v1alpha1.TalosControlPlane
	backups      []v1alpha1.TalosEtcdBackup
	hold         pause.Hold
	now          time.Time
	conditions   condition.Set
	// observed: all evidence for the conditions was read.
	observed bool

	timing, verification timing
	// invalid says what is wrong with the schedule.
	invalid string
	// waiting is what a due backup or due work waits for.
	waiting error
	// wakes are the times at which the schedule has to be reconciled.
	wakes []time.Time
}

func newScope(o *v1alpha1.TalosEtcdBackupSchedule, now time.Time) *scope {
	return &scope{
		schedule: o, base: o.DeepCopy(), now: now, conditions: condition.Begin(&o.Status.Conditions, o.Generation),
	}
}

// wakeAt schedules another reconciliation. Past times were handled, or wait for something else.
func (s *scope) wakeAt(t time.Time) {
	if t.After(s.now) {
		s.wakes = append(s.wakes, t)
	}
}

// wake returns how long nothing has to be done.
func (s *scope) wake(longest time.Duration) time.Duration {
	if s.hold.Any() {
		longest = min(longest, heldPoll)
	}

	for _, t := range s.wakes {
		longest = min(longest, t.Sub(s.now))
	}

	return max(longest, time.Millisecond)
}
