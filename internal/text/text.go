// Package text makes text of others harmless: what a node, a store or a user has written must not control a terminal,
// forge a line of a log, or be too long for what shows it.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns the replacement character for what is not text: control and format characters, such as those that
// reverse the direction of text, and bytes that are no characters. Line breaks and tabs are kept.
func Visible(r rune) rune {
	if r != '\n' && r != '\t' && unicode.Is(unicode.C, r) {
		return unicode.ReplacementChar
	}

	return r
}

// Plain replaces what is not text, and keeps line breaks and tabs. A text without any of it is returned as it is.
func Plain(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return Visible(r) != r }) < 0 {
		return s
	}

	return strings.Map(Visible, s)
}

// Line is Plain in one line: each space, tab or line break, or several in a row, is one space.
func Line(s string) string { return strings.Join(strings.Fields(Plain(s)), " ") }

// Name is Plain for a name, which has neither line breaks nor tabs.
func Name(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return unicode.ReplacementChar
		}

		return r
	}, Plain(s))
}

// Cut returns the beginning of a text with at most the given number of bytes, which is three at least. One that was cut
// ends with an ellipsis.
func Cut(s string, most int) string {
	const more = "…"

	if len(s) <= most {
		return s
	}

	end := most - len(more)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}

	return s[:end] + more
}
