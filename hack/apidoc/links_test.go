package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// maxLines is how long a document may be, apart from the reference that is generated.
const maxLines = 500

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mention = regexp.MustCompile(`\bdocs/[\w/.-]+\.md(#[\w-]+)?`)
	heading = regexp.MustCompile(`^#{1,6} +(.*?) *$`)
	// dropped is what the address of a heading does not have of its text.
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)
)

// TestLinks: each link of a document, and each document that a source file names, leads to a file and to a section of it.
func TestLinks(t *testing.T) {
	checked := 0

	for _, path := range documents(t) {
		for _, target := range link.FindAllStringSubmatch(prose(read(t, path)), -1) {
			if strings.Contains(target[1], "://") || strings.HasPrefix(target[1], "mailto:") {
				continue
			}

			checked++

			checkLink(t, path, filepath.Dir(path), target[1])
		}
	}

	for _, path := range files(t, ".go", "api", "cmd", "config", "internal", "lab") {
		for _, target := range mention.FindAllString(read(t, path), -1) {
			checked++

			checkLink(t, path, root, target)
		}
	}

	if checked < 200 {
		t.Errorf("only %d links were found", checked)
	}
}

// TestLengths: a document that grows is split before it is too long to be read.
func TestLengths(t *testing.T) {
	for _, path := range documents(t) {
		if n := strings.Count(read(t, path), "\n"); n > maxLines && filepath.Base(path) != "api.md" {
			t.Errorf("%s has %d lines, of %d", path, n, maxLines)
		}
	}
}

// TestSections: sections have the addresses that the code host gives them.
func TestSections(t *testing.T) {
	got := sections("# One: `two`, (three)\n```sh\n# no heading\n```\n## A-b c\n## A-b c\n")

	for _, want := range []string{"one-two-three", "a-b-c", "a-b-c-1"} {
		if !got[want] {
			t.Errorf("no section %s in %v", want, got)
		}
	}

	if len(got) != 3 {
		t.Errorf("%d sections: %v", len(got), got)
	}
}

func checkLink(t *testing.T, from, folder, target string) {
	t.Helper()

	name, section, ok := strings.Cut(target, "#")

	path := from
	if name != "" {
		path = filepath.Join(folder, name)
	}

	if _, err := os.Stat(path); err != nil {
		t.Errorf("%s: the link %s leads to no file", from, target)
	} else if ok && !sections(read(t, path))[section] {
		t.Errorf("%s: the link %s leads to no section", from, target)
	}
}

// documents are those that people read.
func documents(t *testing.T) []string {
	t.Helper()

	out, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}

	return append(out, files(t, ".md", "docs")...)
}

// files are those in folders of the module whose names end so.
func files(t *testing.T, ending string, folders ...string) []string {
	t.Helper()

	var out []string

	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ending) {
				out = append(out, path)
			}

			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	return out
}

func read(t *testing.T, path string) string {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(content)
}

// prose is a document without its blocks of code.
func prose(text string) string {
	var out strings.Builder

	code := false

	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			out.WriteString(line)
		}
	}

	return out.String()
}

// sections are the addresses of a document's headings.
func sections(text string) map[string]bool {
	out := map[string]bool{}

	for line := range strings.Lines(prose(text)) {
		m := heading.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}

		address := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		unique := address

		for n := 1; out[unique]; n++ {
			unique = address + "-" + strconv.Itoa(n)
		}

		out[unique] = true
	}

	return out
}
