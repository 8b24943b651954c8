package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/talos-operator/talos-operator/internal/text"
)

func TestPlain(t *testing.T) {
	t.Parallel()

	for in, want := range map[string]struct{ plain, line, name string }{
		"prod-cp-0":              {"prod-cp-0", "prod-cp-0", "prod-cp-0"},
		"Größe 🙂 日本":             {"Größe 🙂 日本", "Größe 🙂 日本", "Größe 🙂 日本"},
		"a\x1b[2Jb":              {"a\ufffd[2Jb", "a\ufffd[2Jb", "a\ufffd[2Jb"},
		"a\r\n\tb\x00":           {"a\ufffd\n\tb\ufffd", "a\ufffd b\ufffd", "a\ufffd\ufffd\ufffdb\ufffd"},
		"a\u009b2Jb\u202e\u200b": {"a\ufffd2Jb\ufffd\ufffd", "a\ufffd2Jb\ufffd\ufffd", "a\ufffd2Jb\ufffd\ufffd"},
		"a\x9bb":                 {"a\ufffdb", "a\ufffdb", "a\ufffdb"},
	} {
		if got := text.Plain(in); got != want.plain {
			t.Errorf("%q becomes %q, want %q", in, got, want.plain)
		}

		if got := text.Line(in); got != want.line {
			t.Errorf("%q becomes the line %q, want %q", in, got, want.line)
		}

		if got := text.Name(in); got != want.name {
			t.Errorf("%q becomes the name %q, want %q", in, got, want.name)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()

	for most := 3; most < 12; most++ {
		got := text.Cut("日本日本", most)
		if len(got) > most || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("cut to %d bytes it is %q", most, got)
		}
	}

	if got := text.Cut("日本日本", 12); got != "日本日本" {
		t.Errorf("a text that fits becomes %q", got)
	}
}
