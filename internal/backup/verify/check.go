package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/talos-operator/talos-operator/internal/backup/child"
)

// check is what a child does.
type check struct {
	// file is the plain snapshot.
	file string
	// startEtcd starts an etcd from it, instead of looking at it, and reads that revision.
	startEtcd bool
	revision  int64
	// copied says that the file has no checksum at its end.
	copied bool
	// memory and fileSize in bytes, and cpu in seconds, limit the process; zero is no limit.
	memory, fileSize, cpu int64
}

// run looks at the database and prints what it finds as one JSON object. It is for a process of its own: a damaged
// database kills that. It ends the process when alive does.
func (c check) run(ctx context.Context, alive io.Reader, out io.Writer) error {
	if err := c.limit(); err != nil {
		return fmt.Errorf("limiting the process: %w", err)
	}

	go func() {
		<-child.Orphaned(alive)
		os.Exit(1) // whoever asked is gone
	}()

	f, err := c.look(ctx)

	var p *problemError
	if errors.As(err, &p) {
		f = &findings{Problem: p.text}
	} else if err != nil {
		return err
	}

	if err := json.NewEncoder(out).Encode(f); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}

	return nil
}

func (c check) look(ctx context.Context) (*findings, error) {
	if c.startEtcd {
		return c.drill(ctx)
	}

	return inspect(c.file)
}

// limit bounds what a hostile database can cost. The database itself is mapped and does not count as memory.
func (c check) limit() error {
	if c.memory > 0 {
		// When memory runs out, the kernel takes it before the process that asked. Not every kernel can be told that.
		_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	}

	limits := map[int]int64{unix.RLIMIT_DATA: c.memory, unix.RLIMIT_CPU: c.cpu, unix.RLIMIT_FSIZE: c.fileSize}
	for kind, value := range limits {
		if value <= 0 {
			continue
		}

		if err := setLimit(kind, uint64(value)); err != nil {
			return err
		}
	}

	// A core file would hold the database.
	return setLimit(unix.RLIMIT_CORE, 0)
}

// setLimit lowers a limit. One that is lower already stays.
func setLimit(kind int, value uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(kind, &now); err != nil {
		return err
	}

	value = min(value, now.Max)

	return unix.Setrlimit(kind, &unix.Rlimit{Cur: value, Max: value})
}

// problemError is a fault of the database, as opposed to one of ours.
type problemError struct{ text string }

// Error implements error.
func (e *problemError) Error() string { return e.text }

func problem(format string, args ...any) error {
	return &problemError{text: fmt.Sprintf(format, args...)}
}
