// Package scratch provides directories for temporary plain databases, and ensures that none remains: they contain the
// secrets of a cluster.
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
	// spare is the space that is left free for other users of the same disk.
	spare = 64 << 20
)

// Reasons of temporary files.
const (
	// Reason: there is not enough space for the plain database.
	//
	// Next: mount a larger volume for the directory of temporary files of the operator (docs/operations.md). A restore
	// without `revisionBump` needs none.
	Reason = "ScratchSpaceMissing"
)

// Folder is a private directory. Its lock is held for the life of the process, so that a later process finds and
// removes the directories of killed processes.
type Folder struct {
	// Path of the directory.
	Path string

	lock *os.File
	// room is how many bytes may be written to it.
	room int64
}

// New creates a directory with room for need bytes. parent is the directory for temporary files when empty.
func New(parent string, need int64) (_ *Folder, err error) {
	if parent == "" {
		parent = os.TempDir()
	}

	dir, err := os.Open(parent)
	if err != nil {
		return nil, unusable(err)
	}
	defer dir.Close()

	// A new directory that is not locked yet must not be mistaken for an abandoned one.
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

// sweep removes the directories of killed processes.
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
			continue // it is in use, or belongs to another user
		}

		err = os.RemoveAll(path)
		if err := errors.Join(err, lock.Close()); err != nil {
			return err
		}
	}

	return nil
}

// Remove deletes the directory with its contents.
func (s *Folder) Remove() error {
	err := errors.Join(os.RemoveAll(s.Path), s.lock.Close())
	if err != nil {
		return failure.Transient(Reason, "a plain database could not be removed from the scratch folder", err)
	}

	return nil
}

// Create creates a file for a plain database.
func (s *Folder) Create(name string) (io.WriteCloser, error) {
	f, err := os.OpenFile(filepath.Join(s.Path, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, unusable(err)
	}

	return &file{File: f, dir: s}, nil
}

// Classify assigns a class to errors of the disk.
func (s *Folder) Classify(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return failure.Transient(Reason, "the scratch folder is full", err)
	}

	return unusable(err)
}

// file stops before the disk is full: the plain size of a compressed database is not known in advance.
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

	free := s.Bavail * uint64(s.Bsize) // the types differ between systems
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
