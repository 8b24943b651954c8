package remediation

import (
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// pollLife is how soon a machine that is blocked because of a sign of life is observed again: no event reports that its
// Node has stopped reporting to Kubernetes.
const pollLife = 15 * time.Second

// Again returns how soon to choose again.
func (c *Choice) Again(resync time.Duration) time.Duration {
	if c == nil || !c.Gone || c.Reason != v1alpha1.ReasonMachineAlive && c.Reason != v1alpha1.ReasonWaitingForEvidence {
		return resync
	}

	return min(resync, pollLife)
}

// Within returns how soon to reconcile again: at the next timeout, but at the latest after the resync interval.
func (g Group) Within(resync time.Duration) time.Duration {
	next := g.Next()
	if next.IsZero() {
		return resync
	}

	return min(resync, max(next.Sub(g.Now), time.Second))
}
