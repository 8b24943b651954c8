package scratch

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
	left := filepath.Join(parent, prefix+"left")
	other := filepath.Join(parent, "other")

	for _, dir := range []string{left, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(dir, "snapshot.db"), []byte("plain"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	first, err := New(parent, 1)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed process left is still there: %v", err)
	}

	if _, err := os.Stat(other); err != nil {
		t.Errorf("somebody else's folder: %v", err)
	}

	second, err := New(parent, 1)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(first.Path); err != nil {
		t.Errorf("the folder of a verification that goes on: %v", err)
	}

	for _, s := range []*Folder{first, second} {
		info, err := os.Stat(s.Path)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}

		if err := s.Remove(); err != nil {
			t.Error(err)
		}

		if _, err := os.Stat(s.Path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("not removed: %v", err)
		}
	}
}

// TestNoRoom: it is said before a byte is written, and where the size is not known, before the disk is full.
func TestNoRoom(t *testing.T) {
	t.Parallel()

	parent := t.TempDir()

	_, err := New(parent, 1<<60)
	if failure.Reason(err) != Reason || !strings.Contains(failure.Message(err), "1152921504673955840 free bytes") {
		t.Errorf("%v", err)
	}

	s, err := New(parent, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Remove()

	s.room = 1000

	f, err := s.Create("snapshot.db")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	if _, err := f.Write(make([]byte, 600)); err != nil {
		t.Fatal(err)
	}

	if _, err := f.Write(make([]byte, 600)); failure.Reason(err) != Reason || !strings.Contains(failure.Message(err), "bytes") {
		t.Errorf("%v", err)
	}

	if info, err := os.Stat(filepath.Join(s.Path, "snapshot.db")); err != nil || info.Size() != 600 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	if err := s.Classify(syscall.ENOSPC); failure.Reason(err) != Reason || !strings.Contains(failure.Message(err), "full") {
		t.Errorf("%v", err)
	}

	if _, err := New(filepath.Join(parent, "missing"), 1); failure.Reason(err) != Reason {
		t.Errorf("a folder that does not exist: %v", err)
	}
}
