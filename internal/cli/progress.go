package cli

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

// progress shows the progress of a transfer: a bar on a terminal, otherwise a line from time to time.
type progress struct {
	out   io.Writer
	what  string
	bar   *progressbar.ProgressBar
	pause time.Duration

	mu   sync.Mutex
	told time.Time
}

// newProgress shows the progress of an activity with a total number of bytes.
func newProgress(out io.Writer, what string, total int64) *progress {
	p := &progress{out: out, what: what, pause: progressPause, told: time.Now()}

	if isTerminal(out) {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(rawOf(out)), progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(barWidth), progressbar.OptionThrottle(redrawPause),
			progressbar.OptionClearOnFinish(), progressbar.OptionUseIECUnits(true))
	}

	return p
}

// isTerminal reports whether the output is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := rawOf(w).(*os.File)

	return ok && term.IsTerminal(int(f.Fd()))
}

// at updates the progress. It may be called at any rate.
func (p *progress) at(done, total int64) {
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

	fmt.Fprintf(p.out, "%s: %s of %s\n", p.what, bytesOf(done), bytesOf(total))
}

// end removes the bar.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Exit()
		_ = p.bar.Clear()
	}
}

// teller reports the current activity of a long operation: on a terminal it overwrites the last line, otherwise it
// prints a new line at each change.
type teller struct {
	out   io.Writer
	width int
	start time.Time
	last  string
}

func newTeller(out io.Writer) *teller {
	t := &teller{out: out, start: time.Now()}

	if f, ok := rawOf(out).(*os.File); ok && isTerminal(out) {
		t.width, _, _ = term.GetSize(int(f.Fd()))
	}

	return t
}

// say reports the current activity.
func (t *teller) say(text string) {
	text = strings.ReplaceAll(text, "\n", " ")

	switch line := fmt.Sprintf("%7.1fs  %s", time.Since(t.start).Seconds(), text); {
	case t.width > 0:
		// A line that wraps could not be overwritten.
		if runes := []rune(line); len(runes) >= t.width {
			line = string(runes[:t.width-1])
		}

		fmt.Fprint(rawOf(t.out), "\r\x1b[K")
		fmt.Fprint(t.out, line)
	case text != t.last:
		fmt.Fprintln(t.out, line)
	}

	t.last = text
}

// keep prints a line that remains visible.
func (t *teller) keep(text string) {
	t.say(text)

	if t.width > 0 {
		fmt.Fprintln(t.out)
	}
}

// end removes the last line of say.
func (t *teller) end() {
	if t.width > 0 {
		fmt.Fprint(rawOf(t.out), "\r\x1b[K")
	}
}
