package control

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrRunning says that another process runs the lab of a directory.
var ErrRunning = errors.New("a lab is running there already")

// Lock is the right to run the lab of a directory. It ends with the process.
type Lock struct{ file *os.File }

// Acquire takes the right to run the lab of a directory.
func Acquire(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of a lab: %w", err)
	}

	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the directory of a lab: %w", err)
	}

	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, wholeFile()); err != nil {
		pid := holder(file)
		_ = file.Close()

		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, fmt.Errorf("%w: %s, process %s", ErrRunning, dir, pid)
		}

		return nil, fmt.Errorf("locking the directory of a lab: %w", err)
	}

	content := []byte(strconv.Itoa(os.Getpid()))

	if err := errors.Join(file.Truncate(0), writeAt(file, content)); err != nil {
		_ = file.Close()

		return nil, fmt.Errorf("locking the directory of a lab: %w", err)
	}

	return &Lock{file: file}, nil
}

func writeAt(file *os.File, content []byte) error {
	_, err := file.WriteAt(content, 0)

	return err
}

// Release gives the right back.
func (l *Lock) Release() { _ = l.file.Close() }

// Running returns an error when a lab runs in a directory, nil otherwise.
func Running(dir string) error {
	file, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return nil // no lock, no lab
	}

	defer file.Close()

	// Only asks: taking the lock for a moment would be in the way of a lab that starts.
	lock := wholeFile()
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, lock); err == nil && lock.Type != unix.F_UNLCK {
		return fmt.Errorf("%w: %s, process %s", ErrRunning, dir, holder(file))
	}

	return nil
}

func wholeFile() *unix.Flock_t { return &unix.Flock_t{Type: unix.F_WRLCK} }

func holder(file *os.File) string {
	buf := make([]byte, 16)
	n, _ := file.ReadAt(buf, 0)

	return strings.TrimSpace(string(buf[:n]))
}
