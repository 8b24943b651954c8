package main

import (
	"bytes"
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

// goTypes print the type of a Go value, which means nothing to a reader.
var goTypes = regexp.MustCompile(`%[-+# 0-9]*T\b`)

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
			} else if word := avoidedIn(line); word != "" {
				t.Errorf("%s: %q in %q", file, word, strings.TrimSpace(line))
			}
		}
	}
}

func avoidedIn(line string) string {
	return cmp.Or(avoided.FindString(names.ReplaceAllString(line, "")), goTypes.FindString(line))
}

// TestAvoidedIn: a word that is avoided is found in a text, and not in the name of a value; so is the type of a value.
func TestAvoidedIn(t *testing.T) {
	for line, want := range map[string]string{
		"Nobody knows %s": "Nobody", "%s {estate} is %t": "", "a %T is no list": "%T", "a %#T": "%#T", "90%Total": "",
	} {
		if got := avoidedIn(line); got != want {
			t.Errorf("%q: found %q, want %q", line, got, want)
		}
	}
}

// inComments are words that comments replace, too. Those with a proper use in code, such as silent, are missing.
var inComments = regexp.MustCompile(`//.*\b(nobody|somebody|anybody|whoever|look(ed|s)? at)\b`)

// TestComments: developers read the terms that users read.
func TestComments(t *testing.T) {
	read := 0

	err := filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..":
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		read++

		number := 0

		for line := range strings.Lines(string(text)) {
			number++

			// Strings are texts, which TestWords reads.
			if found := inComments.FindStringSubmatch(line); found != nil && strings.Count(line, "`") == 0 {
				t.Errorf("%s:%d: %q in a comment", path, number, found[1])
			}
		}

		return nil
	})
	if err != nil || read < 500 {
		t.Errorf("%d files were read: %v", read, err)
	}
}

// TestRules: the messages of all kinds and policies are listed, and one that several fields of a kind have is listed
// once.
func TestRules(t *testing.T) {
	sections, err := rules(module)
	if err != nil {
		t.Fatal(err)
	}

	total := 0

	for _, s := range sections {
		total += len(s.texts)

		seen := map[string]bool{}

		for _, text := range s.texts {
			_, message, ok := strings.Cut(text, ": ")
			if seen[message] && ok {
				t.Errorf("%s: %q is listed twice", s.name, message)
			}

			seen[message] = true
		}
	}

	if total < 80 || len(sections) < 10 {
		t.Errorf("only %d messages in %d sections were found", total, len(sections))
	}

	k := kindRules{told: map[string]bool{}}
	k.collect("", &apiextensionsv1.JSONSchemaProps{
		XValidations: apiextensionsv1.ValidationRules{{Rule: "true", Message: "one of all"}},
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"b": {XValidations: apiextensionsv1.ValidationRules{{Rule: "true", Message: "no x"}}},
			"a": {
				Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
					XValidations: apiextensionsv1.ValidationRules{
						{Rule: "true", Message: "no x"}, {Rule: "true", MessageExpression: "'no ' + self"},
					},
				}},
			},
			"c": {
				AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &apiextensionsv1.JSONSchemaProps{
					XValidations: apiextensionsv1.ValidationRules{{Rule: "true", Message: "no y"}},
				}},
			},
		},
	})

	if got, want := strings.Join(k.texts, "|"), "one of all|a[]: no x|a[]: 'no ' + self|c{}: no y"; got != want {
		t.Errorf("got %q, want %q", got, want)
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
