package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/app"
)

// TestLogOfOthers: whatever a node or a store says is one line of JSON, of a length that no runtime of containers cuts,
// and only text when it is decoded.
func TestLogOfOthers(t *testing.T) {
	t.Parallel()

	const said = "cp-0\n{\"level\":\"info\"}\x1b[2J\u009b2J\u202e"

	var out bytes.Buffer

	log, err := app.NewLogger(&out, "info")
	if err != nil {
		t.Fatal(err)
	}

	log.WithValues("node", said).Error(errors.New(said+strings.Repeat("x", 10<<20)), said, "host", said)

	if lines := strings.Count(out.String(), "\n"); lines != 1 || out.Len() > 16<<10 {
		t.Fatalf("%d lines, %d bytes", lines, out.Len())
	}

	got := map[string]string{}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}

	for _, field := range []string{"message", "node", "host", "error"} {
		if !strings.HasPrefix(got[field], "cp-0\n") || strings.ContainsAny(got[field], "\x1b\u009b\u202e") {
			t.Errorf("the field %s is %.100q", field, got[field])
		}
	}
}

// gone is an error, and a Stringer, that cannot be shown if it is nil.
type gone struct{ text string }

// Error implements error.
func (g *gone) Error() string { return g.text }

// quote is a Stringer.
type quote string

// String implements fmt.Stringer.
func (q quote) String() string { return string(q) }

// TestLogIsBounded: what JSON escapes counts as it is written, values that say what they are count, too, and an error
// that is a typed nil ends nothing.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()

	var (
		out  bytes.Buffer
		none *gone
	)

	log, err := app.NewLogger(&out, "info")
	if err != nil {
		t.Fatal(err)
	}

	said := strings.Repeat("\"\n", 10<<10)

	log.WithValues("node", said).Error(errors.New(said), said, "host", said, "quote", quote(said), "none", none)

	if lines := strings.Count(out.String(), "\n"); lines != 1 || out.Len() > 16<<10 {
		t.Fatalf("%d lines, %d bytes", lines, out.Len())
	}

	got := map[string]any{}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["quote"] == "" || got["none"] != "<nil>" {
		t.Errorf("%v, %.100v", err, got)
	}
}
