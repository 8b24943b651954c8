package output

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	// progressPause is how often a line reports the progress.
	progressPause = 5 * time.Second
	// redrawPause is how often a bar is drawn.
	redrawPause = 100 * time.Millisecond
	barWidth    = 30
)

// Progress shows the progress of a transfer: a bar on a terminal, otherwise a line from time to time.
type Progress struct {
	out   io.Writer
	what  string
	bar   *progressbar.ProgressBar
	pause time.Duration

	mu   sync.Mutex
	told time.Time
}

// NewProgress shows the progress of an activity with a total number of bytes.
func NewProgress(out io.Writer, what string, total int64) *Progress {
	p := &Progress{out: out, what: what, pause: progressPause, told: time.Now()}

	if IsTerminal(out) {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(RawOf(out)), progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(barWidth), progressbar.OptionThrottle(redrawPause),
			progressbar.OptionClearOnFinish(), progressbar.OptionUseIECUnits(true))
	}

	return p
}

// IsTerminal reports whether the output is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := RawOf(w).(*os.File)

	return ok && term.IsTerminal(int(f.Fd()))
}

// At updates the progress. It may be called at any rate.
func (p *Progress) At(done, total int64) {
	if p.bar != nil {
		_ = p.bar.Set64(done) // an error of the terminal, which the next line reports too

		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if time.Since(p.told) < p.pause {
		return
	}

	p.told = time.Now()

	fmt.Fprintf(p.out, "%s: %s of %s\n", p.what, Bytes(done), Bytes(total))
}

// Describe says what is done with all of it.
func (p *Progress) Describe(what string) {
	if p.bar != nil {
		p.bar.Describe(what)
	}
}

// End removes the bar.
func (p *Progress) End() {
	if p.bar != nil {
		_ = p.bar.Exit()
		_ = p.bar.Clear()
	}
}

// Teller reports the current activity of a long operation: on a terminal it overwrites the last line, otherwise it
// prints a new line at each change.
type Teller struct {
	out   io.Writer
	width int
	start time.Time
	last  string
}

// NewTeller returns a Teller that writes to out.
func NewTeller(out io.Writer) *Teller {
	t := &Teller{out: out, start: time.Now()}

	if f, ok := RawOf(out).(*os.File); ok && IsTerminal(out) {
		t.width, _, _ = term.GetSize(int(f.Fd()))
	}

	return t
}

// Say reports the current activity.
func (t *Teller) Say(text string) {
	text = strings.ReplaceAll(text, "\n", " ")

	switch line := fmt.Sprintf("%7.1fs  %s", time.Since(t.start).Seconds(), text); {
	case t.width > 0:
		// A line that wraps could not be overwritten.
		if runes := []rune(line); len(runes) >= t.width {
			line = string(runes[:t.width-1])
		}

		fmt.Fprint(RawOf(t.out), "\r\x1b[K")
		fmt.Fprint(t.out, line)
	case text != t.last:
		fmt.Fprintln(t.out, line)
	}

	t.last = text
}

// Keep prints a line that remains visible.
func (t *Teller) Keep(text string) {
	t.Say(text)

	if t.width > 0 {
		fmt.Fprintln(t.out)
	}
}

// End removes the last line of say.
func (t *Teller) End() {
	if t.width > 0 {
		fmt.Fprint(RawOf(t.out), "\r\x1b[K")
	}
}
