package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Screen shows the progress of a cluster: live, one line a machine, or as plain lines whenever something changes.
type Screen struct {
	out   io.Writer
	live  bool
	width int

	lines int               // printed by the last live frame
	last  map[string]string // what was last said of what, for plain lines
}

// NewScreen returns a screen of a width in columns. Live is for terminals only.
func NewScreen(out io.Writer, live bool, width int) *Screen {
	return &Screen{out: out, live: live, width: width, last: map[string]string{}}
}

// Show shows the progress.
func (s *Screen) Show(p Progress) {
	if s.live {
		s.frame(p)
	} else {
		s.changes(p)
	}
}

// frame draws over the frame before.
func (s *Screen) frame(p Progress) {
	var b strings.Builder

	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}

	lines := s.render(p)
	for _, line := range lines {
		b.WriteString("\r\x1b[K" + clip(line, s.width) + "\n")
	}

	b.WriteString("\x1b[J")

	s.lines = len(lines)

	_, _ = io.WriteString(s.out, b.String())
}

func (s *Screen) render(p Progress) []string {
	lines := []string{fmt.Sprintf("%7s  %s  %s", seconds(p.Elapsed), or(p.Phase, "Pending"), p.Message)}

	width := 0
	for _, m := range p.Machines {
		width = max(width, len(m.Name))
	}

	for _, m := range p.Machines {
		mark := "…"
		if m.Ready {
			mark = "✓"
		}

		lines = append(lines, fmt.Sprintf("   %s %-*s  %-12s %s", mark, width, m.Name, m.Address, m.Doing))
	}

	return lines
}

// changes prints what is not as it was.
func (s *Screen) changes(p Progress) {
	s.say(p.Elapsed, "cluster", strings.TrimSpace(or(p.Phase, "Pending")+"  "+p.Message))

	for _, m := range p.Machines {
		done := ""
		if m.Ready {
			done = ", ready"
		}

		s.say(p.Elapsed, m.Name, fmt.Sprintf("%-12s %s%s", m.Address, m.Doing, done))
	}
}

func (s *Screen) say(elapsed time.Duration, what, text string) {
	if s.last[what] == text {
		return
	}

	s.last[what] = text

	_, _ = fmt.Fprintf(s.out, "%7s  %-22s %s\n", seconds(elapsed), what, text)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}

	return s
}

// clip cuts a line to the width of the terminal: a line that wraps would break the frame.
func clip(line string, width int) string {
	if width <= 1 || utf8.RuneCountInString(line) < width {
		return line
	}

	return string([]rune(line)[:width-2]) + "…"
}
