package output

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/cli/exit"
)

// TestShown: text of others does nothing to a terminal, however it is cut into pieces, and is otherwise what it was.
func TestShown(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"NAME\tREADY\ncp-0\tTrue\n":     "NAME\tREADY\ncp-0\tTrue\n",
		"Größe 🙂 日本":                    "Größe 🙂 日本",
		"a\x1b[2Jb":                     "a\ufffd[2Jb",
		"a\x1b]52;c;cm0=\x07b":          "a\ufffd]52;c;cm0=\ufffdb",
		"a\rb\x00\x7f\b":                "a\ufffdb\ufffd\ufffd\ufffd",
		"a\u009b2Jb\u202ec\u2066\u200b": "a\ufffd2Jb\ufffdc\ufffd\ufffd",
		"a\x9bb":                        "a\ufffdb",
	} {
		whole, pieces := &bytes.Buffer{}, &bytes.Buffer{}

		if n, err := fmt.Fprint(NewShown(whole), text); n != len(text) || err != nil {
			t.Errorf("%q: %d bytes, %v", text, n, err)
		}

		out := NewShown(pieces)
		for _, b := range []byte(text) {
			if _, err := out.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}

		if whole.String() != want || pieces.String() != want {
			t.Errorf("%q is shown as %q and %q", text, whole, pieces)
		}

		if line := exit.Line(errors.New(text)); strings.ContainsAny(line, "\x1b\x00\r\u009b\u202e") {
			t.Errorf("an error is shown as %q", line)
		}
	}
}

// TestOwnSequences: a command still controls the terminal itself.
func TestOwnSequences(t *testing.T) {
	t.Parallel()

	out := &bytes.Buffer{}
	teller := &Teller{out: NewShown(out), width: 80}
	teller.Say("restoring \x1b[2J")
	teller.End()

	if text := out.String(); strings.Count(text, "\r\x1b[K") != 2 || strings.Contains(text, "\x1b[2J") {
		t.Errorf("%q", text)
	}
}
