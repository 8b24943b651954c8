package talosmachine

import (
	"sync"
	"time"
)

// showOutput is how long the status of a machine shows one line of its installer at least: a fleet in an upgrade has
// hundreds of installers that print line after line, and each one would be a write.
const showOutput = 15 * time.Second

// output is the last line that an installer has printed, and the one that the status of its machine shows.
type output struct {
	mu          sync.Mutex
	last, shown string
	since       time.Time
}

// say notes a line.
func (o *output) say(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.last = line
}

// show returns the line to show now.
func (o *output) show(now time.Time) string {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.last != o.shown && now.Sub(o.since) >= showOutput {
		o.shown, o.since = o.last, now
	}

	return o.shown
}
