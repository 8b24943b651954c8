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

// check is the work of a child process.
type check struct {
	// file is the plain snapshot.
	file string
	// startEtcd starts an etcd from the file instead of inspecting it, and reads at the given revision.
	startEtcd bool
	revision  int64
	// copied is true if the file has no checksum at its end.
	copied bool
	// memory and fileSize in bytes, and cpu in seconds, limit the process; zero means no limit.
	memory, fileSize, cpu int64
}

// run inspects the database and prints its findings as one JSON object. It must run in a separate process, because a
// damaged database can crash it. It ends the process when alive does.
func (c check) run(ctx context.Context, alive io.Reader, out io.Writer) error {
	if err := c.limit(); err != nil {
		return fmt.Errorf("limiting the process: %w", err)
	}

	go func() {
		<-child.Orphaned(alive)
		os.Exit(1) // the parent process is gone
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

// limit limits the cost of a hostile database. The database itself is mapped and does not count as memory.
func (c check) limit() error {
	if c.memory > 0 {
		// When memory runs out, the kernel kills this process before its parent. Not every kernel supports that.
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

	// A core file would contain the database.
	return setLimit(unix.RLIMIT_CORE, 0)
}

// setLimit lowers a limit. A lower limit is kept.
func setLimit(kind int, value uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(kind, &now); err != nil {
		return err
	}

	value = min(value, now.Max)

	return unix.Setrlimit(kind, &unix.Rlimit{Cur: value, Max: value})
}

// problemError is a fault of the database, as opposed to one of the operator.
type problemError struct{ text string }

// Error implements error.
func (e *problemError) Error() string { return e.text }

func problem(format string, args ...any) error {
	return &problemError{text: fmt.Sprintf(format, args...)}
}
