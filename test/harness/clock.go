package harness

import (
	"sync"
	"time"
)

// Clock is the time of an operator. It stands still, or goes with the real one, and tests move it on.
type Clock struct {
	mu sync.Mutex
	// at is where it stands; it goes when that is zero.
	at time.Time
	// ahead of the real time, while it goes.
	ahead time.Duration
}

// NewClock stands still at the real time: nodes compare the dates of certificates with that.
func NewClock() *Clock { return &Clock{at: time.Now()} }

// Run has the clock go from now on.
func (c *Clock) Run() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.ahead, c.at = time.Until(c.at), time.Time{}
}

// SetTime has the clock stand still at a time.
func (c *Clock) SetTime(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.at = at
}

// Sleep moves the clock on.
func (c *Clock) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.at.IsZero() {
		c.ahead += d

		return
	}

	c.at = c.at.Add(d)
}

// Now implements clock.PassiveClock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.at.IsZero() {
		return time.Now().Add(c.ahead)
	}

	return c.at
}

// Since implements clock.PassiveClock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
