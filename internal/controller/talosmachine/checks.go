package talosmachine

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

const (
	// checkAgain is how soon checks are made again of a machine that settles, checkFailed of one whose change has failed.
	checkAgain  = 5 * time.Second
	checkFailed = time.Minute
)

// again is how soon it is looked again at what a change waits for.
func again(c *v1alpha1.MachineChange) time.Duration {
	if c.Phase == v1alpha1.ChangeFailed {
		return checkFailed
	}

	return checkAgain
}
