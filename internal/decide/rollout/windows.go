package rollout

import (
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/schedule"
)

// window reports whether maintenance windows allow a reboot now, and otherwise when the next one opens.
func (o Options) window(now time.Time) (open bool, next time.Time, err error) {
	if o.RebootPolicy != v1alpha1.RebootWindow {
		return true, time.Time{}, nil
	}

	if open, _, next, err = schedule.Open(o.Windows, now); err != nil {
		return false, time.Time{}, fmt.Errorf("reading the maintenance windows: %w", err)
	}

	return open, next, nil
}

// Validate rejects options that cannot be fulfilled: windows that never open, or whose time zone does not exist.
func Validate(o *v1alpha1.RolloutOptions) error {
	if o == nil {
		return nil
	}

	for i, w := range o.Windows {
		window := schedule.Window{Schedule: w.Schedule, Duration: w.Duration.Duration, TimeZone: w.TimeZone}
		if err := window.Validate(); err != nil {
			return fmt.Errorf("windows[%d]: %w", i, err)
		}
	}

	return nil
}
