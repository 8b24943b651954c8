package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, content string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// TestDraw: well-formed, in the order of clusters, with a point for each value that there is.
func TestDraw(t *testing.T) {
	hundred := write(t, "100.jsonl", `{"name":"all_ready_s","value":120,"unit":"s"}`)
	fifty := write(t, "50.jsonl", `{"name":"all_ready_s","value":60,"unit":"s"}
{"name":"goroutines","value":1,"unit":"goroutines"}`)

	var out bytes.Buffer
	if err := draw(&out, []string{hundred, fifty}); err != nil {
		t.Fatal(err)
	}

	for dec := xml.NewDecoder(bytes.NewReader(out.Bytes())); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}

	first, second := strings.Index(out.String(), "50 clusters: 60 s"), strings.Index(out.String(), "100 clusters: 120 s")
	if first < 0 || second < first || strings.Count(out.String(), "<circle") != 2 || strings.Contains(out.String(), "NaN") {
		t.Errorf("points at %d and %d in\n%s", first, second, out.String())
	}

	for _, bad := range []string{write(t, "many.jsonl", ""), write(t, "7.jsonl", "{"), filepath.Join(t.TempDir(), "8.jsonl")} {
		if err := draw(io.Discard, []string{bad}); err == nil {
			t.Errorf("%s is drawn", filepath.Base(bad))
		}
	}

	if err := draw(io.Discard, nil); err == nil {
		t.Error("nothing is drawn")
	}
}

// TestDrawBackups: one file has all sizes; what has no size is left out.
func TestDrawBackups(t *testing.T) {
	file := write(t, "backup.jsonl", `{"name":"rss_growth_mib","value":50,"unit":"MiB","size_mib":2048}
{"name":"operator_plain_mib_s","value":90,"unit":"MiB/s","size_mib":128}
{"name":"total_loss_recovery_s","value":20,"unit":"s"}`)

	var out bytes.Buffer
	if err := draw(&out, []string{file}); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"2048 MiB of database: 50 MiB<", "128 MiB of database: 90 MiB/s<"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no point %q", want)
		}
	}

	if n := strings.Count(out.String(), "<circle"); n != 2 {
		t.Errorf("%d points", n)
	}
}
