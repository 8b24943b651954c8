package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/leaderelection"
)

// addLeaseFlags adds the times of the leader election, named as those of Kubernetes' own components.
func (o *Options) addLeaseFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration,
		"how long the other replicas wait for a renewal of the lease before one takes over, in whole seconds; at least the "+
			"retry period plus twice the renew deadline")
	f.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline,
		"how long the leader tries to renew the lease before it stops")
	f.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod,
		"how often the leader renews the lease, and the other replicas read it")
}

// validateLease rejects times with which two replicas could act at the same time. The last attempt to renew a lease may
// begin a retry period after the last renewal, and fail a renew deadline later. Then the leader tries to release the
// lease, for another renew deadline at most, and stops only after that.
func (o *Options) validateLease() error {
	stopped := o.RetryPeriod + 2*o.RenewDeadline
	longestRetry := time.Duration(leaderelection.JitterFactor * float64(o.RetryPeriod))

	switch {
	case o.RetryPeriod <= 0:
		return fmt.Errorf("the retry period of the leader election is %s: it must be more than 0", o.RetryPeriod)
	case o.RenewDeadline <= longestRetry:
		return fmt.Errorf("the renew deadline of the leader election is %s: with a retry period of %s it must be more than "+
			"%s", o.RenewDeadline, o.RetryPeriod, longestRetry)
	case o.LeaseDuration%time.Second != 0:
		// The lease has the duration in seconds, and the other replicas would wait for a shorter time.
		return fmt.Errorf("the lease duration of the leader election is %s: it must be in whole seconds", o.LeaseDuration)
	case o.LeaseDuration < stopped:
		return fmt.Errorf("the lease duration of the leader election is %s: it must be at least %s, the retry period plus "+
			"twice the renew deadline, so that a leader that loses its connection stops before another replica takes over",
			o.LeaseDuration, stopped)
	}

	return nil
}
