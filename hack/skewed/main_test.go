package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/test/wait"
)

// TestSkewed: the clock follows the file, and is right without one.
func TestSkewed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skew")
	c := skewed{path}
	off := func() time.Duration { return c.Now().Sub(wait.Now()).Round(time.Minute) }

	if got := off(); got != 0 {
		t.Errorf("without a file it is off by %s", got)
	}

	for _, want := range []time.Duration{2 * time.Hour, -90 * time.Minute} {
		if err := os.WriteFile(path, []byte(want.String()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}

		if got := off(); got != want {
			t.Errorf("off by %s, want %s", got, want)
		}

		if got := c.Since(wait.Now()).Round(time.Minute); got != want {
			t.Errorf("since now: %s, want %s", got, want)
		}
	}
}
