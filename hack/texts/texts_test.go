package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "../.."

// TestListsAreCurrent: what the product says is what reviewers read.
func TestListsAreCurrent(t *testing.T) {
	for _, l := range lists {
		want, err := l.render(module)
		if err != nil {
			t.Fatal(err)
		}

		if got, err := os.ReadFile(filepath.Join(module, "docs/texts", l.Name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/texts/%s is not what the source says (%v): run make generate, and read the difference", l.Name, err)
		}
	}
}

// avoided are words for which the field has a standard term, or that make a person of a machine.
var avoided = regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|whoever|look(ed|s)? at|given up|gives? up|wanted config|by hand|` +
	`the log has|is held|are held|estate|sick|mend(s|ed)?|goes back|(does|do) not answer|silent|lives)\b`)

// names of constants and variables stand in braces.
var names = regexp.MustCompile(`\{[^}]*\}`)

// TestWords: texts for people use the terms of the glossary.
func TestWords(t *testing.T) {
	for _, l := range lists {
		text, err := l.render(module)
		if err != nil {
			t.Fatal(err)
		}

		file := ""

		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "## ") {
				file = strings.TrimSpace(line[3:])
			} else if word := avoided.FindString(names.ReplaceAllString(line, "")); word != "" {
				t.Errorf("%s: %q in %q", file, word, strings.TrimSpace(line))
			}
		}
	}
}

// TestTextsOf: a text is found however it is put together, and what is no text is not.
func TestTextsOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.go")
	source := "package x\n\nimport _ \"not this one\"\n\ntype s struct {\n\tf string `json:\"not this one\"`\n}\n\n" +
		"const a = \"one text \" +\n\t\"of two lines\"\n\nvar b = say(\"machine \"+name+\" is ready\", `raw\ntext`, \"word\", 'x', \"Reason\")\n" +
		"var c = name + s.Other\n"

	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}

	got, err := textsOf(path)
	if err != nil {
		t.Fatal(err)
	}

	want := "one text of two lines|machine {name} is ready|raw\\ntext"
	if strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
	}
}
