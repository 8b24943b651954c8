package output

import (
	"bytes"
	"strings"
	"testing"
)

// TestProgressLines: without a terminal there is a line now and then, and none for every byte.
func TestProgressLines(t *testing.T) {
	var out bytes.Buffer

	p := NewProgress(&out, "reading x", 4<<20)
	p.At(1<<20, 4<<20)

	if out.Len() > 0 {
		t.Errorf("at once: %q", out.String())
	}

	p.pause = 0
	p.At(2<<20, 4<<20)
	p.End()

	if want := "reading x: 2.0 MiB of 4.0 MiB\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestTeller: without a terminal a line for each change; on one, each is drawn over the one before, cut to its width.
func TestTeller(t *testing.T) {
	var out bytes.Buffer

	lines := NewTeller(&out)
	for _, text := range []string{"one", "one", "two\nthree", "two\nthree"} {
		lines.Say(text)
	}

	lines.End()

	if got := strings.Split(strings.TrimSpace(out.String()), "\n"); len(got) != 2 || !strings.HasSuffix(got[0], "s  one") ||
		!strings.HasSuffix(got[1], "s  two three") {
		t.Errorf("lines: %q", got)
	}

	out.Reset()

	live := NewTeller(&out)
	live.width = 20
	live.Say(strings.Repeat("x", 30))
	live.Keep("kept")
	live.End()

	frames := strings.Split(out.String(), "\r\x1b[K")
	if len(frames) != 4 || len(frames[1]) != 19 || !strings.HasSuffix(frames[2], "kept\n") || frames[3] != "" {
		t.Errorf("frames: %q", frames)
	}
}
