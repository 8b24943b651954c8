package work

import (
	"sync"
	"time"
)

// Line is the last line that work has reported, and the one that the status of its object shows. Work that reports line
// after line, for hundreds of objects, would be a write each.
type Line struct {
	// every is how long one line is shown at least.
	every time.Duration

	mu          sync.Mutex
	last, shown string
	since       time.Time
}

// NewLine returns a line of which each text is shown for a time at least.
func NewLine(text string, every time.Duration) *Line { return &Line{last: text, every: every} }

// Say notes a text.
func (l *Line) Say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.last = text
}

// Show returns the text to show now.
func (l *Line) Show(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.last != l.shown && now.Sub(l.since) >= l.every {
		l.shown, l.since = l.last, now
	}

	return l.shown
}
