package remediation

import "time"

// Within is how soon to look again: at the next timeout, and as often as otherwise.
func (g Group) Within(resync time.Duration) time.Duration {
	next := g.Next()
	if next.IsZero() {
		return resync
	}

	return min(resync, max(next.Sub(g.Now), time.Second))
}
