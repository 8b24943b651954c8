package talos

import (
	"strings"
	"testing"
)

// TestPrinted: of what an installer prints at once the last line is shown, in one line, bounded, without what controls
// a terminal, and without a secret.
func TestPrinted(t *testing.T) {
	for message, want := range map[string]string{
		"":                                    "",
		" \n\r\n\t":                           "",
		"copying kernel\n":                    "copying kernel",
		"a\nb  c\tand d\n\n":                  "b c and d",
		"10 %\r20 %\r30 %\r":                  "30 %",
		"\x1b[32mINFO\x1b[0m done\x1b[1;31m!": "INFO done!",
		"a\x00b\u202ec":                       "a\ufffdb\ufffdc",
		"token qh3kzt.0123456789abcdef used":  "token " + hidden + " used",
		"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n": hidden,
		strings.Repeat("ä", 300): strings.Repeat("ä", 98) + "…",
	} {
		if got := printed(message); got != want {
			t.Errorf("%q is shown as %q, want %q", message, got, want)
		}
	}
}
