package verify

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
	scratchPrefix = "talos-operator-verify-"
	// databaseName is the plain database in a scratch folder.
	databaseName = "snapshot.db"
	// spare is left free for others on the same disk.
	spare = 64 << 20
)

// scratch is a private folder for a plain database, which holds the secrets of a cluster. Its lock is held as long as
// the process lives, so that the next one finds and removes what a process that was killed left.
type scratch struct {
	path string
	lock *os.File
	// room is how many bytes may be written into it.
	room int64
}

// newScratch makes a folder with room for need bytes.
func newScratch(parent string, need int64) (_ *scratch, err error) {
	dir, err := os.Open(parent)
	if err != nil {
		return nil, scratchError(err)
	}
	defer dir.Close() //nolint:errcheck // it was only locked

	// A folder that was just made, and is not locked yet, must not be taken for one that was left.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, scratchError(err)
	}

	if err := sweep(parent); err != nil {
		return nil, scratchError(err)
	}

	free, err := freeSpace(parent)
	if err != nil {
		return nil, scratchError(err)
	}

	if need > free-spare {
		return nil, noRoom(need, free)
	}

	s := &scratch{room: free - spare}

	if s.path, err = os.MkdirTemp(parent, scratchPrefix); err != nil {
		return nil, scratchError(err)
	}

	if s.lock, err = lockFolder(s.path); err != nil {
		return nil, errors.Join(scratchError(err), os.RemoveAll(s.path))
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
		if !e.IsDir() || !strings.HasPrefix(e.Name(), scratchPrefix) {
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

// remove deletes the folder and all that is in it.
func (s *scratch) remove() error {
	err := errors.Join(os.RemoveAll(s.path), s.lock.Close())
	if err != nil {
		return failure.Transient(ReasonScratch, "a plain database could not be removed from the scratch folder", err)
	}

	return nil
}

// create makes the file for the plain database.
func (s *scratch) create() (io.WriteCloser, error) {
	f, err := os.OpenFile(s.database(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, scratchError(err)
	}

	return &scratchFile{File: f, dir: s}, nil
}

func (s *scratch) database() string { return filepath.Join(s.path, databaseName) }

// classify gives errors of the disk a class.
func (s *scratch) classify(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return failure.Transient(ReasonScratch, "the scratch folder is full", err)
	}

	return scratchError(err)
}

// scratchFile stops before the disk is full: how large a compressed database becomes is not known before.
type scratchFile struct {
	*os.File

	dir     *scratch
	written int64
}

// Write implements io.Writer.
func (f *scratchFile) Write(p []byte) (int, error) {
	if f.written+int64(len(p)) > f.dir.room {
		return 0, noRoom(f.written+int64(len(p)), f.dir.room+spare)
	}

	n, err := f.File.Write(p)
	f.written += int64(n)

	if err != nil {
		return n, f.dir.classify(err)
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
	return failure.Transient(ReasonScratch,
		fmt.Sprintf("the verification needs %d free bytes in its scratch folder", need+spare),
		fmt.Errorf("%d are free", free))
}

func scratchError(err error) error {
	return failure.Transient(ReasonScratch, "the scratch folder cannot be used", err)
}
