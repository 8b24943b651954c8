package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// TestRun: the picture is XML that loads nothing, has each line as it is, and ends on the last page.
func TestRun(t *testing.T) {
	var out bytes.Buffer

	long := strings.Repeat("ü", columns+1)
	if err := run(strings.NewReader("1. A <cluster> & more\n\n  a  b\n"+long+strings.Repeat("\n", rows+1)+"end\n"), &out); err != nil {
		t.Fatal(err)
	}

	texts := checkSVG(t, out.Bytes())
	want := []string{"1. A <cluster> & more", "  a  b", strings.Repeat("ü", columns-1) + "…", "end"}

	if strings.Join(texts, "\n") != strings.Join(want, "\n") {
		t.Errorf("lines are %q, want %q", texts, want)
	}

	// Five lines of a quarter of a second are below the first page, which stays for six as the last one does.
	for _, part := range []string{
		".lines { transform: translateY(-90px); animation: scroll 13.2s infinite }", "0% { transform: translateY(0) }",
		"45.28% { transform: translateY(0); animation-timing-function: steps(5) }", "54.72%, 100% { transform: translateY(-90px) }",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("it has no %q: %s", part, out.String())
		}
	}

	if err := run(strings.NewReader(""), io.Discard); err == nil {
		t.Error("a recording of nothing was made")
	}
}

// TestRecording: the picture in the README is one of these, small enough to be loaded with the page, and of a whole demo.
func TestRecording(t *testing.T) {
	picture, err := os.ReadFile("../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}

	if len(picture) > 300<<10 {
		t.Errorf("it has %d bytes", len(picture))
	}

	texts := strings.Join(checkSVG(t, picture), "\n")
	for _, part := range []string{"1. A cluster of 3", "2. A disaster", "3. An upgrade of Talos", "Every machine runs Talos"} {
		if !strings.Contains(texts, part) {
			t.Errorf("it has no %q", part)
		}
	}
}

// checkSVG returns the lines of a picture, and fails where it could load or run something.
func checkSVG(t *testing.T, picture []byte) []string {
	t.Helper()

	var texts []string

	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}

		if err != nil {
			t.Fatal(err)
		}

		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}

		for _, a := range element.Attr {
			if a.Name.Local == "href" || strings.HasPrefix(a.Name.Local, "on") {
				t.Errorf("it has an attribute %s", a.Name.Local)
			}
		}

		switch element.Name.Local {
		case "script", "image", "foreignObject":
			t.Errorf("it has an element %s", element.Name.Local)
		case "text":
			var text string
			if err := d.DecodeElement(&text, &element); err != nil {
				t.Fatal(err)
			}

			texts = append(texts, text)
		}
	}
}
