// Package scratch gives plain databases a folder for as long as they are needed, and sees to it that none stays: they
// hold the secrets of a cluster.
package scratch

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	prefix = "talos-operator-scratch-"
	// spare is left free for others on the same disk.
	spare = 64 << 20
)

// Reason of a failure.
const Reason = "ScratchSpaceMissing"

// Folder is private. Its lock is held as long as
// the process lives, so that the next one finds and removes what a process that was killed left.
type Folder struct {
	// Path of it.
	Path string

	lock *os.File
	// room is how many bytes may be written into it.
	room int64
}

// New makes a folder with room for need bytes. parent is the folder for temporary files when empty.
func New(parent string, need int64) (_ *Folder, err error) {
	if parent == "" {
		parent = os.TempDir()
	}

	dir, err := os.Open(parent)
	if err != nil {
		return nil, unusable(err)
	}
	defer dir.Close() //nolint:errcheck // it was only locked

	// A folder that was just made, and is not locked yet, must not be taken for one that was left.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, unusable(err)
	}

	if err := sweep(parent); err != nil {
		return nil, unusable(err)
	}

	free, err := freeSpace(parent)
	if err != nil {
		return nil, unusable(err)
	}

	if need > free-spare {
		return nil, noRoom(need, free)
	}

	s := &Folder{room: free - spare}

	if s.Path, err = os.MkdirTemp(parent, prefix); err != nil {
		return nil, unusable(err)
	}

	if s.lock, err = lockFolder(s.Path); err != nil {
		return nil, errors.Join(unusable(err), os.RemoveAll(s.Path))
	}

	return s, nil
}

func lockFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}

	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// sweep removes what processes left that were killed.
func sweep(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}

	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}

		path := filepath.Join(parent, e.Name())

		lock, err := lockFolder(path)
		if err != nil {
			continue // somebody works in it, or it belongs to somebody else
		}

		err = os.RemoveAll(path)
		if err := errors.Join(err, lock.Close()); err != nil {
			return err
		}
	}

	return nil
}

// Remove deletes the folder and all that is in it.
func (s *Folder) Remove() error {
	err := errors.Join(os.RemoveAll(s.Path), s.lock.Close())
	if err != nil {
		return failure.Transient(Reason, "a plain database could not be removed from the scratch folder", err)
	}

	return nil
}

// Create makes a file for a plain database.
func (s *Folder) Create(name string) (io.WriteCloser, error) {
	f, err := os.OpenFile(filepath.Join(s.Path, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, unusable(err)
	}

	return &file{File: f, dir: s}, nil
}

// Classify gives errors of the disk a class.
func (s *Folder) Classify(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return failure.Transient(Reason, "the scratch folder is full", err)
	}

	return unusable(err)
}

// file stops before the disk is full: how large a compressed database becomes is not known before.
type file struct {
	*os.File

	dir     *Folder
	written int64
}

// Write implements io.Writer.
func (f *file) Write(p []byte) (int, error) {
	if f.written+int64(len(p)) > f.dir.room {
		return 0, noRoom(f.written+int64(len(p)), f.dir.room+spare)
	}

	n, err := f.File.Write(p)
	f.written += int64(n)

	if err != nil {
		return n, f.dir.Classify(err)
	}

	return n, nil
}

func freeSpace(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}

	free := s.Bavail * uint64(s.Bsize) //nolint:unconvert // the types differ between systems
	if free > math.MaxInt64 {
		free = math.MaxInt64
	}

	return int64(free), nil
}

func noRoom(need, free int64) error {
	return failure.Transient(Reason,
		fmt.Sprintf("%d free bytes are needed in the scratch folder", need+spare),
		fmt.Errorf("%d are free", free))
}

func unusable(err error) error {
	return failure.Transient(Reason, "the scratch folder cannot be used", err)
}
