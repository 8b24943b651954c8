package remediation

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// pollLife is how soon a machine that was held for a sign of life is looked at again: nobody tells when Kubernetes does
// not hear of it any more.
const pollLife = 15 * time.Second

// Again is how soon a choice is made again.
func (c *Choice) Again(resync time.Duration) time.Duration {
	if c == nil || !c.Gone || c.Reason != v1alpha1.ReasonMachineAlive && c.Reason != v1alpha1.ReasonWaitingForEvidence {
		return resync
	}

	return min(resync, pollLife)
}

// Within is how soon to look again: at the next timeout, and as often as otherwise.
func (g Group) Within(resync time.Duration) time.Duration {
	next := g.Next()
	if next.IsZero() {
		return resync
	}

	return min(resync, max(next.Sub(g.Now), time.Second))
}
