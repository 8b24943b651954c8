package verify

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestScratch: one folder for each verification, and none is left.
func TestScratch(t *testing.T) {
	t.Parallel()

	parent := t.TempDir()
	left := filepath.Join(parent, scratchPrefix+"left")
	other := filepath.Join(parent, "other")

	for _, dir := range []string{left, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(dir, databaseName), []byte("plain"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	first, err := newScratch(parent, 1)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed process left is still there: %v", err)
	}

	if _, err := os.Stat(other); err != nil {
		t.Errorf("somebody else's folder: %v", err)
	}

	second, err := newScratch(parent, 1)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(first.path); err != nil {
		t.Errorf("the folder of a verification that goes on: %v", err)
	}

	for _, s := range []*scratch{first, second} {
		info, err := os.Stat(s.path)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}

		if err := s.remove(); err != nil {
			t.Error(err)
		}

		if _, err := os.Stat(s.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("not removed: %v", err)
		}
	}
}

// TestNoRoom: it is said before a byte is written, and where the size is not known, before the disk is full.
func TestNoRoom(t *testing.T) {
	t.Parallel()

	parent := t.TempDir()

	_, err := newScratch(parent, 1<<60)
	if failure.Reason(err) != ReasonScratch || !strings.Contains(failure.Message(err), "1152921504673955840 free bytes") {
		t.Errorf("%v", err)
	}

	s, err := newScratch(parent, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.remove()

	s.room = 1000

	f, err := s.create()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	if _, err := f.Write(make([]byte, 600)); err != nil {
		t.Fatal(err)
	}

	if _, err := f.Write(make([]byte, 600)); failure.Reason(err) != ReasonScratch || !strings.Contains(failure.Message(err), "bytes") {
		t.Errorf("%v", err)
	}

	if info, err := os.Stat(s.database()); err != nil || info.Size() != 600 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	if err := s.classify(syscall.ENOSPC); failure.Reason(err) != ReasonScratch || !strings.Contains(failure.Message(err), "full") {
		t.Errorf("%v", err)
	}

	if _, err := newScratch(filepath.Join(parent, "missing"), 1); failure.Reason(err) != ReasonScratch {
		t.Errorf("a folder that does not exist: %v", err)
	}
}
